"""Forward passes of a network whose weights are drawn from a diagonal Gaussian, for training.

One draw of all weights per batch is always possible, but its gradient is noisy: every example of
the batch sees the same draw. Two layers allow better at little cost, without touching the module:

- a linear layer on a batch of vectors has, per example, exactly Gaussian outputs, independent over
  units: draw those instead of the weights (local reparametrization, Kingma et al. 2015);
- a convolution shares its weights over positions, so its outputs are not independent; random signs
  per example on its input channels make the draws of different examples uncorrelated while each
  keeps its distribution (flipout, Wen et al. 2018). For the noise that takes twice the products.
  On a processor, where arithmetic is what takes time, a large network instead runs on parts of the
  batch in turn, with signs on the noise of its weights for each part.

Which parameters are used in such a way, and only so, is found by watching one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

#: How many dimensions the inputs have of layers that allow better than one draw per batch.
_DIMENSIONS: dict[Callable[..., Any], int] = {
    functional.linear: 2,
    functional.conv1d: 3,
    functional.conv2d: 4,
    functional.conv3d: 5,
}
_LEAST_VARIANCE = 1e-30
# On a processor: how many examples share a draw, in networks of so many products per example. The
# slopes of a batch by the scales then vary by a third more (cnn:32,64,128 at its start on MNIST; by
# the means no more) than with signs for each example, at about half the time of a step. Smaller
# networks would win nothing.
_SHARING = 16
_WORTH_SHARING = 2_000_000
# On a processor that multiplies bfloat16, linear layers of so many weights compute in it, in half
# the time: its three digits are below the noise of their outputs.
_WORTH_ROUNDING = 1 << 17


@dataclass(frozen=True)
class Layout:
    """Which parameters get fresh noise per example; all others are drawn once per batch.

    convolutions   those of `per_example` that belong to convolutions
    products       multiplications that one example takes in linear layers and convolutions
    """

    per_example: frozenset[str]
    per_batch: tuple[str, ...]
    convolutions: frozenset[str] = frozenset()
    products: int = 0

    def parts(self, inputs: Tensor) -> int:
        """How many parts of a batch have a draw of their convolutions each; 1: signs instead."""
        large = inputs.device.type == "cpu" and self.products >= _WORTH_SHARING
        return max(1, len(inputs) // _SHARING) if large and self.convolutions else 1


def find_layout(module: nn.Module, inputs: Tensor, *, per_example: bool = True) -> Layout:
    """Watch a forward pass of `module` on `inputs` and sort its parameters.

    A parameter gets noise per example if the pass uses it exactly once, as weight or bias of a
    linear layer on a batch of vectors or of a convolution on a batch, with one row per example.
    """
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    watcher = _Watcher({id(tensor): name for name, tensor in parameters.items()}, len(inputs))
    with torch.no_grad(), watcher:
        torch.func.functional_call(module, parameters, (inputs,))
    noisy = set[str]().union(*watcher.layers) if per_example else set()
    fit = {name for name in noisy if watcher.uses[name] == 1}
    # Weight and bias of one layer go together: one of them drawn per batch would be used as is.
    while broken := fit & set().union(*(pair for pair in watcher.layers if not pair <= fit)):
        fit -= broken
    return Layout(
        per_example=frozenset(fit),
        per_batch=tuple(name for name in parameters if name not in fit),
        convolutions=frozenset(fit & watcher.in_convolutions),
        products=watcher.products // max(1, len(inputs)),
    )


def draw_noise(
    layout: Layout, variances: Mapping[str, Tensor], generator: torch.Generator
) -> dict[str, Tensor]:
    """For `noisy_call`: the noise of each parameter.

    Of linear layers, where the noise of their outputs is drawn instead, the variances as given.
    """
    linear = layout.per_example - layout.convolutions
    drawn = {name: variance for name, variance in variances.items() if name not in linear}
    noise = _draws(list(drawn.values()), generator)
    return {**variances, **dict(zip(drawn, noise, strict=True))}


def noisy_call(
    module: nn.Module,
    inputs: Tensor,
    *,
    layout: Layout,
    means: Mapping[str, Tensor],
    noise: Mapping[str, Tensor],
    generator: torch.Generator,
) -> Tensor:
    """The module's outputs under weights drawn from the Gaussian, differentiable in both maps."""
    weights = dict(means)
    for name in layout.per_batch:
        weights[name] = means[name] + noise[name]
    parts = layout.parts(inputs)
    turned = {}
    if parts > 1:
        for name in sorted(layout.convolutions):
            turned[id(means[name])] = _turned(means[name], noise[name], parts, generator)
    layers = _NoisyLayers(
        {id(means[name]): (means[name], noise[name]) for name in layout.per_example},
        {id(means[name]) for name in layout.convolutions},
        turned,
        generator,
    )
    whole = _InParts(module, layers)
    weights = {f"module.{name}": weight for name, weight in weights.items()}
    with layers:
        outputs: Tensor = torch.func.functional_call(whole, weights, (inputs.tensor_split(parts),))
    return outputs


def _turned(
    mean: Tensor, noise: Tensor, parts: int, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """A weight for each part of a batch: its noise turned by signs, which costs no new normals."""
    signs = _signs((parts, len(mean)), mean, generator)
    if mean.ndim > 1:
        columns = _signs((parts, mean.shape[1]), mean, generator)
        signs = signs[:, :, None] * columns[:, None, :]
    signs = signs.reshape(signs.shape + (1,) * (mean.ndim + 1 - signs.ndim))
    return torch.addcmul(mean, noise, signs).unbind()


def _draws(variances: list[Tensor], generator: torch.Generator) -> list[Tensor]:
    """Normal numbers of these variances: on a GPU all at once, a few kernels for any network."""
    if not variances or variances[0].device.type == "cpu":
        scales = [variance.clamp_min(_LEAST_VARIANCE).sqrt() for variance in variances]
        return [scale * _noise(scale, generator) for scale in scales]
    flat = torch.cat([variance.reshape(-1) for variance in variances])
    drawn = flat.clamp_min_(_LEAST_VARIANCE).sqrt() * _noise(flat, generator)
    parts = drawn.split([variance.numel() for variance in variances])
    return [part.view_as(like).to(like.dtype) for part, like in zip(parts, variances, strict=True)]


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def _signs(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    bits = torch.randint(0, 2, shape, generator=generator, dtype=like.dtype, device=like.device)
    return torch.rsub(bits, -1.0, alpha=-2.0)


def _product_kind(weight: Tensor) -> torch.dtype:
    """The numbers in which a linear layer multiplies."""
    plain = weight.device.type == "cpu" and weight.dtype == torch.float32
    if plain and weight.numel() >= _WORTH_ROUNDING and torch.cpu._is_avx512_bf16_supported():
        return torch.bfloat16
    return weight.dtype


def _operands(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **named: Any
) -> tuple[Tensor, Tensor, Tensor | None, tuple[Any, ...], dict[str, Any]]:
    """Sort out the arguments of a linear layer or a convolution, however they were passed."""
    return input, weight, bias, rest, named


class _Watcher(TorchFunctionMode):
    """Counts how often each parameter is used, and notes the layers that allow better noise."""

    def __init__(self, names: Mapping[int, str], rows: int) -> None:
        super().__init__()
        self._names = names
        self._rows = rows
        self.uses: dict[str, int] = {}
        self.layers: list[set[str]] = []
        self.in_convolutions: set[str] = set()
        self.products = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in tree_leaves((args, kwargs)):
            name = self._names.get(id(tensor))
            if name is not None:
                self.uses[name] = self.uses.get(name, 0) + 1
        outputs = func(*args, **kwargs)
        if func in _DIMENSIONS:
            input, weight, bias, _, _ = _operands(*args, **kwargs)
            operands = {self._names.get(id(x)) for x in (weight, bias) if x is not None}
            fits = input.ndim == _DIMENSIONS[func] and len(input) == self._rows
            names = {name for name in operands if name is not None}
            if fits and None not in operands and id(input) not in self._names:
                self.layers.append(names)
            if func is not functional.linear:
                self.in_convolutions |= names
            self.products += outputs.numel() * weight[0].numel()
        return outputs


class _NoisyLinear(torch.autograd.Function):
    """A linear layer whose outputs get noise of their own variance.

    Its slopes are written out: of torch's own, each operation would take memory of its own, which
    on a processor costs more than the operation.
    """

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        weight_variance: Tensor,
        bias_variance: Tensor | None,
        noise: Tensor,
    ) -> Tensor:
        squares = input.square()
        variance = functional.linear(squares, weight_variance, bias_variance)
        scale = variance.clamp_min_(_LEAST_VARIANCE).sqrt_()
        ctx.save_for_backward(input, squares, weight, weight_variance, scale, noise)
        return functional.linear(input, weight, bias).addcmul_(scale, noise)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        input, squares, weight, weight_variance, scale, noise = ctx.saved_tensors
        by_variance = torch.mul(slope, noise).div_(scale).mul_(0.5)
        by_input = None
        if ctx.needs_input_grad[0]:
            by_input = slope @ weight
            by_input.addcmul_(by_variance @ weight_variance, input, value=2.0)
        _, _, has_bias, _, has_bias_variance, _ = ctx.needs_input_grad
        return (
            by_input,
            slope.T @ input,
            slope.sum(0) if has_bias else None,
            by_variance.T @ squares,
            by_variance.sum(0) if has_bias_variance else None,
            None,
        )


class _NoisyBias(torch.autograd.Function):
    """Maps plus a bias, whose noise has a sign for each map.

    Its slopes are written out: a GPU sums maps whose channels lie side by side several times faster
    as products with ones.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, bias: Tensor, noise: Tensor, signs: Tensor) -> Tensor:
        ctx.save_for_backward(signs)
        ctx.mark_dirty(maps)
        mean, noise = (x.view(-1, *signs.shape[2:]) for x in (bias, noise))
        return maps.add_(torch.addcmul(mean, noise, signs))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        (signs,) = ctx.saved_tensors
        signs, positions = signs.flatten(1), slope.flatten(2)
        if slope.is_cuda:
            ones = slope.new_ones(1, 1, positions.shape[2]).expand(len(slope), -1, -1)
            sums = torch.bmm(ones, positions.mT).squeeze(1)
        else:
            sums = positions.sum(2)
        return slope, sums.sum(0), (sums * signs).sum(0), None


class _InParts(nn.Module):
    """A module on the parts of a batch in turn: to give it weights for each takes longer."""

    def __init__(self, module: nn.Module, layers: _NoisyLayers) -> None:
        super().__init__()
        self.module, self._layers = module, layers

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        outputs = []
        for self._layers.part, inputs in enumerate(parts):
            outputs.append(self.module(inputs))
        return outputs[0] if len(parts) == 1 else torch.cat(outputs)


class _NoisyLayers(TorchFunctionMode):
    """Adds the noise of the layers whose means it is given while their module runs.

    convolutions   which of the means are those of convolutions
    turned         their draws for each part of the batch, where it is run in parts
    """

    def __init__(
        self,
        noisy: Mapping[int, tuple[Tensor, Tensor]],
        convolutions: Set[int],
        turned: Mapping[int, Sequence[Tensor]],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.part = 0
        self._noisy, self._convolutions, self._turned = noisy, convolutions, turned
        self._generator = generator
        self._drawn: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _DIMENSIONS:
            input, weight, bias, rest, named = _operands(*args, **kwargs)
            known = id(weight) in self._noisy and (bias is None or id(bias) in self._noisy)
            if known and input.ndim == _DIMENSIONS[func]:
                if func is functional.linear:
                    return self._linear(input, weight, bias)
                return self._convolution(func, input, weight, bias, rest, named)
        if any(id(value) in self._noisy for value in tree_leaves((args, kwargs))):
            # A pass that takes another way than the one watched: fall back to a draw per batch.
            args, kwargs = tree_map(self._drawn_once, (args, kwargs))
        return func(*args, **kwargs)

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        noise = _noise(weight.new_empty(len(input), len(weight)), self._generator)
        variances = (None if x is None else self._noisy[id(x)][1] for x in (weight, bias))
        device, kind, result = input.device.type, _product_kind(weight), input.dtype
        if torch.is_autocast_enabled(device):
            kind = result = torch.get_autocast_dtype(device)
        operands = (input, weight, bias, *variances, noise)
        operands = tuple(x if x is None else x.to(kind) for x in operands)
        with torch.autocast(device, enabled=False):
            outputs: Tensor = _NoisyLinear.apply(*operands)  # type: ignore[no-untyped-call]
        return outputs.to(result)

    def _convolution(
        self,
        function: Callable[..., Tensor],
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rest: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Tensor:
        if self._turned:
            weight = self._turned[id(weight)][self.part]
            bias = None if bias is None else self._turned[id(bias)][self.part]
            return function(input, weight, bias, *rest, **named)
        noise, turned = self._noisy[id(weight)][1], input * self._signs_like(input)
        if input.shape[1] == weight.shape[1]:
            # As one convolution of twice the channels: half the passes over inputs and outputs.
            kernel = torch.cat((weight, noise), 1)
            outputs = function(torch.cat((input, turned), 1), kernel, None, *rest, **named)
        else:  # In groups.
            outputs = function(input, weight, None, *rest, **named)
            outputs += function(turned, noise, None, *rest, **named)
        if bias is None:
            return outputs
        drawn = bias, self._noisy[id(bias)][1], self._signs_like(outputs)
        added: Tensor = _NoisyBias.apply(outputs, *drawn)  # type: ignore[no-untyped-call]
        return added

    def _signs_like(self, maps: Tensor) -> Tensor:
        shape = maps.shape[:2] + (1,) * (maps.ndim - 2)
        return _signs(shape, maps, self._generator)

    def _drawn_once(self, value: Any) -> Any:
        if id(value) not in self._noisy:
            return value
        if id(value) not in self._drawn:
            mean, noise = self._noisy[id(value)]
            if id(value) not in self._convolutions:
                (noise,) = _draws([noise], self._generator)
            self._drawn[id(value)] = mean + noise
        return self._drawn[id(value)]
