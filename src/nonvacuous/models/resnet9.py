"""A residual network of nine layers that learns small images in seconds on a GPU.

After the public recipes for fast training on CIFAR-10: convolution, batch normalization and ReLU
throughout, three halvings by pooling, two residual blocks, a linear layer on the maximum per
channel. Of width 64, on inputs of shape (3, 32, 32) and 10 classes, it has 6,573,130 parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from nonvacuous.models.images import image_shape


class Block(nn.Sequential):
    """3 x 3 convolution, batch normalization, ReLU; then, if asked, 2 x 2 max-pooling."""

    def __init__(self, incoming: int, outgoing: int, *, pool: bool = False) -> None:
        layers = [
            nn.Conv2d(incoming, outgoing, 3, padding=1, bias=False),
            nn.BatchNorm2d(outgoing),
            nn.ReLU(),
        ]
        super().__init__(*layers, *([nn.MaxPool2d(2, ceil_mode=True)] if pool else []))


class Residual(nn.Module):
    """Two blocks, and the input added to what comes out."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(channels, channels), Block(channels, channels))

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps of the same shape."""
        total: Tensor = inputs + self.blocks(inputs)
        return total


class ResNet9(nn.Module):
    """Widths w, 2w, 4w and 8w; residual blocks at 2w and 8w.

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
            Block(channels, width),
            Block(width, 2 * width, pool=True),
            Residual(2 * width),
            Block(2 * width, 4 * width, pool=True),
            Block(4 * width, 8 * width, pool=True),
            Residual(8 * width),
        )
        self.output = nn.Linear(8 * width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class scores of shape (examples, classes)."""
        features: Tensor = self.blocks(inputs).amax(dim=(2, 3))
        if self.mirror and not self.training:
            features = (features + self.blocks(inputs.flip(3)).amax(dim=(2, 3))) / 2
        scores: Tensor = 0.125 * self.output(features)
        return scores
