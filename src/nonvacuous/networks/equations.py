"""The linear equations between labels, solved one by one as they are found.

Every label is either free or a combination of older free labels; a label equal to the empty
combination is pinned: its factor is 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from nonvacuous.networks.log_scale import PINNED, Power, Term

Combination = dict[int, Power]


class Equations:
    """Unknown logarithms of scales and what is known about them."""

    def __init__(self) -> None:
        self._count = 1
        self._solved: dict[int, Combination] = {PINNED: {}}
        self._reasons: dict[int, str] = {}

    def fresh(self, count: int) -> np.ndarray:
        """New unknowns, about which nothing is known."""
        labels = np.arange(self._count, self._count + count, dtype=np.int64)
        self._count += count
        return labels

    def resolve(self, label: int) -> Combination:
        """A label as a combination of free labels.

        Labels that stand between are resolved on the way: chains as long as a layer is wide would
        otherwise be walked again for each of its units.
        """
        if label not in self._solved:
            return {label: 1}
        waiting = [label]
        while waiting:
            known = self._solved[waiting[-1]]
            solved = [other for other in known if other in self._solved]
            later = [other for other in solved if not self._is_resolved(other)]
            if later:
                waiting.extend(later)
                continue
            if solved:
                self._solved[waiting[-1]] = self._substituted(waiting[-1], known)
            waiting.pop()
        return self._solved[label]

    def _is_resolved(self, label: int) -> bool:
        return not any(other in self._solved for other in self._solved[label])

    def reason(self, label: int) -> str:
        """Why a label is pinned, as far as a reason was given."""
        self.resolve(label)
        return self._reasons.get(label, "")

    def is_free(self, label: int) -> bool:
        return label not in self._solved

    def require_zero(self, terms: Sequence[Term], *, reason: str = "") -> int:
        """The sum of the terms is 0 at every position. Returns how much of that is news."""
        if not terms:
            return 0
        spread = np.broadcast_arrays(*(term.labels for term in terms))
        rows = np.unique(np.stack([labels.ravel() for labels in spread], axis=1), axis=0)
        powers = [term.power for term in terms]
        return self.require_rows(
            (zip(row, powers, strict=True) for row in rows.tolist()), reason=reason
        )

    def require_rows(self, rows: Iterable[Iterable[tuple[int, Power]]], *, reason: str = "") -> int:
        """Each row of (label, power) sums to 0. Returns how many of these are news."""
        return sum(self._require_row(row, reason) for row in rows)

    def _require_row(self, row: Iterable[tuple[int, Power]], reason: str) -> int:
        combined: Combination = {}
        cause = ""
        for label, power in row:
            if label == PINNED:
                continue
            resolved = self.resolve(label)
            if not resolved:
                cause = cause or self._reasons.get(label, "")
            for free, factor in resolved.items():
                combined[free] = combined.get(free, 0) + power * factor
        combined = {free: factor for free, factor in combined.items() if factor}
        if not combined:
            return 0
        # The newest unknown is the one to express: what was there first names the group.
        newest = max(combined)
        pivot = combined.pop(newest)
        self._solved[newest] = {free: _ratio(-factor, pivot) for free, factor in combined.items()}
        if not combined:
            self._reasons[newest] = cause or reason
        return 1

    def _substituted(self, label: int, known: Combination) -> Combination:
        result: Combination = {}
        for other, power in known.items():
            step = self._solved.get(other)
            if step is None:
                result[other] = result.get(other, 0) + power
                continue
            if not step and label not in self._reasons and other in self._reasons:
                self._reasons[label] = self._reasons[other]
            for free, factor in step.items():
                result[free] = result.get(free, 0) + power * factor
        return {free: factor for free, factor in result.items() if factor}


def _ratio(numerator: Power, denominator: Power) -> Power:
    if denominator == 1 or denominator == -1:
        return numerator * denominator
    ratio = Fraction(numerator) / Fraction(denominator)
    return int(ratio) if ratio.denominator == 1 else ratio
