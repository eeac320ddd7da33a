"""The logarithm of the positive factor by which each element of a tensor is multiplied.

It is a sum of terms, and each term looks up one unknown ("label") per position along some of the
tensor's axes: hidden channels of an image [n, c, h, w] have one term with labels along axis 1.
Label 0 means the factor 1. Nothing here knows which labels are equal; see `equations`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from nonvacuous.networks.layer_graph import Shape

Power = int | Fraction
Block = tuple[list[int], list[int]]
"""Axes, and those that take their place when a tensor is reshaped."""
PINNED = 0
"""The label of everything that keeps the factor 1."""


@dataclass(frozen=True, eq=False)
class Term:
    """power · labels, spread over the axes on which it does not depend.

    labels   as many dimensions as the tensor, of size 1 on the axes on which nothing depends
    axes     the axes on which the labels depend (one of size 1 may be among them)
    """

    power: Power
    labels: np.ndarray
    axes: frozenset[int]


@dataclass(frozen=True, eq=False)
class LogScale:
    """The sum of terms for a tensor of this shape; no terms: it does not scale at all.

    weight   the weight that this is (or is a view of), "" for anything else
    """

    shape: Shape
    terms: tuple[Term, ...] = ()
    weight: str = ""

    @property
    def dimensions(self) -> int:
        return len(self.shape)

    def axis(self, axis: int) -> int:
        """An axis counted from the end, counted from the front."""
        return axis % self.dimensions if self.dimensions else 0

    def _mapped(
        self, shape: Sequence[int], change: Callable[[Term], tuple[np.ndarray, Iterable[int]]]
    ) -> LogScale:
        """Of a view of the tensor: ``change`` gives the labels and the axes of a term in it."""
        changed = ((term.power, *change(term)) for term in self.terms)
        terms = tuple(Term(power, labels, frozenset(axes)) for power, labels, axes in changed)
        return LogScale(tuple(shape), terms, self.weight)

    def times(self, other: LogScale) -> LogScale:
        """Of the elementwise product of two tensors that broadcast: scales add."""
        shape = np.broadcast_shapes(self.shape, other.shape)
        left, right = self.broadcast_to(shape), other.broadcast_to(shape)
        return LogScale(shape, _merged((*left.terms, *right.terms)))

    def power(self, exponent: float | Fraction) -> LogScale:
        """Of the tensor raised elementwise to a power: a homogeneous function of that degree."""
        exact = as_power(exponent)
        terms = tuple(Term(plain(t.power * exact), t.labels, t.axes) for t in self.terms if exact)
        return LogScale(self.shape, terms, self.weight if exact == 1 else "")

    def over(self, other: LogScale) -> LogScale:
        """Of the elementwise quotient."""
        return self.times(other.power(-1))

    def arranged(
        self, sources: Sequence[int | None], shape: Sequence[int] | None = None
    ) -> LogScale:
        """Axes in another order, without some on which nothing depends, and with new ones.

        sources   for each axis of the result the one that it was; None for a new one
        shape     of the result, where new axes or old ones of size 1 are stretched
        """
        kept = [axis for axis in sources if axis is not None]
        order = [*kept, *(axis for axis in range(self.dimensions) if axis not in kept)]
        sizes = [1 if axis is None else self.shape[axis] for axis in sources]
        shape = sizes if shape is None else shape
        moved = {old: new for new, old in enumerate(sources) if sizes[new] == shape[new]}
        return self._mapped(
            shape,
            lambda t: (
                t.labels.transpose(order).reshape(
                    [1 if axis is None else t.labels.shape[axis] for axis in sources]
                ),
                [moved[axis] for axis in t.axes if axis in moved],
            ),
        )

    def broadcast_to(self, shape: Sequence[int]) -> LogScale:
        """New axes in front and stretched axes of size 1: nothing depends on either."""
        return self.arranged(
            [None] * (len(shape) - self.dimensions) + [*range(self.dimensions)], shape
        )

    def permute(self, order: Sequence[int]) -> LogScale:
        """Axes in another order."""
        return self.arranged([self.axis(axis) for axis in order])

    def take(self, axis: int, positions: np.ndarray | Sequence[int]) -> LogScale:
        """Some positions along an axis, in this order."""
        axis = self.axis(axis)
        positions = np.asarray(positions, dtype=np.int64)
        return self._mapped(
            (*self.shape[:axis], len(positions), *self.shape[axis + 1 :]),
            lambda t: (
                t.labels.take(positions, axis) if t.labels.shape[axis] > 1 else t.labels,
                t.axes,
            ),
        )

    def select(self, axis: int, position: int) -> LogScale:
        """One position along an axis, which disappears."""
        axis = self.axis(axis)
        return self.take(axis, [position % self.shape[axis]]).squeeze(axis)

    def squeeze(self, axis: int) -> LogScale:
        """Without an axis of size 1."""
        return self.arranged([a for a in range(self.dimensions) if a != self.axis(axis)])

    def unsqueeze(self, axis: int) -> LogScale:
        """With a new axis of size 1, on which nothing depends."""
        axes: list[int | None] = [*range(self.dimensions)]
        axes.insert(axis % (self.dimensions + 1), None)
        return self.arranged(axes)

    def reshape(self, shape: Sequence[int]) -> LogScale:
        """Rearranged in memory order: merged axes list every pair of positions."""
        if 0 in shape:  # nothing is there that could scale
            return LogScale(tuple(shape), (), self.weight)
        return self._regrouped(tuple(shape), _blocks(self.shape, tuple(shape)))

    def _regrouped(
        self, shape: Shape, blocks: Sequence[Block], *, keep: Iterable[int] = ()
    ) -> LogScale:
        terms = tuple(_reshaped(t, self.shape, shape, blocks, set(keep)) for t in self.terms)
        return LogScale(shape, terms, self.weight)

    def split(self, axis: int, sizes: Sequence[int]) -> LogScale:
        """One axis seen as several; what depended on it depends on each, also one of size 1."""
        axis, added = self.axis(axis), len(sizes) - 1
        parts = range(axis, axis + len(sizes))
        blocks = [([a], [a + added * (a > axis)]) for a in range(self.dimensions)]
        blocks[axis] = ([axis], [*parts])
        single = [part for part, size in zip(parts, sizes, strict=True) if size == 1]
        shape = (*self.shape[:axis], *sizes, *self.shape[axis + 1 :])
        return self._regrouped(shape, blocks, keep=single)

    def repeat_along(self, axis: int, times: int) -> LogScale:
        """Every position along an axis repeated, neighbors together."""
        axis = self.axis(axis)
        return self.take(axis, np.repeat(np.arange(self.shape[axis]), times))


def as_power(value: float | Fraction) -> Power:
    """An exponent as an exact number: 0.3333333333333333 is meant to be one third."""
    if isinstance(value, int | Fraction):
        return plain(Fraction(value))
    simple = Fraction(value).limit_denominator(1000)
    return plain(simple if abs(float(simple) - value) < 1e-14 else Fraction(value))


def concatenate(scales: Sequence[LogScale], axis: int) -> LogScale:
    """Of tensors laid one after the other along an axis."""
    axis = scales[0].axis(axis)
    ends = np.cumsum([scale.shape[axis] for scale in scales])
    terms = []
    for scale, end in zip(scales, ends, strict=True):
        for term in scale.terms:
            sizes = list(term.labels.shape)
            sizes[axis] = ends[-1]
            labels = np.full(sizes, PINNED)
            labels[(slice(None),) * axis + (slice(end - scale.shape[axis], end),)] = term.labels
            terms.append(_compressed(Term(term.power, labels, term.axes | {axis}), keep=set()))
    shape = (*scales[0].shape[:axis], int(ends[-1]), *scales[0].shape[axis + 1 :])
    return LogScale(shape, tuple(terms))


def plain(power: Power) -> Power:
    """A whole number where the power is one: much faster than a fraction."""
    return int(power) if Fraction(power).denominator == 1 else power


def _merged(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Terms with the same labels become one, with the sum of their powers."""
    merged: list[Term] = []
    for term in terms:
        for k, other in enumerate(merged):
            if term.axes == other.axes and np.array_equal(term.labels, other.labels):
                merged[k] = Term(plain(term.power + other.power), other.labels, other.axes)
                break
        else:
            merged.append(term)
    return tuple(term for term in merged if term.power != 0)


def _blocks(old: Shape, new: Shape) -> list[Block]:
    """The finest pairing of runs of old axes with runs of new axes of the same total size."""
    blocks: list[Block] = []
    i = j = 0
    while i < len(old) or j < len(new):
        stop, end = i + 1, j + 1
        if old[i:stop] != new[j:end]:
            if old[i:stop] == (1,):
                end = j
            elif new[j:end] == (1,):
                stop = i
            while (a := math.prod(old[i:stop])) != (b := math.prod(new[j:end])):
                stop, end = stop + (a < b), end + (a > b)
        blocks.append(([*range(i, stop)], [*range(j, end)]))
        i, j = stop, end
    return blocks


def _reshaped(term: Term, old: Shape, new: Shape, blocks: Sequence[Block], keep: set[int]) -> Term:
    """Spread the labels over every block of axes on which they depend, then regroup them."""
    spread = list(term.labels.shape)
    target = [1] * len(new)
    axes: set[int] = set()
    for left, right in blocks:
        if not term.axes & set(left):
            continue
        if len(left) == len(right) == 1:
            keep.update(right)
        axes.update(right)
        for a in left:
            spread[a] = old[a]
        for b in right:
            target[b] = new[b]
    labels = np.broadcast_to(term.labels, spread).reshape(target)
    return _compressed(Term(term.power, labels, frozenset(axes)), keep=keep)


def _compressed(term: Term, *, keep: set[int]) -> Term:
    """Without the axes along which the labels turn out to be all the same."""
    labels, axes = term.labels, set(term.axes)
    for axis in sorted(term.axes - keep):
        first = labels.take([0], axis)
        if np.array_equal(np.broadcast_to(first, labels.shape), labels):
            labels = first
            axes.discard(axis)
    return Term(term.power, labels, frozenset(axes))
