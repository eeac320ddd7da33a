"""Convolutional networks in certificates: how a chain is written down, and read back from files.

The shapes are worked out here in whole numbers, without the chain's own code, so that what a
record says of them is checked by somebody else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.records import ComplexityRecord
from nonvacuous.sparsity.conv_chain import ConvChain, ConvLayer, ImageShape, Pool
from nonvacuous.sparsity_records import ConvolutionRecord, PoolingRecord, SparsityRecord

#: Images of more numbers than this are not read from a file.
_LARGEST = 2**26


def convolution_records(
    chain: ConvChain, scales: tuple[float, ...]
) -> tuple[ConvolutionRecord, ...]:
    """How each layer of a chain is written down."""
    return tuple(
        ConvolutionRecord(
            kernel=tuple(int(side) for side in stage.layer.weight.shape),
            stride=stage.layer.stride,
            padding=stage.layer.padding,
            dilation=stage.layer.dilation,
            pooling=_pooling_record(stage.pool),
            positions=stage.positions,
            bias_scale=None if stage.layer.bias is None else bias_scale(scale, stage.positions),
        )
        for stage, scale in zip(chain.stages, scales, strict=True)
    )


def bias_scale(scale: float, positions: int) -> float:
    """A bias meets every position, so its noise is smaller by the root of their number."""
    return scale / math.sqrt(positions)


def tensor_scales(record: SparsityRecord) -> dict[str, float]:
    """The noise of every tensor: its layer's, and for a bias of a convolution a part of it."""
    scales: dict[str, float] = {}
    for layer in record.layers:
        for position, name in enumerate(layer.tensors):
            own = layer.convolution if position == 1 else None
            scales[name] = layer.scale if own is None else bias_scale(layer.scale, own.positions)
    return scales


def readings_of(record: SparsityRecord) -> list[tuple[ConvolutionRecord, ImageShape, int]]:
    """Of each layer its convolution, the shape that it reads, and at how many positions.

    :class:`BadInput` where the layers do not fit together.
    """
    readings = []
    before = _input_shape(record)
    for layer in record.layers:
        own = layer.convolution
        if own is None:
            raise BadInput(f"layer {layer.name} of a convolutional network has no kernel")
        outputs, channels, high, wide = own.kernel
        middle = (outputs, *_sides(before, (high, wide), own, own.dilation))
        after = middle
        if own.pooling is not None:
            after = (outputs, *_sides(middle, own.pooling.kernel, own.pooling))
        if channels != before[0] or min(middle) < 1 or min(after) < 1:
            raise BadInput(
                f"layer {layer.name} with a kernel of shape {own.kernel} does not fit what it "
                f"reads, {before}"
            )
        if max(math.prod(before), math.prod(middle), math.prod(own.kernel)) > _LARGEST:
            raise BadInput(f"layer {layer.name} is too large to be read from a certificate")
        readings.append((own, before, middle[1] * middle[2]))
        before = after
    return readings


def _input_shape(record: SparsityRecord) -> ImageShape:
    assert record.images is not None
    channels, high, wide = record.images
    return channels, high, wide


def wrong_convolution(record: SparsityRecord) -> str | None:
    """A layer whose own numbers contradict one another, in words."""
    if record.images is None:
        return None
    readings = readings_of(record)
    for layer, (own, _, positions) in zip(record.layers, readings, strict=True):
        if len(layer.tensors) > 2:
            return f"layer {layer.name} has more than weights and a bias"
        if own.positions != positions:
            return (
                f"layer {layer.name} is recorded with {own.positions} positions; it has "
                f"{positions}, and all of them share its noise"
            )
        biased = len(layer.tensors) == 2
        expected = bias_scale(layer.scale, positions) if biased else None
        if own.bias_scale != expected:
            return (
                f"the bias of layer {layer.name} is recorded with noise {own.bias_scale!r}; at "
                f"{positions} positions it is {expected!r}"
            )
        pool = own.pooling
        if pool is not None and pool.kind == "max" and (pool.padding != (0, 0)):
            return f"layer {layer.name} pools a maximum with padding, which no theorem covers"
    name, (last, before, positions) = record.layers[-1].name, readings[-1]
    if positions != 1 or last.pooling is not None or last.kernel[1:] != before:
        return f"the last layer {name} does not cover its input once"
    if last.padding != (0, 0):
        return f"the last layer {name} has padding"
    return None


def wrong_sizes(record: SparsityRecord, complexity: ComplexityRecord) -> str | None:
    """A tensor of the KL that has not as many numbers as its layer says, in words."""
    sizes = {term.tensor: term.size for term in complexity.terms}
    for layer in record.layers:
        if layer.convolution is None:
            continue
        kernel = layer.convolution.kernel
        for name, size in zip(layer.tensors, (math.prod(kernel), kernel[0]), strict=False):
            if sizes.get(name) != size:
                return f"{name!r} has {sizes.get(name)} numbers in the KL, and {size} in its layer"
    return None


def wrong_structure(record: SparsityRecord, chain: ConvChain) -> str | None:
    """Where the record's layers are not those of the network that was read, in words."""
    if record.images != chain.input_shape:
        return f"the network reads images {chain.input_shape}, the record says {record.images}"
    scales = tuple(layer.scale for layer in record.layers)
    if len(scales) != len(chain.stages):
        return f"the network has {len(chain.stages)} layers, the record {len(scales)}"
    for layer, expected in zip(record.layers, convolution_records(chain, scales), strict=True):
        if layer.convolution != expected:
            return (
                f"layer {layer.name} is recorded with another kernel, stride, padding, dilation, "
                "pooling or bias than the network's"
            )
    return None


def chain_from(record: SparsityRecord, tensors: Mapping[str, Tensor]) -> ConvChain:
    """The network out of named tensors, as its theorem reads it."""
    if wrong := wrong_convolution(record):
        raise BadInput(f"{wrong}.")
    parts: list[tuple[ConvLayer, Pool]] = []
    for layer, (own, before, _) in zip(record.layers, readings_of(record), strict=True):
        missing = [name for name in layer.tensors if name not in tensors]
        if missing:
            raise BadInput(f"there is no tensor {missing[0]!r} for layer {layer.name}")
        given = [tensors[name].detach().to("cpu", torch.float64) for name in layer.tensors]
        weight = _kernel(layer.name, given[0], own, before)
        if len(given) == 2 and tuple(given[1].shape) != own.kernel[:1]:
            raise BadInput(f"the bias of layer {layer.name} has not one number for each output")
        bias = given[1] if len(given) == 2 else None
        ways = _two(own.stride), _two(own.padding), _two(own.dilation)
        parts.append((ConvLayer(layer.name, weight, bias, *ways), _pool(own.pooling)))
    return ConvChain.of(_input_shape(record), parts)


def _kernel(name: str, given: Tensor, own: ConvolutionRecord, before: ImageShape) -> Tensor:
    if given.dim() == 2:
        # A linear layer: it has no choice but to cover what it reads.
        plain = own.stride == own.dilation == (1, 1) and own.padding == (0, 0)
        if own.kernel[1:] != before or not plain:
            raise BadInput(f"layer {name} is linear, but is recorded as another convolution")
        if tuple(given.shape) != (own.kernel[0], math.prod(before)):
            raise BadInput(f"layer {name} has weights of shape {tuple(given.shape)}")
        return given.reshape(own.kernel)
    if given.dim() != 4:
        raise NotYetSupported(
            f"layer {name} has weights of {given.dim()} dimensions; only matrices and kernels of "
            "images can be read back from files"
        )
    if tuple(given.shape) != own.kernel:
        raise BadInput(f"layer {name} has a kernel of shape {tuple(given.shape)}, not {own.kernel}")
    return given


def _sides(
    shape: ImageShape,
    kernel: tuple[int, ...],
    steps: ConvolutionRecord | PoolingRecord,
    dilation: tuple[int, ...] = (1, 1),
) -> tuple[int, int]:
    """Height and width of what comes out."""
    high, wide = (
        (size + 2 * padding - (side - 1) * apart - 1) // stride + 1
        for size, side, stride, padding, apart in zip(
            shape[1:], kernel, steps.stride, steps.padding, dilation, strict=True
        )
    )
    return high, wide


def _pooling_record(pool: Pool) -> PoolingRecord | None:
    if pool.kind == "none":
        return None
    return PoolingRecord(
        kind=pool.kind,  # type: ignore[arg-type]
        kernel=pool.kernel,
        stride=pool.stride,
        padding=pool.padding,
        counts_padding=pool.count_include_pad,
    )


def _pool(record: PoolingRecord | None) -> Pool:
    if record is None:
        return Pool()
    sizes = _two(record.kernel), _two(record.stride), _two(record.padding)
    return Pool(record.kind, *sizes, record.counts_padding)


def _two(pair: tuple[int, ...]) -> tuple[int, int]:
    return pair[0], pair[1]
