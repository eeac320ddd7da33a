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
from nonvacuous.errors import BadInput
from nonvacuous.networks.scale_groups import ScaleGroups

# A chunk and its handful of temporaries stay in a processor's cache; a GPU wants large ones.
_CHUNK = {"cpu": 1 << 15, "cuda": 1 << 24}
Numbers = tuple[float | None, float | None, float | None]


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
    """What a posterior and a prior say about each tensor, ready to be read.

    ``numbers`` holds the scale, the prior mean and the prior scale of a tensor wherever all its
    weights share one; None where they differ.
    """

    device: torch.device
    shapes: dict[str, tuple[int, ...]]
    tensors: dict[str, tuple[Tensor, Tensor, Tensor, Tensor]]
    numbers: dict[str, Numbers]
    centered: dict[str, bool]

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
        tensors, numbers, centered = {}, {}, {}
        for name, there, here in zip(names, table, table.tolist(), strict=True):
            # A number that is needed again as a tensor is already where the sums run.
            scale, prior_mean, prior_scale = (
                row[0] if low == high else source[name]
                for source, row, (low, high) in zip(sources, there, here, strict=True)
            )
            tensors[name] = (Q.means[name], scale, prior_mean, prior_scale)
            equal = [low if low == high else None for low, high in here]
            numbers[name] = (equal[0], equal[1], equal[2])
            centered[name] = equal[1] == 0
        shapes = {name: tuple(Q.means[name].shape) for name in Q.names}
        return cls(
            device=device, shapes=shapes, tensors=tensors, numbers=numbers, centered=centered
        )

    def chunks(
        self, name: str, *, axis: int | None = None, shape: tuple[int, ...] | None = None
    ) -> Iterator[tuple[tuple[slice, ...], Pieces]]:
        """The tensor in pieces, each with the place that it was taken from.

        ``shape`` is another shape to read it in, with the same entries in the same order.
        """
        tensors = self.tensors[name]
        if shape is not None:
            tensors = tuple(t.reshape(shape) if t.ndim else t for t in tensors)  # type: ignore[assignment]
        for part in chunks(shape or self.shapes[name], self.device, axis=axis):
            yield part, Pieces(*(self._piece(t, part) for t in tensors))

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


# Refusals shared by this room: each says what is wrong, where, and what to do next.


def check_covered(Q: DiagonalGaussian, P: DiagonalGaussian | None, groups: ScaleGroups) -> None:
    """Refuse unless posterior, prior and groups speak of the same tensors and shapes."""
    parties = [("the posterior", Q)] + ([("the prior", P)] if P is not None else [])
    for label, distribution in parties:
        for name in distribution.means.keys() ^ groups.exponents.keys():
            raise BadInput(
                f"tensor {name!r} is in {label} or in the scale groups but not in both; build "
                "all of them from the same module (scale_groups(capture(module, example)))"
            )
        for name, mean in distribution.means.items():
            expected = tuple(groups.shapes[name])
            if tuple(mean.shape) != expected:
                raise BadInput(
                    f"tensor {name!r} has shape {tuple(mean.shape)} in {label} but {expected} in "
                    "the scale groups; build all of them from the same module"
                )
