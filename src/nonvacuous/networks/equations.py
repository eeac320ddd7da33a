"""The linear equations between labels, solved one by one as they are found.

Every label is either free or a combination of older free labels; a label equal to the empty
combination is pinned: its factor is 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import chain

import numpy as np

from nonvacuous.networks.log_scale import PINNED, LogScale, Power, Term, plain

Combination = dict[int, Power]


def combined(parts: Iterable[tuple[Power, Combination]]) -> Combination:
    """The sum of combinations, each times a power, without what cancels."""
    total: Combination = {}
    for power, combination in parts:
        for label, factor in combination.items():
            total[label] = total.get(label, 0) + power * factor
    return {label: factor for label, factor in total.items() if factor}


def distinct_rows(terms: Sequence[Term]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct tuples of labels, and which of them stands at each position."""
    spread = np.broadcast_arrays(*(term.labels for term in terms))
    stacked = np.stack([labels.ravel() for labels in spread], axis=1)
    rows, inverse = np.unique(stacked, axis=0, return_inverse=True)
    return rows, inverse.ravel()


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
            later = [other for other in solved if self._solved.keys() & self._solved[other].keys()]
            if later:
                waiting.extend(later)
                continue
            if solved:
                self._solved[waiting[-1]] = self._substituted(waiting[-1], known)
            waiting.pop()
        return self._solved[label]

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
        powers = [term.power for term in terms]
        rows = distinct_rows(terms)[0].tolist()
        return self.require_rows((zip(row, powers, strict=True) for row in rows), reason=reason)

    def require_rows(self, rows: Iterable[Iterable[tuple[int, Power]]], *, reason: str = "") -> int:
        """Each row of (label, power) sums to 0. Returns how many of these are news."""
        news = 0
        for row in rows:
            unknown = [(label, power) for label, power in row if label != PINNED]
            total = combined((power, self.resolve(label)) for label, power in unknown)
            if not total:
                continue
            # The newest unknown is the one to express: what was there first names the group.
            newest = max(total)
            pivot = total.pop(newest)
            if not total:
                pinned = [label for label, _ in unknown if not self.resolve(label)]
                causes = (self._reasons.get(label, "") for label in pinned)
                self._reasons[newest] = next(filter(None, causes), reason)
            parts = total.items()
            self._solved[newest] = {free: plain(Fraction(-factor, pivot)) for free, factor in parts}
            news += 1
        return news

    def _substituted(self, label: int, known: Combination) -> Combination:
        for other in known:
            if self._solved.get(other) == {} and other in self._reasons:
                self._reasons.setdefault(label, self._reasons[other])
        return combined(
            (power, self._solved.get(other, {other: 1})) for other, power in known.items()
        )


class Constraints(Equations):
    """What must hold between scales so that they pass: sums tie them, products cancel them.

    A factor can only be pulled out of a sum when it is the same for all its members. Everything
    here is a version of that sentence.
    A weight that has unknowns along several axes is described twice: a constant can be moved from
    one axis to another. The first constraint on such a weight settles that constant.
    """

    def __init__(self) -> None:
        super().__init__()
        self._settled: set[str] = set()

    def pin(self, scale: LogScale, *, reason: str) -> int:
        """The tensor does not scale. Returns how much of that is news."""
        return self._zero(scale.terms, [scale], reason)

    def tie(self, first: LogScale, second: LogScale, *, reason: str) -> None:
        """Two tensors that broadcast together have the same scale everywhere."""
        shape = np.broadcast_shapes(first.shape, second.shape)
        left, right = first.broadcast_to(shape), second.broadcast_to(shape)
        self._zero((*left.terms, *right.power(-1).terms), [first, second], reason)

    def constant(self, scale: LogScale, axes: Sequence[int], *, reason: str) -> LogScale:
        """The scale does not depend on these axes; returned as seen at their first position."""
        named = {scale.axis(axis) for axis in axes}
        dependent = [term for term in scale.terms if term.axes & named]
        for part in connected(dependent):
            if self._is_unsettled(scale) and all(term.axes <= named for term in part):
                self.require_zero(part)
                self._settled.add(scale.weight)
                continue
            first = [_first(term, named) for term in part]
            minus = [Term(-term.power, term.labels, term.axes) for term in first]
            self.require_zero([*part, *minus], reason=reason)
        terms = tuple(_first(term, named) if term.axes & named else term for term in scale.terms)
        return LogScale(scale.shape, terms, scale.weight)

    def product(
        self, operands: Sequence[tuple[LogScale, Sequence[str]]], result: Sequence[str]
    ) -> LogScale:
        """The scale of a sum of products, as in einsum: every operand names its axes.

        Along the axes that are summed over, the scales of the operands must cancel: what one
        writes with λ, the other reads with 1/λ.
        """
        names = list(dict.fromkeys([*result, *(n for _, own in operands for n in own)]))
        sizes = dict.fromkeys(names, 1)
        for scale, own in operands:
            for name, size in zip(own, scale.shape, strict=True):
                sizes[name] = max(sizes[name], size)
        shape = tuple(sizes.values())
        terms = [
            term
            for scale, own in operands
            for term in scale.arranged(
                [list(own).index(name) if name in own else None for name in names], shape
            ).terms
        ]
        summed = {k for k, name in enumerate(names) if name not in result}
        unsettled = [scale for scale, _ in operands if self._is_unsettled(scale)]
        kept = [term for term in terms if not term.axes & summed]
        for part in connected([term for term in terms if term.axes & summed]):
            if unsettled:
                self.require_zero(part)
                continue
            # One new unknown for every position on the axes that are not summed.
            axes = frozenset().union(*(term.axes for term in part)) - summed
            across = np.broadcast_shapes(*(term.labels.shape for term in part))
            common = [size if k in axes else 1 for k, size in enumerate(across)]
            labels = self.fresh(int(np.prod(common))).reshape(common)
            self.require_zero([*part, Term(-1, labels, axes)])
            kept.append(Term(1, labels, axes))
        self._settled.update(scale.weight for scale in unsettled)
        return LogScale(shape, tuple(kept)).arranged([names.index(name) for name in result])

    def _zero(self, terms: Sequence[Term], scales: Sequence[LogScale], reason: str) -> int:
        """The terms sum to 0 everywhere, which parts on different axes do only as constants."""
        parts = connected(terms)
        unsettled = [scale.weight for scale in scales if self._is_unsettled(scale)]
        self._settled.update(unsettled)
        news = 0
        rest: list[Term] = []
        for k, part in enumerate(parts):
            if k == len(parts) - 1:
                news += self.require_zero([*part, *rest], reason=reason)
            elif unsettled:
                news += self.require_zero(part, reason=reason)
            else:
                dimensions = part[0].labels.ndim
                label = self.fresh(1).reshape((1,) * dimensions)
                news += self.require_zero([*part, Term(-1, label, frozenset())])
                rest.append(Term(1, label, frozenset()))
        return news

    def _is_unsettled(self, scale: LogScale) -> bool:
        return bool(scale.weight) and len(scale.terms) > 1 and scale.weight not in self._settled


def connected(terms: Sequence[Term]) -> list[list[Term]]:
    """Terms grouped so that different groups depend on different axes.

    Terms that depend on no axis join the last group, if there is one.
    """
    groups: list[list[Term]] = []
    for term in terms:
        if term.axes:
            touching = [g for g in groups if any(other.axes & term.axes for other in g)]
            groups = [group for group in groups if group not in touching]
            groups.append([*chain.from_iterable(touching), term])
    single = [term for term in terms if not term.axes]
    if single:
        groups[-1:] = [[*(groups[-1] if groups else ()), *single]]
    return groups


def _first(term: Term, axes: set[int]) -> Term:
    labels = term.labels
    for axis in term.axes & axes:
        labels = labels.take([0], axis)
    return Term(term.power, labels, term.axes - axes)
