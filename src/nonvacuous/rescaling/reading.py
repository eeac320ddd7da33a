"""Posterior and prior side by side, read tensor by tensor in chunks of float64.

The same tensors are read several times (the KL before, the sums, the KL after), so what can be
found out once is found out here: on a GPU every question that the processor asks costs a wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian

# A chunk and its handful of temporaries stay in a processor's cache; a GPU wants large ones.
_CHUNK = {"cpu": 1 << 15, "cuda": 1 << 24}


@dataclass(frozen=True, eq=False)
class Pieces:
    """One chunk of a tensor, in float64. Views of what was given: not to be written to.

    A field is a single number where all its entries are the same.
    """

    mean: Tensor
    scale: Tensor
    prior_mean: Tensor
    prior_scale: Tensor


@dataclass(frozen=True, eq=False)
class Reading:
    """What a posterior and a prior say about each tensor, ready to be read."""

    device: torch.device
    shapes: dict[str, tuple[int, ...]]
    tensors: dict[str, tuple[Tensor, Tensor, Tensor, Tensor]]
    centered: dict[str, bool]

    @classmethod
    def of(cls, Q: DiagonalGaussian, P: DiagonalGaussian) -> Reading:
        """Find out which tensors hold one number only, with a single transfer to the processor."""
        names = [name for name in Q.names if Q.means[name].numel()]
        sources = (Q.scales, P.means, P.scales)
        device = workplace(Q.device)
        ends = [
            torch.stack(torch.aminmax(source[name])).to(device).to(torch.float64)
            for name in names
            for source in sources
        ]
        found = torch.stack(ends).cpu().numpy().reshape(len(names), len(sources), 2)
        tensors, centered = {}, {}
        for name, rows in zip(names, found, strict=True):
            scale, prior_mean, prior_scale = (
                torch.tensor(low, dtype=torch.float64, device=device)
                if low == high
                else source[name]
                for source, (low, high) in zip(sources, rows, strict=True)
            )
            tensors[name] = (Q.means[name], scale, prior_mean, prior_scale)
            centered[name] = not rows[1].any()
        shapes = {name: tuple(Q.means[name].shape) for name in Q.names}
        return cls(device=device, shapes=shapes, tensors=tensors, centered=centered)

    def chunks(
        self, name: str, *, axis: int | None = None
    ) -> Iterator[tuple[tuple[slice, ...], Pieces]]:
        """The tensor in pieces, each with the place that it was taken from."""
        for part in chunks(self.shapes[name], self.device, axis=axis):
            yield part, Pieces(*(self._piece(t, part) for t in self.tensors[name]))

    def _piece(self, tensor: Tensor, part: tuple[slice, ...]) -> Tensor:
        piece = tensor[part] if tensor.ndim else tensor
        return piece.to(self.device).to(torch.float64)


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
