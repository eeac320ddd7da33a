"""Posterior and prior side by side, read tensor by tensor in chunks of float64, and summed.

The same tensors are read several times (the KL before, the sums, the KL after), so what can be
asked once is asked here: on a GPU every question of the processor costs a wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.gaussian import check_same_tensors
from nonvacuous.networks.scale_groups import ScaleGroups

# A chunk and its handful of temporaries stay in a processor's cache; a GPU wants large ones.
_CHUNK = {"cpu": 1 << 15, "cuda": 1 << 24}


@dataclass(frozen=True, eq=False)
class Reading:
    """What a posterior and a prior say about each tensor, ready to be read.

    ``numbers`` holds the scale, the prior mean and the prior scale of a tensor wherever all its
    weights share one; None where they differ.
    """

    device: torch.device
    shapes: dict[str, tuple[int, ...]]
    tensors: dict[str, tuple[Tensor, Tensor, Tensor, Tensor]]
    numbers: dict[str, list[float | None]]

    def centered(self, name: str) -> bool:
        """Whether all prior means of a tensor are zero."""
        return self.numbers[name][1] == 0

    @classmethod
    def of(cls, Q: DiagonalGaussian, P: DiagonalGaussian) -> Reading:
        """Find out which tensors hold one number only, with a single transfer to the processor."""
        names = [name for name in Q.names if Q.means[name].numel()]
        sources = (Q.scales, P.means, P.scales)
        device = workplace(Q.device)
        ends = [
            end.to(device)
            for name in names
            for source in sources
            for end in torch.aminmax(source[name])
        ]
        table = torch.stack(ends).to(torch.float64).view(len(names), len(sources), 2)
        tensors, numbers = {}, {}
        for name, there, here in zip(names, table, table.tolist(), strict=True):
            # A number that is needed again as a tensor is already where the sums run.
            scale, prior_mean, prior_scale = (
                row[0] if low == high else source[name]
                for source, row, (low, high) in zip(sources, there, here, strict=True)
            )
            tensors[name] = (Q.means[name], scale, prior_mean, prior_scale)
            numbers[name] = [low if low == high else None for low, high in here]
        shapes = {name: tuple(Q.means[name].shape) for name in Q.names}
        return cls(device=device, shapes=shapes, tensors=tensors, numbers=numbers)

    def chunks(
        self, name: str, *, axis: int | None = None
    ) -> Iterator[tuple[tuple[slice, ...], list[Tensor]]]:
        """The tensor in pieces, each with the slices that it was taken from.

        A piece is the mean, the scale, the prior mean and the prior scale, in float64: views of
        what was given, not to be written to, and single numbers where all entries are the same.
        """
        for part in chunks(self.shapes[name], self.device, axis=axis):
            pieces = (tensor[part] if tensor.ndim else tensor for tensor in self.tensors[name])
            yield part, [piece.to(self.device).to(torch.float64) for piece in pieces]


def chunks(
    shape: tuple[int, ...], device: torch.device, *, axis: int | None = None
) -> Iterator[tuple[slice, ...]]:
    """Slices along one axis that cover a tensor of this shape in pieces of bounded size."""
    if not shape:
        yield ()
        return
    if axis is None:
        axis = 0 if math.prod(shape[1:]) <= 1 << 22 else int(np.argmax(shape))
    limit = _CHUNK.get(device.type, 1 << 20)
    step = max(1, limit // max(1, math.prod(shape) // max(1, shape[axis])))
    for start in range(0, shape[axis], step):
        yield (*(slice(None),) * axis, slice(start, start + step))


def workplace(device: torch.device) -> torch.device:
    """Where sums run: beside the tensors, except that Apple's GPUs have no float64."""
    return torch.device("cpu") if device.type == "mps" else device


# Chunks for the common case, which needs one temporary only.
_ROWS = {"cpu": 1 << 16, "cuda": 1 << 25}
# Squares of single-precision numbers fit float64 with room to spare on both sides; after a
# division by a squared prior scale between these two they still do.
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_SCALES = (1e-60, 1e60)


@dataclass(frozen=True, eq=False)
class Sums:
    """Squares and products of a tensor, summed over the axes that no scale touches."""

    squares: Tensor
    products: Tensor | None

    def map(self, change: Callable[[Tensor], Tensor]) -> Sums:
        """The same change applied to the squares and, where there are any, to the products."""
        products = None if self.products is None else change(self.products)
        return Sums(change(self.squares), products)


def row_sums(reading: Reading, name: str, axes: list[int]) -> tuple[Sums, Tensor]:
    """Sum one tensor over all axes but ``axes``; and two sums over all its weights.

    The two are those of (prior mean / prior scale)^2 and of ln(scale^2 / prior scale^2).
    """
    scale, _, prior_scale = reading.numbers[name]
    leading = axes == list(range(len(axes))) and bool(axes)
    if (
        leading
        and reading.centered(name)
        and reading.tensors[name][0].dtype in _NARROW
        and scale is not None
        and prior_scale is not None
        and _SCALES[0] < prior_scale < _SCALES[1]
    ):
        return _uniform(reading, name, len(axes), scale, prior_scale)
    return _any(reading, name, axes)


def _uniform(
    reading: Reading, name: str, kept: int, scale: float, prior_scale: float
) -> tuple[Sums, Tensor]:
    """One scale, one prior scale, prior means zero: only the means have to be read."""
    shape, device = reading.shapes[name], reading.device
    rows, width = math.prod(shape[:kept]), math.prod(shape[kept:])
    variance = (scale / prior_scale) ** 2
    precision = 1 / prior_scale**2
    squares = torch.empty(rows, dtype=torch.float64, device=device)
    mean = reading.tensors[name][0].reshape(rows, width)
    step = max(1, _ROWS.get(device.type, 1 << 20) // width)
    start = torch.tensor(width * variance, dtype=torch.float64)
    factors = torch.full((width,), precision, dtype=torch.float64)
    for first in range(0, rows, step):
        wide = mean[first : first + step].to(device).to(torch.float64).square_()
        target = squares[first : first + step]
        if device.type == "cpu":
            # A product with a constant vector sums short rows faster than a sum does.
            torch.addmv(start, wide, factors, out=target)
        else:
            torch.sum(wide, 1, out=target)
    if device.type != "cpu":
        squares.mul_(precision).add_(width * variance)
    logarithm = 2 * math.log(scale / prior_scale) * math.prod(shape)
    numbers = torch.tensor([0.0, logarithm], dtype=torch.float64, device=device)
    return Sums(squares.view(shape[:kept]), None), numbers


def _any(reading: Reading, name: str, axes: list[int]) -> tuple[Sums, Tensor]:
    """Any scales and any prior means, different for every weight."""
    shape, device = reading.shapes[name], reading.device
    summed = [axis for axis in range(len(shape)) if axis not in axes]
    kept = [shape[axis] for axis in axes]
    squares = torch.zeros(kept, dtype=torch.float64, device=device)
    products = None if reading.centered(name) else torch.zeros_like(squares)
    numbers = torch.zeros(2, dtype=torch.float64, device=device)
    for part, (mean, scale, prior_mean, prior_scale) in reading.chunks(name, axis=0):
        inverse = prior_scale.reciprocal()
        mean = mean * inverse
        target = part if 0 in axes else ...
        if products is not None:
            prior_mean = prior_mean * inverse
            products[target] += _sum_over(mean * prior_mean, summed)
            repeats = mean.numel() / prior_mean.numel()
            numbers[0] += prior_mean.square().sum() * repeats
        variance = (scale * inverse).square()
        # A scale that is the same for all weights stands for all of them.
        repeats = mean.numel() / variance.numel()
        numbers[1] += variance.log().sum() * repeats
        squares[target] += _sum_over(mean.square_().add_(variance), summed)
    return Sums(squares, products), numbers


def _sum_over(values: Tensor, axes: list[int]) -> Tensor:
    return values.sum(axes) if axes else values


def check_covered(Q: DiagonalGaussian, P: DiagonalGaussian | None, groups: ScaleGroups) -> None:
    """Refuse unless posterior, prior and groups speak of the same tensors and shapes."""
    check_same_tensors("the posterior", Q.means, "the network of the groups", groups.shapes)
    if P is not None:
        check_same_tensors("the prior", P.means, "the network of the groups", groups.shapes)
