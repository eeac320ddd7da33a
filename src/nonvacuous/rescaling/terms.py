"""What the KL along an orbit depends on, once every tensor has been summed where it may be.

With log-scales ``s``, the factor of a weight is exp(y), where y adds up ``power * s`` over the
channels that touch the weight. Up to a constant, the KL is a sum over weights of

    squares * exp(2 y) / 2  -  products * exp(y)  -  y,
    squares = (scale^2 + mean^2) / prior_scale^2,   products = mean * prior_mean / prior_scale^2.

Weights with the same y (the taps of a kernel, the pixels of a channel after flattening) share the
exponentials, so their squares and products are summed once. What remains is small: a dense
matrix where every channel of one group meets every channel of another, or one entry per
combination of channels that occurs, for everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Contact(NamedTuple):
    """One side of one term that touches a block."""

    term: int
    side: int
    is_last: bool  # no other side of the term is moved later in a sweep


@dataclass(frozen=True, eq=False)
class Block:
    """Groups that share no weight, so that a sweep may move all their channels at once.

    Layers in a chain fall into two blocks (first, third, ... and second, fourth, ...). Moving a
    block at once is the same as moving its channels one after the other, in fewer operations.
    ``positions`` are those of the channels in log_scales. ``coupled`` groups have terms that hold
    two of their channels; they are blocks of their own.
    """

    groups: tuple[int, ...]
    positions: Tensor
    reach: float
    coupled: bool
    contacts: tuple[Contact, ...]


def _block(terms: Terms, groups: tuple[int, ...], turn: dict[int, int]) -> Block:
    contacts = []
    for group in groups:
        for number, term in enumerate(terms.terms):
            turns = [turn[side.group] for side in term.sides]
            contacts += [
                Contact(number, side, is_last=turns.index(max(turns)) == side)
                for side, where in enumerate(term.sides)
                if where.group == group
            ]
    channels = torch.arange(terms.size, device=terms.device)
    return Block(
        groups=groups,
        positions=torch.cat([channels[terms.channels[group]] for group in groups]),
        reach=terms.reach[groups[0]],
        coupled=terms.coupled[groups[0]],
        contacts=tuple(contacts),
    )


@dataclass(frozen=True, eq=False)
class Collector:
    """Sums the entries of a vector that belong to the same channel, in a fixed order.

    ``table`` lists, for every channel that occurs, where its entries are; unused cells point
    one past the end, at a zero. Adding up a table gives the same bits on every run, which
    scattered additions on a GPU do not.
    """

    channels: Tensor
    table: Tensor

    @classmethod
    def of(cls, channels: np.ndarray, device: torch.device) -> Collector:
        """Collect entry i into channel ``channels[i]``."""
        distinct, inverse, counts = np.unique(channels, return_inverse=True, return_counts=True)
        order = np.argsort(inverse, kind="stable")
        table = np.full((len(distinct), int(counts.max())), len(channels), dtype=np.int64)
        starts = np.cumsum(counts) - counts
        table[inverse[order], np.arange(len(channels)) - np.repeat(starts, counts)] = order
        return cls(
            channels=torch.from_numpy(distinct).to(device),
            table=torch.from_numpy(table).to(device),
        )

    def collect(self, values: Tensor) -> Tensor:
        """Sum over the first axis of ``values``, channel by channel."""
        if self.table.shape[1] == 1:
            return values[self.table[:, 0]]
        padded = torch.cat([values, values.new_zeros((1, *values.shape[1:]))])
        return padded[self.table].sum(1)


@dataclass(frozen=True, eq=False)
class Side:
    """Where a group of channels touches a term, and with which power.

    ``positions`` are those of the channels inside their group, one for each row (or entry), and
    ``collector`` adds up the rows of each; None means all channels in order.
    """

    group: int
    power: float
    positions: Tensor | None = None
    collector: Collector | None = None

    def add_to(self, target: Tensor, rows: Tensor) -> None:
        """Add one value for each row of the term to the per-channel vector of the group."""
        if self.collector is None:
            target += rows
        else:
            target[self.collector.channels] += self.collector.collect(rows)


@dataclass(frozen=True, eq=False)
class Term:
    """Sums of one tensor over the weights that the same channels of some groups touch.

    One entry for each combination of channels that occurs; any number of sides.
    """

    tensor: str
    sides: tuple[Side, ...]
    squares: Tensor
    products: Tensor | None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of sums that it has; see :meth:`values`."""
        return ("squares",) if self.products is None else ("squares", "products", "magnitudes")

    def values(self, kind: str) -> Tensor:
        """The ``squares``, the ``products``, or the "magnitudes": their absolute values."""
        if kind == "squares":
            return self.squares
        assert self.products is not None
        return self.products if kind == "products" else self.products.abs()

    def seen_from(self, side: int, factors: Sequence[Tensor], *, kind: str) -> Tensor:
        """For each row of a side, the sum of its terms without the row's own factor.

        ``factors`` are those of the other sides, spread over their rows.
        """
        values = self.values(kind)
        for factor in factors:
            values = values * factor
        return values


class Matrix(Term):
    """Every channel of one side meets every channel of the other, its second."""

    def seen_from(self, side: int, factors: Sequence[Tensor], *, kind: str) -> Tensor:
        matrix = self.values(kind)
        return torch.mv(matrix if side == 0 else matrix.T, factors[0])


@dataclass(frozen=True, eq=False)
class Terms:
    """The collapsed problem: minimize the sum of all terms minus ``counts @ log_scales``.

    ``channels`` are those of each group in log_scales. ``counts[v]`` adds up ``power`` over the
    weights that channel v touches (weights in minus weights out), ``touched[v]`` adds up
    ``|power|``. For each tensor, ``weights`` is the number of its weights, ``remainders`` the part
    of its squared distance from the prior means (in prior scales) that no scale can change, and
    ``log_variances`` the sum of ln(scale^2 / prior_scale^2): with these three the sum of the terms
    becomes the KL itself.
    """

    channels: tuple[slice, ...]
    terms: tuple[Term, ...]
    counts: Tensor
    touched: Tensor
    weights: dict[str, int]
    remainders: dict[str, float]
    log_variances: dict[str, float]

    @property
    def size(self) -> int:
        return len(self.counts)

    @property
    def device(self) -> torch.device:
        return self.counts.device

    @property
    def unmoved(self) -> Tensor:
        """The log-scales of the network as it was given."""
        return torch.zeros_like(self.counts)

    @cached_property
    def centered(self) -> bool:
        """Whether the prior means are zero wherever a scale reaches: the convex case."""
        return all(term.products is None for term in self.terms)

    def _by_group(self, number: Callable[[Side], float]) -> np.ndarray:
        """One row for each term: the sum over its sides, group by group."""
        rows = np.zeros((len(self.terms), len(self.channels)))
        for row, term in zip(rows, self.terms, strict=True):
            for side in term.sides:
                row[side.group] += number(side)
        return rows

    @cached_property
    def met(self) -> np.ndarray:
        """How many sides of each term (rows) lie in each group (columns)."""
        return self._by_group(lambda side: 1.0)

    @cached_property
    def reach(self) -> tuple[float, ...]:
        """For each group, the largest total power with which one term meets it.

        This is 1 for ordinary layers: no term holds two channels of the group, so all channels
        may be updated at once. A layer that reads and writes the same stream gives 2.
        """
        powers = self._by_group(lambda side: abs(side.power))
        return tuple(powers.max(axis=0, initial=1.0).tolist())

    @cached_property
    def coupled(self) -> tuple[bool, ...]:
        """For each group, whether some term holds two of its channels."""
        return tuple(bool(column.any()) for column in self.met.T > 1)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """In the order of a sweep; a group is in the first block with which it shares no term."""
        meetings = self.met.T @ self.met > 0
        members: list[list[int]] = []
        for group, (reach, coupled) in enumerate(zip(self.reach, self.coupled, strict=True)):
            for block in () if coupled else members:
                alike = self.reach[block[0]] == reach and not self.coupled[block[0]]
                if alike and not meetings[group, block].any():
                    block.append(group)
                    break
            else:
                members.append([group])
        turn = {group: number for number, block in enumerate(members) for group in block}
        return tuple(_block(self, tuple(block), turn) for block in members)

    @cached_property
    def exponents(self) -> np.ndarray:
        """One row for each term: its total power for each group, when all its channels move."""
        return self._by_group(lambda side: side.power)

    @cached_property
    def group_counts(self) -> np.ndarray:
        """``counts`` summed over each group."""
        counts = self.counts.cpu().numpy()
        return np.array([counts[channels].sum() for channels in self.channels])
