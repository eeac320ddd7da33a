"""Points that occur more than once: harmless with one value, hopeless with several."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nonvacuous.errors import BadInput
from nonvacuous.memorization.inputs import Values


@dataclass(frozen=True)
class Duplicates:
    """How many points are copies, and what no function of the points can get right.

    points        all points
    distinct      different ones
    conflicting   different ones that come with two or more values
    floor         the fewest points that any function whatsoever gets wrong
    first         positions of two copies with different values, where there are any
    """

    points: int
    distinct: int
    conflicting: int
    floor: int
    first: tuple[int, int] | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class ConflictingValues(BadInput):
    """Copies of a point come with different values; ``found`` says how many cannot be right."""

    def __init__(self, message: str, found: Duplicates) -> None:
        super().__init__(message)
        self.found = found


def settle(
    values: Values, order: np.ndarray, starts: np.ndarray, *, conflicts: str
) -> tuple[tuple[int, ...], Duplicates]:
    """One value for each distinct point, the most frequent one, and what was found on the way.

    ``conflicts="refuse"`` raises where copies of a point come with different values; "majority"
    goes on, and the report says how many points cannot be right.
    """
    ends = np.append(starts[1:], len(order))
    kept: list[int] = []
    conflicting = floor = 0
    first: tuple[int, int] | None = None
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start == 1:
            kept.append(values.integers[order[start]])
            continue
        members = sorted(order[start:end].tolist())
        counts = Counter(values.integers[i] for i in members)
        # The earliest of equally frequent values: Counter keeps the order of first occurrence.
        value, votes = max(counts.items(), key=lambda entry: entry[1])
        kept.append(value)
        if len(counts) > 1:
            conflicting += 1
            floor += len(members) - votes
            other = next(i for i in members if values.integers[i] != values.integers[members[0]])
            first = min(first or (members[0], other), (members[0], other))
    found = Duplicates(len(order), len(starts), conflicting, floor, first)
    if conflicting and conflicts == "refuse":
        assert first is not None
        everything = "all points are identical; " if found.distinct == 1 else ""
        raise ConflictingValues(
            f"values: {everything}{conflicting:,} of {found.distinct:,} distinct points come with "
            f"different values (for instance positions {first[0]} and {first[1]}), so every "
            f"function is wrong on at least {floor:,} of {found.points:,} points. Repair the "
            'values, or keep the most frequent value of each point with conflicts="majority"',
            found,
        )
    return tuple(kept), found
