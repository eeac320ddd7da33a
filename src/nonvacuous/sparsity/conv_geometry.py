"""Which positions of an earlier layer one unit of a later layer depends on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nonvacuous.sparsity.conv_chain import ConvChain, Pair


@dataclass(frozen=True)
class Field:
    """A box that moves over the positions of a layer: its size, stride and padding."""

    size: Pair
    stride: Pair
    padding: Pair

    def then(self, size: Pair, stride: Pair, padding: Pair) -> Field:
        """The box of a unit that reads boxes."""
        (h, w), (a, b), (p, q) = self.size, self.stride, self.padding
        return Field(
            (h + (size[0] - 1) * a, w + (size[1] - 1) * b),
            (a * stride[0], b * stride[1]),
            (p + padding[0] * a, q + padding[1] * b),
        )

    def sums(self, values: Tensor) -> Tensor:
        """Sums over the boxes of (examples, height, width); (examples, boxes)."""
        ones = torch.ones(1, 1, *self.size, dtype=values.dtype, device=values.device)
        found = functional.conv2d(values[:, None], ones, None, self.stride, self.padding)
        return found.flatten(1)


def receptive_field(chain: ConvChain, earlier: int, later: int) -> Field:
    """The box of positions of layer ``earlier`` that a unit of layer ``later`` depends on."""
    field = Field((1, 1), (1, 1), (0, 0))
    for index in range(earlier, later):
        pool, layer = chain.stages[index].pool, chain.stages[index + 1].layer
        field = field.then(pool.kernel, pool.stride, pool.padding)
        field = field.then(layer.reach, layer.stride, layer.padding)
    return field
