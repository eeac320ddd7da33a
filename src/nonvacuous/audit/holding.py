"""Bound examples that a network brought along before any training, found by content.

A function that builds a network may read the data: references that inputs are compared with, the
centers of radial functions. The seed then decides which examples are held, so nothing is the same
from every seed, and a network that answers well only near the examples it holds knows no label.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nonvacuous.data import Examples
from nonvacuous.rules.digests import fixed_tensors

#: So many may be there by chance.
FEW = 3
#: Inputs of fewer numbers are compared as they are: with so few, one scale and one shift make most
#: of them equal.
_SCALED_FROM = 8
#: How far rows may be from inputs whose mean is 0 and whose norm is 1, by rounding.
_ROUNDING = 1e-5
_EXACT = 1e-6  # as a part of the largest number
#: Inputs at a time, and rows that one input is compared with.
_CHUNK, _NEAR = 4096, 64


@dataclass(frozen=True)
class Held:
    """How many different examples a tensor holds."""

    tensor: str
    examples: int


def held_examples(network: nn.Module, examples: Examples) -> Held | None:
    """The tensor that holds most of these examples; None where none holds more than a few.

    Rows and columns of tensors are compared with inputs, up to a scale and a shift of each.
    """
    size = examples.inputs[0].numel()
    most: Held | None = None
    for name, tensor in fixed_tensors(network).items():
        rows = _rows(tensor, size)
        if rows is None or len(rows) <= FEW:
            continue
        count = _shared(rows, examples.inputs, torch.arange(size))
        if count <= FEW:
            continue
        # Codes of few values, such as one-hot ones, meet inputs of few values in any order of the
        # columns; what comes from the examples does not.
        order = torch.randperm(size, generator=torch.Generator().manual_seed(0))
        if bool((order == torch.arange(size)).all()):  # as it may be of two or three
            order = order.flip(0)
        if 2 * _shared(rows, examples.inputs, order) < count:
            most = Held(name, count) if most is None or count > most.examples else most
    return most


def _rows(tensor: Tensor, size: int) -> Tensor | None:
    """The tensor as rows of as many numbers as an input has, where its shape says so."""
    numbers, trailing = tensor.detach().cpu(), 1
    if numbers.numel() <= size:
        return None
    for length in reversed(numbers.shape):
        trailing *= length
        if trailing == size:
            return _compared(numbers.reshape(-1, size))
    if numbers.ndim == 2 and len(numbers) == size:
        return _compared(numbers.T)
    return None


def _compared(rows: Tensor) -> Tensor:
    """Rows as they are compared: without scale and shift where inputs are long enough."""
    rows = torch.nan_to_num(rows.double())
    if rows.shape[1] < _SCALED_FROM:
        return rows
    return nn.functional.normalize(rows - rows.mean(dim=1, keepdim=True), dim=1)


def _shared(rows: Tensor, inputs: Tensor, order: Tensor) -> int:
    """How many different rows are inputs, whose numbers are put into this order before."""
    size = rows.shape[1]
    # What is constant is equal, up to scale and shift, to all that is.
    rows = rows[rows.norm(dim=1) > _ROUNDING] if size >= _SCALED_FROM else rows
    if not len(rows):
        return 0
    far = _ROUNDING if size >= _SCALED_FROM else _EXACT * float(rows.abs().max())
    direction = torch.randn(size, generator=torch.Generator().manual_seed(1)).double()
    # Rows that are equal lie at one place along any direction, where next to no others lie.
    places, by_place = (rows @ direction).sort()
    rows, reach = rows[by_place], far * float(direction.norm())
    met: set[int] = set()
    for chunk in inputs.split(_CHUNK):
        compared = _compared(chunk.flatten(1).cpu())[:, order]
        own = compared @ direction
        first = torch.searchsorted(places, own - reach)
        last = torch.searchsorted(places, own + reach, right=True)
        for position in torch.nonzero(last > first).flatten().tolist():
            start, stop = int(first[position]), int(last[position])
            near = rows[start : min(stop, start + _NEAR)] - compared[position]
            equal = torch.nonzero(near.norm(dim=1) <= far).flatten()
            met |= {start + int(equal[0])} if len(equal) else set()
    return len(met)
