"""The small AlexNet of Zhang et al. (2017): two convolutional blocks and three linear layers.

On inputs of shape (3, 28, 28) and 10 classes it has 1,387,786 parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from nonvacuous.models.cnn import image_shape, pad_for_stride_two


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
        self.layers = nn.Sequential(
            nn.Linear(features, 384),
            nn.ReLU(),
            nn.Linear(384, 192),
            nn.ReLU(),
            nn.Linear(192, classes),
        )
        self._initialize()

    def _initialize(self) -> None:
        # As in the small Inception: weights that keep the size of the signal through ReLU.
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear) and module is not self.layers[-1]:
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class scores of shape (examples, classes)."""
        scores: Tensor = self.layers(self.blocks(inputs).flatten(1))
        return scores
