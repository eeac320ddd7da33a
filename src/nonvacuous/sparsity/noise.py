"""The network under weight noise: an independent noisy network for every example.

Noise of scale sigma_k on every weight of layer k reaches one example as independent Gaussian noise
of scale s_k = sigma_k |x_{k-1}| on the pre-activations of that layer (with a bias, |x_{k-1}| counts
the constant input 1 too). For one example this is exactly the same distribution, so that no weight
is drawn. Noise on a kernel is shared by all positions: there every example gets kernels of its own.
Everything is float64, on the device of the layers that are given; the random numbers of one seed
differ between kinds of devices, and are as good on each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.conv_chain import ConvChain, Stage
from nonvacuous.sparsity.weights import Layers, Network

#: With fewer examples no certificate says anything.
FEWEST = 100
#: Examples at a time on a processor: few enough that a layer's numbers stay in its cache.
CHUNK = 2048
#: Numbers of one tensor on an accelerator, which wants few and large steps: 128 MiB.
_NUMBERS = 2**24
#: Numbers in the largest tensor of one piece of the examples, where there are convolutions, which
#: need so many copies of every layer.
_CONV_NUMBERS, _COPIES = 2**23, 4
_SMALLEST_SIZE = 1e-120
#: Squarings of the Gram matrix: its size to the power 1/32 is the most that the norm is too large.
_SQUARINGS = 3


class Columns:
    """A dataclass of tensors that have one row for each example, the labels among them."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, chosen: slice | Tensor) -> Self:
        """Some of the examples."""
        names = [entry.name for entry in fields(self)]
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


@dataclass(frozen=True, eq=False)
class Inputs(Columns):
    """What is needed of the examples, computed once per network.

    first    W_1 x + b_1 of the network, (examples, width): the noise of the first layer comes after
    norms    |x_0| (with the constant input, where the first layer has a bias), (examples,)
    known    sizes of the reference network's activations, (examples, layers): column k belongs to
             the input of layer k + 1
    labels   (examples,)
    """

    first: Tensor
    norms: Tensor
    known: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class NoisyPass:
    """One noisy network per example.

    before    pre-activations of each hidden layer, (examples, width) each
    scales    s_k of every layer, (examples,) each; the last belongs to the output layer
    scores    (examples, classes)
    """

    before: tuple[Tensor, ...]
    scales: tuple[Tensor, ...]
    scores: Tensor


def read_inputs(layers: Layers, prior: Layers, examples: Examples) -> Inputs:
    """Run the network and its prior over the examples in pieces; refuse what does not fit."""
    known = prior.reference()
    check_examples(examples, layers)
    layers.check_active(examples.inputs)
    device = layers.weights[0].device
    first, norms, sizes = [], [], []
    with torch.no_grad():
        for piece in pieces(layers, len(examples)):
            flat = examples.inputs[piece].to(device).flatten(1).double()
            first.append(layers.affine(0, flat))
            norms.append(_size(flat, layers.biases[0]))
            read = [flat, *(values.clamp(min=0) for values in known.values(flat)[:-1])]
            columns = [_size(each, bias) for each, bias in zip(read, known.biases, strict=True)]
            sizes.append(torch.stack(columns, dim=1))
    labels = examples.labels.to(device, torch.int64)
    return Inputs(torch.cat(first), torch.cat(norms), torch.cat(sizes), labels)


def check_examples(examples: Examples, network: Network) -> None:
    """Refuse examples that do not fit a network, or are too few."""
    entries = examples.inputs[0].numel() if len(examples) else 0
    if len(examples) and entries != network.inputs:
        raise BadInput(
            f"layer {network.names[0]} takes {network.inputs} inputs, but an example of "
            f"{examples.name} has {entries}; bring data of the shape the network was built for"
        )
    if len(examples) < FEWEST:
        raise BadInput(
            f"{examples.name}: {len(examples)} examples are too few to say anything; give at least "
            f"{FEWEST} that the prior has not seen"
        )
    low, high = int(examples.labels.min()), int(examples.labels.max())
    if low < 0 or high >= network.classes:
        raise BadInput(
            f"{examples.name}: the labels run from {low} to {high}, but layer {network.names[-1]} "
            f"has outputs for 0 to {network.classes - 1}; check that network and data belong "
            "together"
        )


def pieces(network: Network, examples: int) -> Iterator[slice]:
    """All examples, a device's helping at a time."""
    size = CHUNK
    if isinstance(network, ConvChain):
        size = max(1, min(CHUNK, _CONV_NUMBERS // max(map(_largest_tensor, network.stages))))
    elif network.weights[0].device.type != "cpu":
        size = max(CHUNK, _NUMBERS // max(network.inputs, *map(len, network.weights[:-1])))
    return (slice(start, start + size) for start in range(0, examples, size))


def _largest_tensor(stage: Stage) -> int:
    entries = stage.layer.matrix.shape[1] + 1
    window = math.prod(stage.pool.kernel) if stage.pool.kind == "max" else 1
    gram = min(entries, stage.positions) ** 2
    return max(entries * stage.positions * window, gram, stage.units * (window + _COPIES))


def standard_noise(
    network: Network, examples: int, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Standard normal numbers for one pass: outputs of each layer, or kernels at many positions."""
    noise = []
    layers = zip(network.weights, network.biases, network.positions, strict=True)
    for weight, bias, positions in layers:
        kernel = (weight[0].numel() + (bias is not None),) if positions > 1 else ()
        shape = (examples, len(weight), *kernel)
        noise.append(
            torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
        )
    return tuple(noise)


def noisy_pass(
    layers: Layers, inputs: Inputs, sigmas: Sequence[float], noise: Sequence[Tensor]
) -> NoisyPass:
    """Run the network with the given standard noise, scaled layer by layer."""
    scales = [sigmas[0] * inputs.norms]
    values = inputs.first + scales[0][:, None] * noise[0]
    before = []
    for layer in range(1, len(layers.weights)):
        before.append(values)
        hidden = values.clamp(min=0)
        size = _size(hidden, layers.biases[layer])
        scales.append(sigmas[layer] * sound_size(size, hidden))
        values = layers.affine(layer, hidden) + scales[layer][:, None] * noise[layer]
    return NoisyPass(tuple(before), tuple(scales), values)


def clean_pass(layers: Layers, inputs: Inputs) -> NoisyPass:
    """The network itself: a pass whose noise has no scale."""
    values, before = inputs.first, []
    for layer in range(1, len(layers.weights)):
        before.append(values)
        values = layers.affine(layer, values.clamp(min=0))
    return NoisyPass(tuple(before), (), values)


def sound_size(size: Tensor, hidden: Tensor) -> Tensor:
    """The norms of activations, NaN (a loss) where they are too small for float64.

    Squares of smaller numbers vanish, and thresholds with them. Where nothing is active at all,
    every score is the same, which is a loss too.
    """
    return size.where((size > _SMALLEST_SIZE) | (hidden.amax(1) == 0), torch.nan)


def pair_margins(scores: Tensor, labels: Tensor) -> Tensor:
    """Score of the label minus every class's score, (examples, classes); infinite at the label."""
    margins = scores.gather(1, labels[:, None]) - scores
    return margins.scatter(1, labels[:, None], torch.inf)


def _size(values: Tensor, bias: Tensor | None) -> Tensor:
    """The norms of what a layer reads, with the constant that meets its bias."""
    squares = values.square().sum(1)
    return (squares if bias is None else squares + 1.0).sqrt()


# Convolutions: noise on kernels, shared by all positions. Where a layer has one position, noise on
# its outputs has exactly the same distribution and is drawn instead.


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


def conv_pass(
    chain: ConvChain, inputs: ConvInputs, sigmas: Sequence[float], noise: Sequence[Tensor]
) -> ConvPass:
    """:func:`noisy_pass` of a chain of convolutions."""
    images = inputs.images
    seen: list[tuple[Any, ...]] = []
    for stage, sigma, draw in zip(chain.stages, sigmas, noise, strict=True):
        patches = stage.layer.patches(images)
        extended = with_bias(stage, patches)
        lengths = extended.square().sum(1).sqrt()
        values = stage.layer.matrix @ patches
        if stage.layer.bias is not None:
            values = values + stage.layer.bias[:, None]
        if stage.positions > 1:
            values = values + sigma * (draw @ extended)
            most = patch_norm(extended) if seen else inputs.known[:, 0]
        else:
            values = values + (sigma * lengths)[:, None] * draw[:, :, None]
            most = lengths[:, 0]
        gaps = sigma * _apart(stage, patches) if stage.pool.kind == "max" else None
        seen.append((values, sigma * lengths, sigma * most, gaps, extended))
        if stage is not chain.stages[-1]:
            images = _sound(stage.pool(values.clamp(min=0).reshape(-1, *stage.middle)))
    before, units, whole, apart, met = zip(*seen, strict=True)
    return ConvPass(before[:-1], units, whole, apart, met, before[-1][:, :, 0])


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
