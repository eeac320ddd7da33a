"""The lemma under the theorem: interleaved knots give a triangular matrix without a zero inside.

Let b_1 < z_1 <= b_2 < z_2 <= ... <= b_n < z_n and A[i, j] = max(z_i - b_j, 0). Right of the
diagonal z_i <= b_j, so A is lower triangular; its eigenvalues are its diagonal z_i - b_i, the
smallest of them min(z_i - b_i) > 0. So A is invertible and A w = y has a solution for every y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from nonvacuous.errors import BadInput

#: Matrices above this size are not written out.
LARGEST = 60


@dataclass(frozen=True)
class LemmaCheck:
    """The lemma on one set of positions and knots.

    size                  points
    is_triangular         whether all entries right of the diagonal are zero
    smallest_eigenvalue   min(z_i - b_i), exact
    rank                  rank of the matrix by exact elimination
    numeric               the smallest eigenvalue as a numerical library finds it
    """

    size: int
    is_triangular: bool
    smallest_eigenvalue: Fraction
    rank: int
    numeric: float

    @property
    def holds(self) -> bool:
        return self.is_triangular and self.rank == self.size and self.smallest_eigenvalue > 0


def matrix(places: Sequence[int], knots: Sequence[int]) -> list[list[Fraction]]:
    """A[i][j] = max(places[i] - knots[j], 0)."""
    return [[Fraction(max(place - knot, 0)) for knot in knots] for place in places]


def smallest_eigenvalue(places: Sequence[int], knots: Sequence[int]) -> int:
    """The smallest distance between a point and its own knot: linear in the number of points."""
    return min(place - knot for place, knot in zip(places, knots, strict=True))


def check_lemma(places: Sequence[int], knots: Sequence[int]) -> LemmaCheck:
    """Write the matrix out and check every claim, with exact elimination for the rank."""
    if not 0 < len(places) <= LARGEST or len(places) != len(knots):
        raise BadInput(
            f"the matrix is written out for 1 to {LARGEST} points with as many knots, not for "
            f"{len(places):,} and {len(knots):,}; give a part of them"
        )
    entries = matrix(places, knots)
    # Brought to size 1: the library works in float64.
    scale = max(max(row) for row in entries) or Fraction(1)
    floats = np.array([[float(entry / scale) for entry in row] for row in entries])
    found = np.linalg.eigvals(floats)
    return LemmaCheck(
        size=len(places),
        is_triangular=all(not any(row[i + 1 :]) for i, row in enumerate(entries)),
        smallest_eigenvalue=Fraction(smallest_eigenvalue(places, knots)),
        rank=_rank(entries),
        numeric=float(np.abs(found).min()) * float(scale),
    )


def _rank(entries: list[list[Fraction]]) -> int:
    rows = [row[:] for row in entries]
    rank = 0
    for column in range(len(rows)):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            if rows[i][column]:
                factor = rows[i][column] / rows[rank][column]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank
