"""The plain convolutional network: convolution, ReLU and max-pooling, then linear layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from nonvacuous.errors import BadInput


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
        if len(example_shape) != 3:
            raise BadInput(
                f"a convolutional network needs inputs of shape (channels, height, width), not "
                f"{tuple(example_shape)}; use mlp for other inputs"
            )
        incoming, height, width = example_shape
        blocks: list[nn.Module] = []
        for outgoing in channels:
            if min(height, width) < 2:
                raise BadInput(
                    f"{len(channels)} pooling blocks are too many for images of "
                    f"{example_shape[1]} x {example_shape[2]}: each halves the size, and nothing "
                    "is left; give fewer channel counts"
                )
            convolution = nn.Conv2d(incoming, outgoing, 3, padding=1, bias=bias)
            blocks += [convolution, nn.ReLU(), nn.MaxPool2d(2)]
            incoming, height, width = outgoing, height // 2, width // 2
        self.blocks = nn.Sequential(*blocks)
        layers: list[nn.Module] = []
        features = incoming * height * width
        for size in hidden:
            layers += [nn.Linear(features, size, bias=bias), nn.ReLU()]
            features = size
        layers.append(nn.Linear(features, classes, bias=bias))
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Class scores of shape (examples, classes)."""
        scores: Tensor = self.layers(self.blocks(inputs).flatten(1))
        return scores
