"""A convolutional chain under weight noise, with a network of its own for every example.

Noise on a kernel is shared by all positions, so that noise on pre-activations cannot be drawn
independently: every example gets kernels of its own (where a layer has one position, noise on its
outputs has exactly the same distribution and is drawn instead). Everything is float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nonvacuous.sparsity.conv_chain import ConvChain, Stage
from nonvacuous.sparsity.noise import Columns, sound_size

#: Numbers in the largest tensor of one piece of the examples.
_BUDGET = 2**23
#: Squarings of the Gram matrix: its size to the power 1/32 is the most that the norm is too large.
_SQUARINGS = 3


@dataclass(frozen=True, eq=False)
class ConvInputs(Columns):
    """The examples as images, their labels, and the sizes that the prior expects.

    known    spectral norms of the reference network's patches, (examples, layers); the first layer
             of every network reads the same patches
    rivals   the classes with the smallest margins in the reference network, (examples, rivals)
    slopes   norms of the gradient of the reference network's margins to them in the kernels of
             each hidden layer, (examples, rivals, hidden layers)
    """

    images: Tensor
    labels: Tensor
    known: Tensor
    rivals: Tensor
    slopes: Tensor


@dataclass(frozen=True, eq=False)
class ConvPass:
    """One noisy network per example. Noise scales are included in all deviations.

    before    pre-activations of each hidden layer, (examples, channels, positions)
    units     standard deviation of a unit's own noise at each position, per layer
              (examples, positions); the last belongs to the output layer
    whole     Lipschitz constant of a layer's pre-activations in its standard noise, (examples,)
    apart     where max pooling follows: deviation of the difference of two units of one window,
              (examples, window, window, windows); else None
    patches   what each layer's noise meets, (examples, entries, positions), without scale
    scores    (examples, classes)
    """

    before: tuple[Tensor, ...]
    units: tuple[Tensor, ...]
    whole: tuple[Tensor, ...]
    apart: tuple[Tensor | None, ...]
    patches: tuple[Tensor, ...]
    scores: Tensor


def standard_noise(
    chain: ConvChain, examples: int, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Standard normal numbers for one pass: kernels, or outputs where there is one position."""
    noise = []
    for stage in chain.stages:
        outputs, entries = stage.layer.matrix.shape
        shape: tuple[int, ...] = (examples, outputs)
        if stage.positions > 1:
            shape = (examples, outputs, entries + (stage.layer.bias is not None))
        noise.append(
            torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
        )
    return tuple(noise)


def noisy_pass(
    chain: ConvChain, inputs: ConvInputs, sigmas: Sequence[float], noise: Sequence[Tensor]
) -> ConvPass:
    """Run the network with the given standard noise, scaled layer by layer."""
    images, first = inputs.images, chain.stages[0]
    seen, units, whole, apart, met = [], [], [], [], []
    for stage, sigma, draw in zip(chain.stages, sigmas, noise, strict=True):
        patches = stage.layer.patches(images)
        extended = with_bias(stage, patches)
        met.append(extended)
        lengths = extended.square().sum(1).sqrt()
        values = stage.layer.matrix @ patches
        if stage.layer.bias is not None:
            values = values + stage.layer.bias[:, None]
        if stage.positions > 1:
            values = values + sigma * (draw @ extended)
            known = inputs.known[:, 0] if stage is first else patch_norm(extended)
            whole.append(sigma * known)
        else:
            values = values + (sigma * lengths)[:, None] * draw[:, :, None]
            whole.append(sigma * lengths[:, 0])
        seen.append(values)
        units.append(sigma * lengths)
        pooled = stage.pool.kind == "max"
        apart.append(sigma * _apart(stage, patches) if pooled else None)
        if stage is not chain.stages[-1]:
            images = _sound(stage.pool(values.clamp(min=0).reshape(-1, *stage.middle)))
    *before, scores = seen
    return ConvPass(
        tuple(before), tuple(units), tuple(whole), tuple(apart), tuple(met), scores[:, :, 0]
    )


def _sound(images: Tensor) -> Tensor:
    """NaN, a loss, in images that are too small for float64 (see :func:`sound_size`)."""
    flat = images.flatten(1)
    size = sound_size(flat.square().sum(1).sqrt(), flat)
    return images.where(size.isfinite()[:, None, None, None], torch.nan)


def patch_norm(patches: Tensor) -> Tensor:
    """An upper bound on the spectral norm of each (entries, positions) matrix, hardly above it.

    With G the smaller Gram matrix, |G| <= trace(G^16)^(1/16), and both are close unless many
    singular values are almost equal. Matrix products only: the same on every device.
    """
    entries, positions = patches.shape[1:]
    gram = patches @ patches.mT if entries <= positions else patches.mT @ patches
    size = gram.diagonal(dim1=1, dim2=2).sum(1)
    scale = size.clamp(min=1e-280)
    gram = gram / scale[:, None, None]
    logarithm = torch.zeros_like(scale)
    power = 1.0
    for _ in range(_SQUARINGS):
        gram, power = gram @ gram, 2.0 * power
        again = gram.diagonal(dim1=1, dim2=2).sum(1).clamp(min=1e-280)
        gram = gram / again[:, None, None]
        logarithm = logarithm + again.log() / power
    # One squaring more, of which only the trace is needed: it is the squared Frobenius norm.
    last = gram.square().sum((1, 2)).clamp(min=1e-280)
    logarithm = logarithm + last.log() / (2.0 * power)
    norm = (scale * logarithm.exp()).sqrt() * (1.0 + 1e-9)
    return torch.where(size > 0, torch.minimum(norm, size.sqrt() * (1.0 + 1e-9)), 0.0)


def window_positions(stage: Stage) -> Tensor:
    """Which positions each pooling window covers: (window, windows)."""
    device = stage.layer.weight.device
    numbers = torch.arange(stage.positions, dtype=torch.float64, device=device)
    image = numbers.reshape(1, 1, *stage.middle[1:])
    pool = stage.pool
    return functional.unfold(image, pool.kernel, stride=pool.stride)[0].round().long()


def with_bias(stage: Stage, patches: Tensor) -> Tensor:
    """Patches with the constant that meets the bias, where there is one.

    Noise on a bias is smaller than on a weight: a bias meets every position.
    """
    if stage.layer.bias is None:
        return patches
    return functional.pad(patches, (0, 0, 0, 1), value=1.0 / math.sqrt(stage.positions))


def _apart(stage: Stage, patches: Tensor) -> Tensor:
    windows = patches[:, :, window_positions(stage)]
    rows = [
        (windows - windows[:, :, a : a + 1]).square().sum(1).sqrt() for a in range(windows.shape[2])
    ]
    return torch.stack(rows, dim=1)


def pieces(chain: ConvChain, examples: int, *, copies: int = 4) -> Iterator[slice]:
    """Slices of the examples, few enough at a time for so many copies of every layer."""
    largest = 1
    for stage in chain.stages:
        entries = stage.layer.matrix.shape[1] + 1
        window = stage.pool.kernel[0] * stage.pool.kernel[1] if stage.pool.kind == "max" else 1
        gram = min(entries, stage.positions) ** 2
        largest = max(largest, entries * stage.positions * window, gram)
        largest = max(largest, stage.units * (window + copies))
    size = max(1, min(2048, _BUDGET // largest))
    for start in range(0, examples, size):
        yield slice(start, start + size)
