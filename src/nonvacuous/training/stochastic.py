"""Forward passes of a network whose weights are drawn from a diagonal Gaussian, for training.

One draw of all weights per batch is always possible, but its gradient is noisy: every example of
the batch sees the same draw. Two layers allow better at little cost, without touching the module:

- a linear layer on a batch of vectors has, per example, exactly Gaussian outputs, independent over
  units: draw those instead of the weights (local reparametrization, Kingma et al. 2015);
- a convolution shares its weights over positions, so its outputs are not independent; random signs
  per example on its input and output channels make the draws of different examples uncorrelated
  while each keeps its distribution (flipout, Wen et al. 2018).

Which parameters are used in such a way, and only so, is found by watching one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_CONVOLUTIONS: dict[Callable[..., Any], int] = {
    functional.conv1d: 1,
    functional.conv2d: 2,
    functional.conv3d: 3,
}
_LEAST_VARIANCE = 1e-30


@dataclass(frozen=True)
class Layout:
    """Which parameters get fresh noise per example; all others are drawn once per batch."""

    per_example: frozenset[str]
    per_batch: tuple[str, ...]


def find_layout(module: nn.Module, inputs: Tensor, *, per_example: bool = True) -> Layout:
    """Watch a forward pass of `module` on `inputs` and sort its parameters.

    A parameter gets noise per example if the pass uses it exactly once, as weight or bias of a
    linear layer on a batch of vectors or of a convolution on a batch, with one row per example.
    """
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    if not per_example:
        return Layout(per_example=frozenset(), per_batch=tuple(parameters))
    watcher = _Watcher({id(tensor): name for name, tensor in parameters.items()}, len(inputs))
    with torch.no_grad(), watcher:
        torch.func.functional_call(module, parameters, (inputs,))
    fit = {
        name
        for name in parameters
        if watcher.uses.get(name, 0) == 1 and name in watcher.in_noisy_layers
    }
    # Weight and bias of one layer go together: one of them drawn per batch would be used as is.
    while True:
        broken = {name for pair in watcher.layers if not pair <= fit for name in pair}
        if not broken & fit:
            break
        fit -= broken
    return Layout(
        per_example=frozenset(fit),
        per_batch=tuple(name for name in parameters if name not in fit),
    )


def noisy_call(
    module: nn.Module,
    inputs: Tensor,
    *,
    layout: Layout,
    means: Mapping[str, Tensor],
    variances: Mapping[str, Tensor],
    generator: torch.Generator,
) -> Tensor:
    """The module's outputs under weights drawn from the Gaussian, differentiable in both maps."""
    weights = dict(means)
    for name in layout.per_batch:
        weights[name] = _draw(means[name], variances[name], generator)
    noisy = {id(means[name]): (means[name], variances[name]) for name in layout.per_example}
    if not noisy:
        outputs: Tensor = torch.func.functional_call(module, weights, (inputs,))
        return outputs
    with _NoisyLayers(noisy, generator):
        outputs = torch.func.functional_call(module, weights, (inputs,))
    return outputs


def _draw(mean: Tensor, variance: Tensor, generator: torch.Generator) -> Tensor:
    return torch.addcmul(mean, _scale(variance), _noise(mean, generator))


def _scale(variance: Tensor) -> Tensor:
    return variance.clamp_min(_LEAST_VARIANCE).sqrt()


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def _signs(rows: int, channels: int, like: Tensor, generator: torch.Generator) -> Tensor:
    shape = (rows, channels) + (1,) * (like.ndim - 2)
    ones = torch.empty(shape, dtype=like.dtype, device=like.device)
    return ones.bernoulli_(0.5, generator=generator).mul_(2.0).sub_(1.0)


def _operands(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **named: Any
) -> tuple[Tensor, Tensor, Tensor | None, tuple[Any, ...], dict[str, Any]]:
    """Sort out the arguments of a linear layer or a convolution, however they were passed."""
    return input, weight, bias, rest, named


def _is_noisy_layer(function: Callable[..., Any], input: Tensor) -> bool:
    if function is functional.linear:
        return input.ndim == 2
    return function in _CONVOLUTIONS and input.ndim == _CONVOLUTIONS[function] + 2


def _tensors_in(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors_in(value)
        elif isinstance(value, dict):
            yield from _tensors_in(value.values())


class _Watcher(TorchFunctionMode):
    """Counts how often each parameter is used, and notes the layers that allow better noise."""

    def __init__(self, names: Mapping[int, str], rows: int) -> None:
        super().__init__()
        self._names = names
        self._rows = rows
        self.uses: dict[str, int] = {}
        self.layers: list[set[str]] = []

    @property
    def in_noisy_layers(self) -> set[str]:
        return {name for layer in self.layers for name in layer}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in _tensors_in((*args, *kwargs.values())):
            name = self._names.get(id(tensor))
            if name is not None:
                self.uses[name] = self.uses.get(name, 0) + 1
        if func is functional.linear or func in _CONVOLUTIONS:
            input, weight, bias, _, _ = _operands(*args, **kwargs)
            operands = {self._names.get(id(x)) for x in (weight, bias) if x is not None}
            fits = _is_noisy_layer(func, input) and len(input) == self._rows
            if fits and None not in operands and id(input) not in self._names:
                self.layers.append({name for name in operands if name is not None})
        return func(*args, **kwargs)


class _NoisyLayers(TorchFunctionMode):
    """Adds the noise of the layers whose means it is given while their module runs."""

    def __init__(
        self, noisy: Mapping[int, tuple[Tensor, Tensor]], generator: torch.Generator
    ) -> None:
        super().__init__()
        self._noisy = noisy
        self._generator = generator
        self._drawn: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.linear or func in _CONVOLUTIONS:
            input, weight, bias, rest, named = _operands(*args, **kwargs)
            known = id(weight) in self._noisy and (bias is None or id(bias) in self._noisy)
            if known and _is_noisy_layer(func, input):
                if func is functional.linear:
                    return self._linear(input, weight, bias)
                return self._convolution(func, input, weight, bias, rest, named)
        if any(id(tensor) in self._noisy for tensor in _tensors_in((*args, *kwargs.values()))):
            # A pass that takes another way than the one watched: fall back to a draw per batch.
            args = tuple(self._with_draws(value) for value in args)
            kwargs = {key: self._with_draws(value) for key, value in kwargs.items()}
        return func(*args, **kwargs)

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        outputs = functional.linear(input, weight, bias)
        bias_variance = None if bias is None else self._noisy[id(bias)][1]
        weight_variance = self._noisy[id(weight)][1]
        variance = functional.linear(input.square(), weight_variance, bias_variance)
        return torch.addcmul(outputs, _scale(variance), _noise(outputs, self._generator))

    def _convolution(
        self,
        function: Callable[..., Tensor],
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rest: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Tensor:
        generator, rows = self._generator, len(input)
        weight_scale = _scale(self._noisy[id(weight)][1])
        weight_noise = weight_scale * _noise(weight_scale, generator)
        turned = input * _signs(rows, input.shape[1], input, generator)
        outputs = function(input, weight, bias, *rest, **named)
        bias_noise = None
        if bias is not None:
            bias_scale = _scale(self._noisy[id(bias)][1])
            bias_noise = bias_scale * _noise(bias_scale, generator)
        noise = function(turned, weight_noise, bias_noise, *rest, **named)
        return outputs.addcmul_(noise, _signs(rows, noise.shape[1], noise, generator))

    def _with_draws(self, value: Any) -> Any:
        if isinstance(value, Tensor) and id(value) in self._noisy:
            if id(value) not in self._drawn:
                self._drawn[id(value)] = _draw(*self._noisy[id(value)], self._generator)
            return self._drawn[id(value)]
        if type(value) in (list, tuple):
            return type(value)(self._with_draws(part) for part in value)
        if isinstance(value, dict):
            return {key: self._with_draws(part) for key, part in value.items()}
        return value
