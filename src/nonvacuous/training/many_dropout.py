"""Layers that a network is trained with in place of its own, which compute the same functions.

Dropout has draws that belong to a job, so that every method of training drops the same units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.training.many_material import uniforms


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
            channels = torch.arange(inputs.shape[1], device=inputs.device)
            distance = channels[:, None] - channels
            near = (distance >= -(self._size // 2)) & (distance <= (self._size - 1) // 2)
            self._band = band = near.to(inputs.dtype)
        return band


def replaced(module: nn.Module, name: str, new: nn.Module) -> nn.Module:
    """The module with the layer of this dotted name replaced; the empty name is the module."""
    if not name:
        return new
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, new)
    return module


_FIRST_PURPOSE = 1000
_BY_CHANNEL = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


@dataclass(eq=False)
class Chance:
    """What the draws depend on: set before each forward pass, shared by all layers of a network."""

    seed: Tensor
    step: Tensor
    rate: Tensor


class SeededDropout(nn.Module):
    """As `torch.nn.Dropout` (or, by channel, `Dropout2d`), drawing by seed and step."""

    def __init__(self, drop: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._drop = drop

    def forward(self, values: Tensor) -> Tensor:
        """The values in evaluation; in training some are 0 and the others larger."""
        return self._drop(values) if self.training else values


def dropped(
    values: Tensor,
    chance: Chance,
    purpose: int,
    rate: Tensor | float,
    *,
    by_channel: bool = False,
) -> Tensor:
    """Set values to 0 with probability `rate` and divide the others by 1 - rate.

    With several seeds the first axis of the values belongs to them.
    """
    shape = tuple(values.shape)[chance.seed.ndim :]
    if by_channel:
        shape = shape[:2] + (1,) * (len(shape) - 2)
    drawn = uniforms(chance.seed, chance.step, _FIRST_PURPOSE + purpose, shape)
    kept = torch.where(drawn >= rate, 1.0 / (1.0 - rate), 0.0)
    return values * kept.to(values.dtype)


def with_own_layers(module: nn.Module, chance: Chance, *, everywhere: bool) -> nn.Module:
    """The module with layers of this file and, if told `everywhere`, with the job's own dropout.

    The job's own stands in front of every linear layer, except where that is the first layer with
    weights: the inputs themselves are not dropped. None of these layers has parameters, so that
    the names in the network's state stay what they were.
    """
    for purpose, (name, layer) in enumerate(list(module.named_modules())):
        if isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout):
            raise BadInput(
                f"The network's layer {name} is {type(layer).__name__}, whose draws cannot be "
                "made the same alone and beside other networks. Use nn.Dropout, or train the "
                "networks one by one with nonvacuous.training.erm.train."
            )
        if type(layer) is nn.Dropout or isinstance(layer, _BY_CHANNEL):
            by_channel = isinstance(layer, _BY_CHANNEL)
            drop = partial(
                dropped, chance=chance, purpose=purpose, rate=layer.p, by_channel=by_channel
            )
            module = replaced(module, name, SeededDropout(drop))
        if type(layer) is nn.LocalResponseNorm:
            module = replaced(module, name, BandedResponseNorm(layer))
    if everywhere:
        _drop_before_linear_layers(module, chance)
    return module


def linear_layers_after_the_first(module: nn.Module) -> list[nn.Linear]:
    """The linear layers in front of which a job's dropout stands."""
    weighty = [
        layer for layer in module.modules() if isinstance(getattr(layer, "weight", None), Tensor)
    ]
    return [layer for layer in weighty[1:] if isinstance(layer, nn.Linear)]


def _drop_before_linear_layers(module: nn.Module, chance: Chance) -> None:
    layers = linear_layers_after_the_first(module)
    if not layers:
        raise BadInput(
            "A job asks for dropout, but the network has no linear layer after its first layer, so "
            "there is nothing to drop. Set dropout to 0, or put nn.Dropout into the network."
        )
    for number, layer in enumerate(layers):

        def drop(
            layer: nn.Module, arguments: tuple[Tensor, ...], purpose: int = -1 - number
        ) -> tuple[Tensor, ...]:
            if not layer.training:
                return arguments
            return (dropped(arguments[0], chance, purpose, chance.rate), *arguments[1:])

        layer.register_forward_pre_hook(drop)
