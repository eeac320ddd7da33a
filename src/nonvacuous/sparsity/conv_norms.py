"""Operator norms of convolutions and pooling as linear maps on images: upper bounds, never below.

A convolution with zero padding is a piece of a circular convolution on a torus that holds the
padded image. Taking a piece cannot raise the norm, and the Fourier transform splits the circular
one into small matrices, one for each frequency: their largest spectral norm is the bound, with no
grid to worry about. A stride is turned into more channels first. Proofs: docs/theory/sparsity.md,
10. Everything is float64 and rounded up.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from nonvacuous.errors import NotYetSupported
from nonvacuous.sparsity.conv_chain import ConvChain, ConvLayer, ImageShape, Pool, Stage
from nonvacuous.sparsity.norms import UpperNorm, row_norm, spectral_norm, up
from nonvacuous.sparsity.weights import Layers, Network

#: Maps of at most this many entries are written out as a matrix and measured exactly.
_LARGEST_MATRIX = 1_500_000
_ROUNDING = 1e-12


def conv_norm(layer: ConvLayer, shape: ImageShape) -> UpperNorm:
    """The smallest of the bounds for images of this shape."""
    weight = layer.weight.detach().cpu()
    high, wide = layer.positions(shape[1:])
    bounds = {
        "sums": _sums(layer, weight, shape),
        "patches": _patches(layer, weight),
        "frequencies": _frequencies(layer, weight, shape),
    }
    entries = math.prod(shape) * high * wide * weight.shape[0]
    if (high, wide) == (1, 1) and layer.padding == (0, 0):
        # A kernel that fits once: the map reads one patch, each entry at most once.
        bounds["matrix"] = spectral_norm(weight.flatten(1))
    elif entries <= _LARGEST_MATRIX:
        bounds["matrix"] = spectral_norm(unrolled(layer, shape))
    return UpperNorm(bounds)


def unrolled(layer: ConvLayer, shape: ImageShape) -> Tensor:
    """The matrix of the convolution without its bias: (outputs, inputs), both flattened."""
    weight = layer.weight.detach().cpu()
    units = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    return replace(layer, weight=weight, bias=None)(units).flatten(1).T.contiguous()


def unit_norm(layer: ConvLayer) -> float:
    """The largest norm of a kernel: how much one unit moves per unit of movement of its input."""
    return row_norm(layer.matrix.cpu(), columns=layer.matrix.shape[1])


def pool_norm(pool: Pool, shape: ImageShape) -> float:
    """The Lipschitz constant of a pooling on images of this shape, rounded up.

    Average: sqrt(largest row sum * largest column sum) of its nonnegative matrix, which for windows
    that do not overlap is exactly 1 / sqrt(window). Maximum: the root of the number of windows that
    one unit can be in.
    """
    if pool.kind == "none":
        return 1.0
    image = torch.zeros(1, 1, *shape[1:], dtype=torch.float64, requires_grad=True)
    if pool.kind == "max":
        sums = functional.avg_pool2d(image, pool.kernel, pool.stride) * math.prod(pool.kernel)
        (cover,) = torch.autograd.grad(sums.sum(), image)
        return math.sqrt(round(float(cover.max())))
    rows = pool(torch.ones_like(image, requires_grad=False)).max()
    (columns,) = torch.autograd.grad(pool(image).sum(), image)
    return math.sqrt(float(rows) * float(columns.max())) * (1.0 + _ROUNDING)


def _sums(layer: ConvLayer, weight: Tensor, shape: ImageShape) -> float:
    """sqrt(largest absolute row sum * largest absolute column sum)."""
    ones = torch.ones(1, *shape, dtype=torch.float64, requires_grad=True)
    outputs = replace(layer, weight=weight.abs(), bias=None)(ones)
    (columns,) = torch.autograd.grad(outputs.sum(), ones)
    product = float(outputs.detach().max()) * float(columns.max())
    return math.sqrt(product) * (1.0 + _ROUNDING)


def _patches(layer: ConvLayer, weight: Tensor) -> float:
    """Kernels as a matrix on patches, and how often an entry of the image can be in a patch."""
    often = 1
    for side in (0, 1):
        steps = weight.shape[2 + side]
        # Taps at multiples of the dilation meet one entry only from outputs a stride apart.
        apart = layer.stride[side] // math.gcd(layer.stride[side], layer.dilation[side])
        often *= -(-steps // apart)
    return up(spectral_norm(weight.flatten(1)) * math.sqrt(often), terms=8)


def _frequencies(layer: ConvLayer, weight: Tensor, shape: ImageShape) -> float:
    """The largest spectral norm over the frequencies of a torus that holds the padded image."""
    outputs, channels = weight.shape[:2]
    high, wide = layer.reach
    rows, columns = layer.stride
    cells = (-(-high // rows), -(-wide // columns))
    full = torch.zeros(outputs, channels, cells[0] * rows, cells[1] * columns, dtype=torch.float64)
    full[:, :, : high : layer.dilation[0], : wide : layer.dilation[1]] = weight
    # Space to depth: entries of one stride cell become channels, and the stride becomes 1.
    taps = full.reshape(outputs, channels, cells[0], rows, cells[1], columns)
    taps = taps.permute(0, 1, 3, 5, 2, 4).reshape(outputs, -1, *cells)
    sides = [-(-(shape[1 + i] + 2 * layer.padding[i]) // layer.stride[i]) for i in (0, 1)]
    # A kernel is real: the other half of the frequencies has the conjugate matrices.
    symbol = torch.fft.rfft2(taps, s=sides).permute(2, 3, 0, 1)
    largest = float(torch.linalg.svdvals(symbol.flatten(0, 1))[:, 0].max())
    lost = _ROUNDING * float(taps.abs().sum((2, 3)).square().sum().sqrt())
    return up(largest + lost, terms=8 * sum(symbol.shape[2:]))


# A convolutional chain written out as matrices, for bounds that know nothing else.
#
# An average over windows is linear and joins the next layer's matrix; a maximum is not, and nothing
# can be written out then.

#: A larger matrix takes its singular values too long.
LARGEST = 2_500_000


def unrolled_layers(chain: Network) -> Layers:
    """The same network as linear layers with ReLU between them, or a refusal that says why not."""
    if isinstance(chain, Layers):
        return chain
    assert isinstance(chain, ConvChain)
    weights, biases = [], []
    previous: Stage | None = None
    for stage in chain.stages:
        name = stage.layer.name
        if stage.pool.kind == "max":
            raise NotYetSupported(
                f"layer {name} is followed by max pooling, which is no matrix; use a stride or "
                "average pooling to compare it with bounds for matrices"
            )
        columns = math.prod(stage.before if previous is None else previous.middle)
        averaged = previous is not None and previous.pool.kind == "average"
        entries = max(stage.units, columns if averaged else 0) * columns
        if entries > LARGEST:
            raise NotYetSupported(
                f"layer {name} takes {entries:,} numbers when written out as a matrix, more than "
                f"{LARGEST:,}; make it smaller to compare it with bounds for matrices"
            )
        matrix = unrolled(stage.layer, stage.before)
        if previous is not None and averaged:
            matrix = matrix @ torch.block_diag(*[previous.averages] * previous.middle[0])
        weights.append(matrix)
        bias = stage.layer.bias
        biases.append(None if bias is None else bias.cpu().repeat_interleave(stage.positions))
        previous = stage
    return Layers(tuple(weights), tuple(biases), chain.names)
