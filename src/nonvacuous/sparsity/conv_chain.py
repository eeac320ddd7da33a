"""A chain of convolutions with ReLU and pooling between them: all that its theorem looks at.

    x_k = pool_k(max(0, W_k * x_{k-1} + b_k)),     f(x) = W_{K+1} * x_K + b_{K+1}

A linear layer on an image (or on a flat input, an image of one pixel) is a convolution whose kernel
covers the image: there is one kind of layer only. Everything is float64.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from nonvacuous.errors import BadInput
from nonvacuous.sparsity.weights import Network, content

Pair = tuple[int, int]
ImageShape = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class ConvLayer:
    """One convolution.

    name      where it stands in the module, for messages
    weight    (outputs, channels, height, width)
    bias      (outputs,) or None
    """

    name: str
    weight: Tensor
    bias: Tensor | None
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)

    @property
    def matrix(self) -> Tensor:
        """One row per output: what meets a patch."""
        return self.weight.flatten(1)

    @property
    def reach(self) -> Pair:
        """Height and width of what one output reads."""
        high, wide = self.weight.shape[2:]
        return (high - 1) * self.dilation[0] + 1, (wide - 1) * self.dilation[1] + 1

    def patches(self, images: Tensor) -> Tensor:
        """What every position reads: (examples, entries of a kernel, positions)."""
        if images.shape[2:] == self.weight.shape[2:] and self.padding == (0, 0):
            return images.flatten(1)[:, :, None]
        return functional.unfold(
            images, tuple(self.weight.shape[2:]), self.dilation, self.padding, self.stride
        )

    def positions(self, size: tuple[int, ...]) -> Pair:
        """Height and width of the output for an input of this height and width."""
        sides = [
            (size[i] + 2 * self.padding[i] - self.reach[i]) // self.stride[i] + 1 for i in (0, 1)
        ]
        return sides[0], sides[1]

    def __call__(self, images: Tensor) -> Tensor:
        return functional.conv2d(
            images, self.weight, self.bias, self.stride, self.padding, self.dilation
        )


@dataclass(frozen=True)
class Pool:
    """What follows the ReLU of a layer; without a kind, nothing does."""

    kind: str = "none"
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    count_include_pad: bool = True

    def __call__(self, images: Tensor) -> Tensor:
        if self.kind == "max":
            return functional.max_pool2d(images, self.kernel, self.stride)
        if self.kind == "average":
            ways, padded = (self.kernel, self.stride, self.padding), self.count_include_pad
            return functional.avg_pool2d(images, *ways, count_include_pad=padded)
        return images


@dataclass(frozen=True, eq=False)
class Stage:
    """A layer, its pooling, and the shapes (channels, height, width) along the way."""

    layer: ConvLayer
    pool: Pool
    before: ImageShape
    middle: ImageShape
    after: ImageShape

    @property
    def positions(self) -> int:
        return self.middle[1] * self.middle[2]

    @property
    def units(self) -> int:
        return math.prod(self.middle)

    @property
    def form(self) -> tuple[object, ...]:
        """All of it but the numbers."""
        layer = self.layer
        shapes = (self.before, self.middle, self.pool, layer.weight.shape, layer.bias is None)
        return (*shapes, layer.stride, layer.padding, layer.dilation)

    @property
    def averages(self) -> Tensor:
        """The matrix (pooled positions, positions) of an average pooling."""
        units = torch.eye(self.positions, dtype=torch.float64)
        return self.pool(units.reshape(-1, 1, *self.middle[1:])).flatten(1).T.contiguous()


@dataclass(frozen=True, eq=False)
class ConvChain(Network):
    """The stages of a network; the last is the output layer, which has one position."""

    stages: tuple[Stage, ...]
    _alone = True

    @classmethod
    def of(cls, shape: ImageShape, parts: list[tuple[ConvLayer, Pool]]) -> ConvChain:
        """Work out the shapes and check that everything fits together."""
        stages = []
        for layer, pool in parts:
            if layer.weight.dim() != 4 or layer.weight.shape[1] != shape[0]:
                raise BadInput(
                    f"layer {layer.name} has weights of shape {tuple(layer.weight.shape)}, but its "
                    f"input has {shape[0]} channels"
                )
            high, wide = layer.positions(shape[1:])
            if min(high, wide) < 1:
                raise BadInput(
                    f"layer {layer.name}: its kernel is larger than its input {shape[1:]}"
                )
            middle = (int(layer.weight.shape[0]), high, wide)
            probe = torch.zeros(1, 1, high, wide, dtype=torch.float64)
            after_high, after_wide = pool(probe).shape[2:]
            after = (middle[0], int(after_high), int(after_wide))
            stages.append(Stage(layer, pool, shape, middle, after))
            shape = after
        chain = cls(tuple(stages))
        chain._check()
        return chain

    @property
    def input_shape(self) -> ImageShape:
        return self.stages[0].before

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(stage.layer.name for stage in self.stages)

    @property
    def weights(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        return tuple(stage.layer.weight for stage in self.stages)

    @property
    def biases(self) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return tuple(stage.layer.bias for stage in self.stages)

    @property
    def inputs(self) -> int:
        return math.prod(self.input_shape)

    @property
    def positions(self) -> tuple[int, ...]:
        return tuple(stage.positions for stage in self.stages)

    @property
    def output(self) -> Tensor:
        """The output layer as a matrix (classes, inputs)."""
        return self.stages[-1].layer.matrix

    def images(self, inputs: Tensor) -> Tensor:
        """Inputs of any shape as float64 images on this chain's device."""
        weight = self.stages[0].layer.weight
        return inputs.detach().to(weight.device, torch.float64).reshape(-1, *self.input_shape)

    def values(self, inputs: Tensor) -> list[Tensor]:
        images, values = self.images(inputs), []
        for stage in self.stages:
            values.append(stage.layer(images))
            images = stage.pool(values[-1].clamp(min=0))
        return [*values[:-1], values[-1].flatten(1)]

    def _with(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> ConvChain:
        return ConvChain(
            tuple(
                replace(stage, layer=replace(stage.layer, weight=weight, bias=bias))
                for stage, weight, bias in zip(self.stages, weights, biases, strict=True)
            )
        )

    def _check_alike(self, other: ConvChain) -> None:
        if len(self.stages) != len(other.stages):
            raise BadInput(
                f"the network has {len(self.stages)} layers and its prior {len(other.stages)}; "
                "both must be built alike"
            )
        for mine, theirs in zip(self.stages, other.stages, strict=True):
            if mine.form != theirs.form:
                raise BadInput(
                    f"layer {mine.layer.name} of the network and {theirs.layer.name} of its prior "
                    "differ in shape, stride, padding, bias or pooling; both must be built alike"
                )

    def digest(self) -> str:
        """sha256 over all numbers and over how the stages are built."""
        total = hashlib.sha256()
        for stage in self.stages:
            layer = stage.layer
            shapes = (layer.weight.shape, layer.stride, layer.padding, layer.dilation, stage.pool)
            total.update(str(shapes).encode())
            total.update(content(layer.weight) + content(layer.bias))
        return total.hexdigest()

    def _check(self) -> None:
        self._check_numbers()
        last = self.stages[-1]
        if last.middle[1:] != (1, 1) or last.pool.kind != "none":
            raise BadInput(
                f"the last layer {last.layer.name} must give one number for each class, not an "
                f"image of shape {last.middle}; end the network in a linear layer"
            )
        if last.before != tuple(last.layer.weight.shape[1:]) or last.layer.padding != (0, 0):
            # Then each output weight belongs to one unit of the last hidden layer.
            raise BadInput(
                f"the last layer {last.layer.name} must cover its input of shape {last.before} "
                "once, without padding; end the network in a linear layer"
            )
        if bool((self.output != 0).any()):  # else it is a prior that knows nothing
            self._check_ties()


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
        counts = functional.conv2d(values[:, None], ones, None, self.stride, self.padding)
        return counts.flatten(1)


def receptive_field(chain: ConvChain, earlier: int, later: int) -> Field:
    """The box of positions of layer ``earlier`` that a unit of layer ``later`` depends on."""
    field = Field((1, 1), (1, 1), (0, 0))
    for index in range(earlier, later):
        pool, layer = chain.stages[index].pool, chain.stages[index + 1].layer
        field = field.then(pool.kernel, pool.stride, pool.padding)
        field = field.then(layer.reach, layer.stride, layer.padding)
    return field
