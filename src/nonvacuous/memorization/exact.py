"""The certificate: the network's value at every point, in exact arithmetic, equals the value given.

The walk below knows knots and weights only. It does not use how they were found.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.memorization.construction import Construction
from nonvacuous.memorization.projection import Ordered
from nonvacuous.progress import Progress, Reporter

#: Points whose wide projections are computed a second time, one Python number after the other.
_SAMPLED = 64
_REPORT_EVERY = 4096


@dataclass(frozen=True)
class ExactCertificate:
    """What was checked, in rational arithmetic, and found without exception.

    points         points given, copies included
    distinct       different points: the values that were compared
    mismatches     values that differ: always 0, since anything else is an error
    projections    positions that were computed a second time in another way, all equal
    unreachable    copies whose value contradicts the one kept: no function has both
    seconds        how long the check took
    """

    points: int
    distinct: int
    mismatches: int
    projections: int
    unreachable: int
    seconds: float

    def __str__(self) -> str:
        text = (
            f"{self.mismatches} mismatches at {self.distinct:,} distinct points in exact rational "
            f"arithmetic ({self.seconds:.2g} s)"
        )
        contradicting = f"; {self.unreachable:,} points contradict a copy of themselves"
        return text + contradicting if self.unreachable else text


def exact_values(construction: Construction) -> Iterator[Fraction]:
    """The network's value at each position, by walking along the knots.

    At the first unit of a later block the slope starts again from zero, since the units of the
    block before stand still from there on.
    """
    value, slope = Fraction(0), Fraction(0)
    here = construction.knots[0]
    begins = set(construction.blocks)
    for i, (knot, weight) in enumerate(zip(construction.knots, construction.weights, strict=True)):
        if knot != here:
            value += slope * (knot - here)
        slope = weight if i in begins else slope + weight
        here = construction.positions[i]
        value += slope * (here - knot)
        yield value


def certify_exactly(
    construction: Construction,
    ordered: Ordered,
    rows: np.ndarray,
    *,
    unreachable: int = 0,
    progress: Progress | None = None,
) -> ExactCertificate:
    """Compare every value, and the positions with a second computation; any difference raises."""
    started = time.perf_counter()
    _check_order(construction)
    reporter = Reporter(progress, "certifying")
    total = len(construction)
    wrong = []
    for i, value in enumerate(exact_values(construction)):
        if value != construction.values[i]:
            wrong.append(i)
        if i % _REPORT_EVERY == 0:
            reporter.report(i, total, "exact arithmetic")
    if wrong:
        where = int(ordered.order[ordered.starts[wrong[0]]])
        raise InvalidCertificate(
            f"{len(wrong):,} of {total:,} values differ in exact arithmetic, the first at position "
            f"{where}: these weights do not memorize these values; construct them again"
        )
    projections = _check_projections(ordered, rows)
    reporter.report(total, total, "exact arithmetic", always=True)
    return ExactCertificate(
        points=len(ordered.order),
        distinct=total,
        mismatches=0,
        projections=projections,
        unreachable=unreachable,
        seconds=time.perf_counter() - started,
    )


def _check_order(construction: Construction) -> None:
    """knots[0] < positions[0] <= knots[1] < positions[1] <= ...: the walk relies on it."""
    before = construction.knots[0]
    for knot, here in zip(construction.knots, construction.positions, strict=True):
        if not before <= knot < here:
            raise InvalidCertificate(
                f"the knot {knot} does not lie between the points beside it; construct it again"
            )
        before = here


def _check_projections(ordered: Ordered, rows: np.ndarray) -> int:
    """Positions once more: by 64-bit sums where float64 was exact, else number by number."""
    direction = ordered.direction
    first = ordered.order[ordered.starts]
    if direction.is_exact:
        again = direction.project_short(rows)[first]
        wrong = [a != b for a, b in zip(again.tolist(), ordered.positions, strict=True)]
    else:
        chosen = np.unique(np.linspace(0, len(first) - 1, _SAMPLED).astype(np.int64))
        wrong = [
            _slow_position(rows[first[i]], ordered) != Fraction(ordered.positions[i])
            for i in chosen.tolist()
        ]
    if any(wrong):
        raise InvalidCertificate(
            f"{sum(wrong):,} of {len(wrong):,} positions differ when computed a second time; this "
            "is a fault of the library or of the machine: please report it with the seed"
        )
    return len(wrong)


def _slow_position(row: np.ndarray, ordered: Ordered) -> Fraction:
    """One position in units of the direction, by Python's own fractions."""
    direction = ordered.direction
    columns = (row.tolist(), direction.whole.tolist(), direction.exponents.tolist())
    parts = zip(*columns, strict=True)
    terms = (Fraction(value) * weight * Fraction(2) ** power for value, weight, power in parts)
    total = sum(terms, Fraction(0))
    return total / Fraction(2) ** direction.unit


#: Matrices above this size are not written out.
LARGEST = 60


@dataclass(frozen=True)
class LemmaCheck:
    """The lemma on one set of positions and knots.

    size                  points
    is_triangular         whether all entries right of the diagonal are zero
    smallest_eigenvalue   min(z_i - b_i), exact
    rank                  rank of the matrix by exact elimination
    """

    size: int
    is_triangular: bool
    smallest_eigenvalue: Fraction
    rank: int

    @property
    def holds(self) -> bool:
        return self.is_triangular and self.rank == self.size and self.smallest_eigenvalue > 0


def check_lemma(positions: Sequence[int], knots: Sequence[int]) -> LemmaCheck:
    """Write the matrix out and check every claim, with exact elimination for the rank."""
    if not 0 < len(positions) <= LARGEST or len(positions) != len(knots):
        raise BadInput(
            f"the matrix is written out for 1 to {LARGEST} points with as many knots, not for "
            f"{len(positions):,} and {len(knots):,}; give a part of them"
        )
    entries = [[Fraction(max(position - knot, 0)) for knot in knots] for position in positions]
    return LemmaCheck(
        size=len(positions),
        is_triangular=all(not any(row[i + 1 :]) for i, row in enumerate(entries)),
        smallest_eigenvalue=min(row[i] for i, row in enumerate(entries)),
        rank=_rank(entries),
    )


def _rank(rows: list[list[Fraction]]) -> int:
    rank = 0
    while rows := [row for row in rows if any(row)]:
        pivot, *others = rows
        column = next(i for i, entry in enumerate(pivot) if entry)
        ratios = [row[column] / pivot[column] for row in others]
        rows = [
            [a - ratio * b for a, b in zip(row, pivot, strict=True)]
            for ratio, row in zip(ratios, others, strict=True)
        ]
        rank += 1
    return rank
