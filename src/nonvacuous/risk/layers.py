"""How common layers run when every example has its own independent draw of the weights.

Each rule below computes the layer's output, in law, exactly as if the weights had been drawn anew
for each example of the batch:

* A linear layer that sees one vector x for each example has outputs that are independent Gaussians
  with means ``W x + b`` and variances ``S^2 x^2 + s^2`` (S, s: the scales of weights and biases),
  so two matrix products replace the drawing of a whole matrix for each example.
* A layer that sees several positions of one example (a convolution, a linear layer on a sequence)
  reuses its weights across them: what they add at the positions is jointly Gaussian. Where
  positions are few, it is drawn at the positions, see :mod:`nonvacuous.risk.positions`; elsewhere
  the weights are drawn, one set for each example.

To add a rule, write a function with the arguments of the torch function after ``batch``, the pass
that it runs in, and enter it in ``RULES``; the law tests in tests/risk run over every entry.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nonvacuous.risk.positions import Positions, Vectors, Weights, Windows, root_at

if TYPE_CHECKING:
    from nonvacuous.risk.watched import WatchedPass as Batch


class NoRule(Exception):
    """The network uses a parameter in a way that no rule here covers."""


#: Weights that are drawn at a time on a processor, with the entries of the patches they meet.
_CACHED = 1 << 19


def linear(batch: Batch, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer: local noise for one vector an example, drawn weights for several."""
    weights = batch.take(weight)
    biases = None if bias is None else batch.take(bias)
    batch.check_rows(input)
    features = input.shape[-1]
    vectors = input.reshape(len(input), -1, features)
    if vectors.shape[1] == 1:
        output = _local_noise(batch, vectors[:, 0], weights, biases)
    else:
        output = _at_positions(batch, vectors, Vectors(vectors.shape[1]), weights, biases)
    return output.reshape(len(output), *input.shape[1:-1], len(weights.mean))


def _at_positions(
    batch: Batch, inputs: Tensor, where: Positions, weights: Weights, biases: Weights | None
) -> Tensor:
    """Outputs (trials, positions, rows)."""
    root = root_at(where, weights)
    if root is not None:
        roots = root(where, inputs, weights)
        batch.count(*roots)
        mean, *spread = batch.spread(where.means(inputs, weights), *roots)
        output = root.added(mean, batch.noise(mean, *mean.shape), *spread)
    else:
        (inputs,) = batch.spread(inputs)
        weights = where.ordered(weights)
        output = inputs.new_empty(len(inputs), where.count, len(weights.mean))
        batch.count(output)  # twice: pages of pieces that are too large are fetched anew each time
        # Few trials at a time on a processor: their weights and patches stay in its cache.
        cached = max(1, _CACHED // (weights.mean.numel() + where.count * weights.mean.shape[1]))
        block = cached if inputs.device.type == "cpu" else len(inputs)
        for part, result in zip(inputs.split(block), output.split(block), strict=True):
            drawn = batch.draw(weights, trials=len(part))
            torch.bmm(where.patches(part), drawn.mT, out=result)
    return output if biases is None else output.add_(batch.draw(biases).unsqueeze(1))


def _pair(value: int | str | Sequence[int]) -> tuple[int, int]:
    assert not isinstance(value, str)
    first, last = (value, value) if isinstance(value, int) else (value[0], value[-1])
    return first, last


def _local_noise(batch: Batch, vectors: Tensor, weights: Weights, biases: Weights | None) -> Tensor:
    offset = None if biases is None else biases.mean
    if weights.row_variance is not None:
        # One column when all scales agree: it broadcasts against the noise.
        mean, total = batch.known(_moments, vectors, weights.mean, offset, weights.entry_variance)
        variance = total.unsqueeze(1) * weights.row_variance
        if biases is not None:
            shared = biases.variance if biases.row_variance is None else biases.row_variance
            wide = variance.shape[1] >= len(shared)
            variance = variance.add_(shared) if wide else variance + shared
    else:
        mean = F.linear(vectors, weights.mean, offset)
        offset = None if biases is None else biases.variance
        variance = F.linear(vectors.square(), weights.variance, offset)
    mean, deviation = batch.spread(mean, variance.sqrt_())
    return mean.addcmul_(batch.noise(mean, *mean.shape), deviation)


def _moments(
    vectors: Tensor, weight: Tensor, bias: Tensor | None, profile: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What the mean weights make of vectors, and the squares that one row of variances meets."""
    squares = vectors.square()
    total = squares.sum(dim=1) if profile is None else squares @ profile
    return F.linear(vectors, weight, bias), total


def _convolution(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def rule(
        batch: Batch,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Tensor:
        """A convolution: a linear layer on patches, or the examples as groups of a wide one."""
        if input.ndim != weight.ndim:
            raise NoRule("a convolution without a dimension for the examples")
        weights = batch.take(weight)
        biases = None if bias is None else batch.take(bias)
        batch.check_rows(input)
        kernel = weights.mean.shape[2:]
        if function is torch.conv2d and groups == 1 and not isinstance(padding, str):
            image = input.shape[1], input.shape[2], input.shape[3]
            where = Windows(image, *(_pair(each) for each in (kernel, stride, padding, dilation)))
            output = _at_positions(batch, input, where, weights, biases)
            # The channels stay side by side: activations and pools are fastest so.
            return output.reshape(len(output), *where.grid, -1).permute(0, 3, 1, 2)
        trials, channels = input.shape[:2]
        drawn = batch.draw(weights).flatten(0, 1)
        wide = input.reshape(1, trials * channels, *input.shape[2:])
        offsets = None if biases is None else batch.draw(biases).flatten()
        output = function(wide, drawn, offsets, stride, padding, dilation, trials * groups)
        return output.reshape(trials, -1, *output.shape[2:])

    return rule


def _normalization(function: Callable[..., Tensor], *, per_channel: bool) -> Callable[..., Tensor]:
    signature = inspect.signature(function)

    def rule(batch: Batch, *args: Any, **kwargs: Any) -> Tensor:
        """Normalization of every example by itself, or with fixed statistics: only gain and offset
        are random. They belong to channels, or else span the last dimensions."""
        given = signature.bind(*args, **kwargs).arguments
        if given.get("training"):
            raise NoRule("batch normalization with the statistics of the batch itself")
        weight, bias = given.pop("weight", None), given.pop("bias", None)
        output = function(**given)
        batch.check_rows(output)
        after = output.ndim - 2 if per_channel else 0
        for parameter, combine in ((weight, torch.mul), (bias, torch.add)):
            if parameter is not None:
                drawn = batch.draw(batch.take(parameter))
                before = output.ndim - drawn.ndim - after
                if before < 0:
                    raise NoRule("a normalization over the dimension of the examples")
                trials, shape = drawn.shape[0], drawn.shape[1:]
                output = combine(output, drawn.reshape(trials, *[1] * before, *shape, *[1] * after))
        return output

    return rule


RULES: Mapping[Any, Callable[..., Tensor]] = {
    F.linear: linear,
    torch.conv1d: _convolution(torch.conv1d),
    torch.conv2d: _convolution(torch.conv2d),
    torch.conv3d: _convolution(torch.conv3d),
    F.batch_norm: _normalization(F.batch_norm, per_channel=True),
    F.group_norm: _normalization(F.group_norm, per_channel=True),
    F.layer_norm: _normalization(F.layer_norm, per_channel=False),
}
