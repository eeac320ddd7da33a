"""The residual networks of He et al. (2016) for small images, with and without batch normalization.

On inputs of shape (3, 32, 32) and 10 classes those with 20, 32, 56 and 110 layers have 269,722,
464,154, 853,018 and 1,727,962 parameters with batch normalization: shortcuts have none.
And one of nine layers that learns small images in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from nonvacuous.models.cnn import image_shape, keep_signal

_STAGES = (16, 32, 64)


def _convolution(incoming: int, outgoing: int, *, stride: int, bias: bool) -> nn.Conv2d:
    layer = nn.Conv2d(incoming, outgoing, 3, stride=stride, padding=1, bias=bias)
    keep_signal(layer)
    return layer


class Residual(nn.Module):
    """Two convolutions, the input added to what comes out, ReLU.

    Where the maps shrink, the shortcut takes every second pixel and fills new channels with zeros.

    damping   without batch normalization: scales the first convolution's initial weights, so that
              the signal does not grow with the number of blocks (Zhang, Dauphin, Ma 2019)
    """

    def __init__(
        self, incoming: int, outgoing: int, *, stride: int, batch_norm: bool, damping: float
    ) -> None:
        super().__init__()
        self.stride, self.added = stride, outgoing - incoming
        self.first = _convolution(incoming, outgoing, stride=stride, bias=not batch_norm)
        self.first_norm = nn.BatchNorm2d(outgoing) if batch_norm else nn.Identity()
        self.second = _convolution(outgoing, outgoing, stride=1, bias=not batch_norm)
        self.second_norm = nn.BatchNorm2d(outgoing) if batch_norm else nn.Identity()
        if not batch_norm:
            with torch.no_grad():
                self.first.weight.mul_(damping)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps of the same height and width, or half of them (rounded up)."""
        hidden = self.first_norm(self.first(inputs)).relu()
        shortcut = inputs[:, :, :: self.stride, :: self.stride] if self.stride > 1 else inputs
        if self.added:
            shortcut = pad(shortcut, (0, 0, 0, 0, self.added // 2, self.added - self.added // 2))
        total: Tensor = self.second_norm(self.second(hidden)) + shortcut
        return total.relu()


class SmallResNet(nn.Module):
    """Convolution, three stages of residual blocks with 16, 32 and 64 channels, mean, linear.

    depth        number of layers with weights: 8, 14, 20, 26, ... (six for each block of a stage,
                 and two)
    batch_norm   normalize every convolution's output; otherwise the convolutions have biases
    """

    def __init__(
        self, example_shape: Sequence[int], classes: int, *, depth: int, batch_norm: bool = True
    ) -> None:
        super().__init__()
        channels, _, _ = image_shape("resnet", example_shape)
        blocks = (depth - 2) // 6
        self.first = _convolution(channels, _STAGES[0], stride=1, bias=not batch_norm)
        self.norm = nn.BatchNorm2d(_STAGES[0]) if batch_norm else nn.Identity()
        damping = (len(_STAGES) * blocks) ** -0.5
        layers: list[nn.Module] = []
        channels = _STAGES[0]
        for stage, wide in enumerate(_STAGES):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                layers.append(
                    Residual(channels, wide, stride=stride, batch_norm=batch_norm, damping=damping)
                )
                channels = wide
        self.blocks = nn.Sequential(*layers)
        self.output = nn.Linear(channels, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        values = self.norm(self.first(inputs)).relu()
        scores: Tensor = self.output(self.blocks(values).mean(dim=(2, 3)))
        return scores


class ConvBlock(nn.Sequential):
    """3 x 3 convolution, batch normalization, ReLU; then, if asked, 2 x 2 max-pooling."""

    def __init__(self, incoming: int, outgoing: int, *, pool: bool = False) -> None:
        layers = [
            nn.Conv2d(incoming, outgoing, 3, padding=1, bias=False),
            nn.BatchNorm2d(outgoing),
            nn.ReLU(),
        ]
        super().__init__(*layers, *([nn.MaxPool2d(2, ceil_mode=True)] if pool else []))


class ResidualPair(nn.Module):
    """Two blocks, and the input added to what comes out."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(ConvBlock(channels, channels), ConvBlock(channels, channels))

    def forward(self, inputs: Tensor) -> Tensor:
        total: Tensor = inputs + self.blocks(inputs)
        return total


class ResNet9(nn.Module):
    """Nine layers that learn small images in seconds on a GPU.

    After the public recipes for fast training on CIFAR-10: convolution, batch normalization and
    ReLU throughout, three halvings by pooling, two residual blocks, a linear layer on the maximum
    per channel. Of width 64, on inputs of shape (3, 32, 32) and 10 classes, it has 6,573,130
    parameters. Widths w, 2w, 4w and 8w; residual blocks at 2w and 8w.

    The scores are multiplied by an eighth: so the first steps neither saturate nor crawl.

    mirror   a prediction is the mean over an image and its mirror image; training sees one of them
    """

    def __init__(
        self, example_shape: Sequence[int], classes: int, *, width: int = 64, mirror: bool = False
    ) -> None:
        super().__init__()
        self.mirror = mirror
        channels, _, _ = image_shape("resnet9", example_shape)
        self.blocks = nn.Sequential(
            ConvBlock(channels, width),
            ConvBlock(width, 2 * width, pool=True),
            ResidualPair(2 * width),
            ConvBlock(2 * width, 4 * width, pool=True),
            ConvBlock(4 * width, 8 * width, pool=True),
            ResidualPair(8 * width),
        )
        self.output = nn.Linear(8 * width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.blocks(inputs).amax(dim=(2, 3))
        if self.mirror and not self.training:
            features = (features + self.blocks(inputs.flip(3)).amax(dim=(2, 3))) / 2
        scores: Tensor = 0.125 * self.output(features)
        return scores
