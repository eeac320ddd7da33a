"""The small networks of Zhang et al. (2017): Inception, with and without batch normalization, and
AlexNet, with two convolutional blocks and three linear layers.

On inputs of shape (3, 28, 28) and 10 classes both variants of Inception have 1,649,402 parameters:
a batch normalization whose scale is fixed at 1 learns one shift per channel, as many numbers as the
biases of the convolutions that it stands in for. AlexNet has 1,387,786.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nonvacuous.models.cnn import image_shape, keep_signal, linear_layers, pad_for_stride_two

_BEFORE = ((32, 32), (32, 48))
_BETWEEN = ((112, 48), (96, 64), (80, 80), (48, 96))
_AFTER = ((176, 160), (176, 160))


class ShiftBatchNorm(nn.BatchNorm2d):
    """Batch normalization that learns a shift per channel while its scale stays at 1.

    The fixed scale is a buffer: it has no price.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-3)
        del self.weight
        self.register_buffer("weight", torch.ones(channels))


class Convolution(nn.Module):
    """Convolution, batch normalization (or else a bias), ReLU; stride 2 pads right and bottom."""

    def __init__(
        self, incoming: int, outgoing: int, size: int, *, stride: int = 1, batch_norm: bool
    ) -> None:
        super().__init__()
        self.halves = stride == 2
        padding = 0 if self.halves else size // 2
        self.convolution = nn.Conv2d(
            incoming, outgoing, size, stride=stride, padding=padding, bias=not batch_norm
        )
        # torch's own initial weights shrink the signal sixfold in variance at every ReLU layer: a
        # dozen layers without batch normalization would pass on nothing to learn from.
        keep_signal(self.convolution)
        self.norm = ShiftBatchNorm(outgoing) if batch_norm else nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps of the same height and width, or half of them (rounded up)."""
        padded = pad_for_stride_two(inputs) if self.halves else inputs
        normalized: Tensor = self.norm(self.convolution(padded))
        return normalized.relu()


class Inception(nn.Module):
    """A 1 x 1 and a 3 x 3 convolution side by side, their channels joined."""

    def __init__(self, incoming: int, narrow: int, wide: int, *, batch_norm: bool) -> None:
        super().__init__()
        self.narrow = Convolution(incoming, narrow, 1, batch_norm=batch_norm)
        self.wide = Convolution(incoming, wide, 3, batch_norm=batch_norm)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps with narrow + wide channels."""
        return torch.cat([self.narrow(inputs), self.wide(inputs)], dim=1)


class Downsample(nn.Module):
    """A 3 x 3 convolution and a 3 x 3 max-pooling, both of stride 2, their channels joined."""

    def __init__(self, incoming: int, outgoing: int, *, batch_norm: bool) -> None:
        super().__init__()
        self.convolution = Convolution(incoming, outgoing, 3, stride=2, batch_norm=batch_norm)
        self.pool = nn.MaxPool2d(3, stride=2)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps of half the height and width (rounded up) with incoming + outgoing channels."""
        # Zeros as padding never win a maximum over the outputs of a ReLU.
        pooled = self.pool(pad_for_stride_two(inputs))
        return torch.cat([self.convolution(inputs), pooled], dim=1)


class SmallInception(nn.Module):
    """Convolution, two Inception modules, halving, four, halving, two, global mean, linear.

    batch_norm   normalize every convolution's output; otherwise the convolutions have biases
    """

    def __init__(
        self, example_shape: Sequence[int], classes: int, *, batch_norm: bool = True
    ) -> None:
        super().__init__()
        channels, _, _ = image_shape("inception", example_shape)
        layers: list[nn.Module] = [Convolution(channels, 96, 3, batch_norm=batch_norm)]
        channels = 96
        for group, halving in ((_BEFORE, 80), (_BETWEEN, 96), (_AFTER, 0)):
            for narrow, wide in group:
                layers.append(Inception(channels, narrow, wide, batch_norm=batch_norm))
                channels = narrow + wide
            if halving:
                layers.append(Downsample(channels, halving, batch_norm=batch_norm))
                channels += halving
        self.blocks = nn.Sequential(*layers)
        self.output = nn.Linear(channels, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.output(self.blocks(inputs).mean(dim=(2, 3)))
        return scores


class Block(nn.Module):
    """5 x 5 convolution, ReLU, 3 x 3 max-pooling of stride 2, normalization across channels."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(incoming, outgoing, 5, padding=2)
        self.pool = nn.MaxPool2d(3, stride=2)
        self.norm = nn.LocalResponseNorm(9, alpha=1e-3, beta=0.75, k=1.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps of half the height and width (rounded up)."""
        # Zeros as padding never win a maximum over the outputs of a ReLU.
        maps = pad_for_stride_two(self.convolution(inputs).relu())
        normalized: Tensor = self.norm(self.pool(maps))
        return normalized


class SmallAlexNet(nn.Module):
    """Two blocks of 64 channels, then linear layers of 384 and 192 units with ReLU, then linear."""

    def __init__(self, example_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape("alexnet", example_shape)
        self.blocks = nn.Sequential(Block(channels, 64), Block(64, 64))
        features = 64 * (-(-height // 4)) * (-(-width // 4))
        self.layers = linear_layers(features, (384, 192), classes)
        # As in the small Inception: weights that keep the size of the signal through ReLU.
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear) and module is not self.layers[-1]:
                keep_signal(module)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.layers(self.blocks(inputs).flatten(1))
        return scores
