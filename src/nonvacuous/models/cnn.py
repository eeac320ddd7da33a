"""Plain networks: the multilayer perceptron, and convolution, ReLU and max-pooling in turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import pad

from nonvacuous.errors import BadInput


def image_shape(name: str, example_shape: Sequence[int], *, least: int = 4) -> tuple[int, int, int]:
    """(channels, height, width), refused where two halvings would leave nothing to look at."""
    if len(example_shape) != 3:
        raise BadInput(
            f"model {name}: it needs images of shape (channels, height, width), not inputs of "
            f"shape {tuple(example_shape)}; use mlp for other inputs"
        )
    channels, height, width = example_shape
    if min(height, width) < least:
        raise BadInput(
            f"model {name}: images of {height} x {width} are too small, it halves them twice; give "
            "images of 4 x 4 or more, or use mlp"
        )
    return channels, height, width


def pad_for_stride_two(inputs: Tensor) -> Tensor:
    """Zeros around maps so that a 3 x 3 window of stride 2 halves their size, rounded up.

    An even size gets one row or column at its end (right, bottom) and none at its start; an odd
    size gets one on either side. That is what TensorFlow calls SAME.
    """
    vertical, horizontal = inputs.shape[-2] % 2, inputs.shape[-1] % 2
    return pad(inputs, (horizontal, 1, vertical, 1))


def keep_signal(layer: nn.Conv2d | nn.Linear) -> None:
    """Initial weights that keep the size of the signal through ReLU, and biases of zero."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def linear_layers(
    incoming: int, widths: Sequence[int], classes: int, *, bias: bool = True
) -> nn.Sequential:
    """A linear layer and ReLU per width, then a linear layer to the classes."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(incoming, width, bias=bias), nn.ReLU()]
        incoming = width
    return nn.Sequential(*layers, nn.Linear(incoming, classes, bias=bias))


class Blocks(nn.Sequential):
    """Layers in turn, but max-pooling before a ReLU that it follows.

    The largest number commutes with ReLU: outputs and slopes are the same to the last bit, and ReLU
    has a quarter of the numbers to look at.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        layers = list(self)
        for first, (layer, after) in enumerate(pairwise(self)):
            if type(layer) is nn.ReLU and type(after) is nn.MaxPool2d:
                layers[first : first + 2] = after, layer
        for layer in layers:
            inputs = layer(inputs)
        return inputs

    def _get_name(self) -> str:
        return "Sequential"  # What a network looks like as text stands in records of runs.


def convolution_block(incoming: int, outgoing: int, *, bias: bool = True) -> list[nn.Module]:
    """A 3 x 3 convolution, ReLU and 2 x 2 max-pooling."""
    return [nn.Conv2d(incoming, outgoing, 3, padding=1, bias=bias), nn.ReLU(), nn.MaxPool2d(2)]


class Cnn(nn.Module):
    """Per channel count a 3 x 3 convolution, ReLU and 2 x 2 max-pooling; then linear layers.

    channels   output channels of each block; every block halves height and width
    hidden     widths of linear layers with ReLU before the last one; none by default
    bias       whether convolutions and linear layers have biases
    """

    def __init__(
        self,
        example_shape: Sequence[int],
        classes: int,
        *,
        channels: Sequence[int],
        hidden: Sequence[int] = (),
        bias: bool = True,
    ) -> None:
        super().__init__()
        incoming, height, width = image_shape("cnn", example_shape, least=1)
        blocks: list[nn.Module] = []
        for outgoing in channels:
            if min(height, width) < 2:
                raise BadInput(
                    f"{len(channels)} pooling blocks are too many for images of "
                    f"{example_shape[1]} x {example_shape[2]}: each halves the size, and nothing "
                    "is left; give fewer channel counts"
                )
            blocks += convolution_block(incoming, outgoing, bias=bias)
            incoming, height, width = outgoing, height // 2, width // 2
        self.blocks = Blocks(*blocks)
        self.layers = linear_layers(incoming * height * width, hidden, classes, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.layers(self.blocks(inputs).flatten(1))
        return scores


class Mlp(nn.Module):
    """Flatten, then a linear layer and ReLU per width, then a linear layer to the classes."""

    def __init__(
        self,
        example_shape: Sequence[int],
        classes: int,
        *,
        widths: Sequence[int],
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.layers = linear_layers(math.prod(example_shape), widths, classes, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.layers(inputs.flatten(1))
        return scores
