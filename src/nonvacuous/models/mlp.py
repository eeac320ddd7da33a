"""The multilayer perceptron: linear layers with ReLU between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn


class Mlp(nn.Module):
    """Flatten, then a linear layer and ReLU per width, then a linear layer to the classes."""

    def __init__(
        self,
        example_shape: Sequence[int],
        classes: int,
        *,
        widths: Sequence[int],
        bias: bool = True,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        incoming = math.prod(example_shape)
        for width in widths:
            layers += [nn.Linear(incoming, width, bias=bias), nn.ReLU()]
            incoming = width
        layers.append(nn.Linear(incoming, classes, bias=bias))
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class scores of shape (examples, classes)."""
        scores: Tensor = self.layers(inputs.flatten(1))
        return scores
