"""Layers replaced, in the copy that is trained, by others that compute the same function.

None of them has parameters, so the names in a network's state stay what they were.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BandedResponseNorm(nn.Module):
    """`nn.LocalResponseNorm` whose sums over neighboring channels are one matrix product.

    Torch sums by three-dimensional pooling, which takes most of a small network's step.
    """

    def __init__(self, layer: nn.LocalResponseNorm) -> None:
        super().__init__()
        self._size, self._alpha, self._beta, self._k = layer.size, layer.alpha, layer.beta, layer.k
        self._band: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs over (k + alpha * mean square of `size` neighboring channels) ** beta."""
        # Along the last axis: that is how channels-last images lie in memory.
        last = inputs.movedim(1, -1)
        sums = last.square() @ self._neighbors(inputs)
        scale = (sums * (self._alpha / self._size) + self._k).pow(-self._beta)
        normalized: Tensor = (last * scale).movedim(-1, 1)
        return normalized

    def _neighbors(self, inputs: Tensor) -> Tensor:
        """A square matrix of zeros and ones: column c adds up the channels around c."""
        band = self._band
        if band is None or band.device != inputs.device or band.dtype != inputs.dtype:
            places = torch.arange(inputs.shape[1], device=inputs.device)
            distance = places[:, None] - places
            near = (distance >= -(self._size // 2)) & (distance <= (self._size - 1) // 2)
            self._band = band = near.to(inputs.dtype)
        return band


def with_faster_layers(module: nn.Module) -> nn.Module:
    """The module with each `nn.LocalResponseNorm` replaced."""
    for name, layer in list(module.named_modules()):
        if type(layer) is nn.LocalResponseNorm:
            module = replaced(module, name, BandedResponseNorm(layer))
    return module


def replaced(module: nn.Module, name: str, new: nn.Module) -> nn.Module:
    """The module with the layer of this dotted name replaced; the empty name is the module."""
    if not name:
        return new
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, new)
    return module
