"""Blocks: groups that share no weight, so that a sweep may move all their channels at once.

Layers in a chain fall into two blocks (first, third, ... and second, fourth, ...). Moving a block
at once is the same as moving its channels one after the other; it only takes fewer, longer
operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from nonvacuous.rescaling.terms import Terms


@dataclass(frozen=True)
class Contact:
    """One side of one term that touches a block, and the channels of the block it touches."""

    term: int
    side: int
    channels: slice
    is_last: bool  # no other side of the term is moved later in a sweep


@dataclass(frozen=True, eq=False)
class Block:
    """Some groups side by side, as one vector of channels.

    ``places`` says where each channel is in the vector of log-scales, ``owners`` which group it
    belongs to, ``slices`` where each group lies in the block. ``coupled`` groups have terms that
    hold two of their channels; they are blocks of their own.
    """

    groups: tuple[int, ...]
    slices: tuple[slice, ...]
    places: Tensor
    owners: Tensor
    counts: Tensor
    touched: Tensor
    reach: float
    coupled: bool
    contacts: tuple[Contact, ...]


def find_blocks(terms: Terms) -> tuple[Block, ...]:
    """Put each group into the first block with which it shares no term."""
    neighbors: list[set[int]] = [set() for _ in terms.sizes]
    for term in terms.terms:
        groups = {side.group for side in term.sides}
        for group in groups:
            neighbors[group] |= groups - {group}
    members: list[list[int]] = []
    keys: list[tuple[float, bool]] = []
    for group in range(len(terms.sizes)):
        key = (terms.reach[group], terms.coupled[group])
        for block, other in zip(members, keys, strict=True):
            if key == other and not key[1] and not neighbors[group] & set(block):
                block.append(group)
                break
        else:
            members.append([group])
            keys.append(key)
    turn = {group: number for number, block in enumerate(members) for group in block}
    return tuple(_block(terms, tuple(block), turn) for block in members)


def _block(terms: Terms, groups: tuple[int, ...], turn: dict[int, int]) -> Block:
    ends = np.cumsum([terms.sizes[group] for group in groups])
    slices = tuple(
        slice(int(end) - terms.sizes[group], int(end))
        for group, end in zip(groups, ends, strict=True)
    )
    places = np.concatenate(
        [np.arange(terms.starts[g], terms.starts[g] + terms.sizes[g]) for g in groups]
    )
    owners = np.repeat(np.array(groups), [terms.sizes[group] for group in groups])
    contacts = []
    for group, channels in zip(groups, slices, strict=True):
        for number, side in terms.incident[group]:
            turns = [turn[other.group] for other in terms.terms[number].sides]
            is_last = turns.index(max(turns)) == side
            contacts.append(Contact(number, side, channels, is_last))
    where = torch.from_numpy(places).to(terms.device)
    return Block(
        groups=groups,
        slices=slices,
        places=where,
        owners=torch.from_numpy(owners).to(terms.device),
        counts=terms.counts[where],
        touched=terms.touched[where],
        reach=terms.reach[groups[0]],
        coupled=terms.coupled[groups[0]],
        contacts=tuple(contacts),
    )
