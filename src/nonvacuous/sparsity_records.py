"""The parts of a certificate for one fixed network: layers, their noise, and every term paid."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from nonvacuous.kinds import Center
from nonvacuous.records import Count, Digest, Nats, PositiveCount, Probability, Record, Text


class ChargeRecord(Record):
    """One choice inside a loss, in words, and the nats that naming it costs."""

    name: Text
    choice: Text
    nats: Nats


#: Sides of images and kernels: what is larger is no image, and must not fill a memory.
_Side = Annotated[int, Field(ge=1, le=4096)]
_Pair = Annotated[tuple[_Side, ...], Field(min_length=2, max_length=2)]
_Margins = Annotated[
    tuple[Annotated[int, Field(ge=0, le=4096)], ...], Field(min_length=2, max_length=2)
]


class PoolingRecord(Record):
    """What follows the ReLU of a convolution."""

    kind: Literal["max", "average"]
    kernel: _Pair
    stride: _Pair
    padding: _Margins
    #: Averages: whether the padding counts among the numbers that are averaged.
    counts_padding: bool


class ConvolutionRecord(Record):
    """How a layer of a convolutional network reads its input; heights before widths.

    A linear layer is a convolution whose kernel covers its input once.
    """

    #: Outputs, channels, height and width.
    kernel: Annotated[tuple[PositiveCount, ...], Field(min_length=4, max_length=4)]
    stride: _Pair
    padding: _Margins
    dilation: _Pair
    pooling: PoolingRecord | None
    #: Places at which the kernel reads: all of them share one noise.
    positions: PositiveCount
    #: Noise of the bias: the layer's scale over the root of the positions; None without a bias.
    bias_scale: Annotated[float, Field(gt=0.0)] | None


class NoiseLayer(Record):
    """One layer of the certified network: its noise, and how far it is from the prior's."""

    unwritten = ("convolution",)

    name: Text
    #: The tensors of the network that it is made of.
    tensors: Annotated[tuple[Text, ...], Field(min_length=1)]
    scale: Annotated[float, Field(gt=0.0)]
    #: In a convolutional network a bias counts as often as the layer has positions.
    squared_distance: Nats
    #: For convolutional networks alone; perceptrons do not have this field.
    convolution: ConvolutionRecord | None = None


#: A whole number, a word, a switch, or whole numbers: what a setting is made of.
Choice = bool | int | str | tuple[int, ...] | None


class SparsityRecord(Record):
    """Every term of a certificate for one fixed network by derandomization.

    Noise is put on the weights, a loss that forgives the noise is bounded, and the fixed network
    inherits the bound: docs/theory/sparsity.md.
    """

    unwritten = ("images",)

    #: Which proof: A, D, E or F.
    theorem: Text
    variant: Literal["sparse", "dense"]
    layers: Annotated[tuple[NoiseLayer, ...], Field(min_length=2)]
    #: SHA-256 over the numbers of all layers.
    network_digest: Digest
    #: With at most this chance the noisy loss misses an error of the network.
    escape: Annotated[float, Field(gt=0.0, lt=1.0)]
    #: Everything that was chosen, as positions on grids that were fixed before the data.
    setting: dict[str, Choice]
    charges: Annotated[tuple[ChargeRecord, ...], Field(min_length=1)]
    #: The sum of the charges, rounded up: ln(1/w) of the setting.
    grid_nats: Nats
    #: How many certificates, named in advance, this one was chosen from at a charge in nats.
    choices: PositiveCount
    #: Noisy networks for each example; 0 where the theorem needs no noise.
    passes: Count
    #: Upper end of the mean noisy loss: what the bound starts from.
    loss_upper: Probability
    #: The kind of device that drew the noise: others draw other numbers from the same seed.
    device: Literal["cpu", "cuda"]
    #: Where the prior is centered, and the part of all examples that shaped it.
    prior: Center
    prior_fraction: Probability
    #: Norms of the bound examples: every threshold uses each example's own.
    shortest_input: Nats
    longest_input: Nats
    #: Medians of what the margin must exceed and of the noisy margin, for people to read; None
    #: where the half of all examples has no finite one.
    threshold: float | None
    margin: float | None
    #: For convolutional networks alone: channels, height and width of an input.
    images: Annotated[tuple[PositiveCount, ...], Field(min_length=3, max_length=3)] | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> SparsityRecord:
        if any((layer.convolution is None) != (self.images is None) for layer in self.layers):
            raise ValueError("a convolutional network has images, and a kernel in every layer")
        return self
