"""The network under weight noise, without drawing a single weight.

Noise of scale sigma_k on every weight of layer k reaches one example as independent Gaussian noise
of scale s_k = sigma_k |x_{k-1}| on the pre-activations of that layer (with a bias, |x_{k-1}| counts
the constant input 1 too). For one example this is exactly the same distribution, and different
examples get independent noise. Everything is float64, on the device of the layers that are given;
the random numbers of one seed differ between kinds of devices, and are as good on each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.weights import Layers, Network

#: With fewer examples no certificate says anything.
FEWEST = 100
#: Examples at a time on a processor: few enough that a layer's numbers stay in its cache.
CHUNK = 2048
#: Numbers of one tensor on an accelerator, which wants few and large steps: 128 MiB.
_NUMBERS = 2**24
_SMALLEST_SIZE = 1e-120


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


def pieces(layers: Layers, examples: int) -> Iterator[slice]:
    """All examples, a device's helping at a time."""
    size = CHUNK
    if layers.weights[0].device.type != "cpu":
        size = max(CHUNK, _NUMBERS // max(layers.inputs, *layers.widths))
    return (slice(start, start + size) for start in range(0, examples, size))


def standard_noise(layers: Layers, examples: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Standard normal numbers for one pass: one tensor (examples, outputs) per layer."""
    return tuple(
        torch.randn(
            examples,
            matrix.shape[0],
            generator=generator,
            dtype=torch.float64,
            device=generator.device,
        )
        for matrix in layers.weights
    )


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
