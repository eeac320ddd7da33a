"""What the networks for images share: the check of their input's shape, and padding."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import pad

from nonvacuous.errors import BadInput


def image_shape(name: str, example_shape: Sequence[int]) -> tuple[int, int, int]:
    """(channels, height, width), refused where two halvings would leave nothing to look at."""
    if len(example_shape) != 3:
        raise BadInput(
            f"model {name}: it needs images of shape (channels, height, width), not inputs of "
            f"shape {tuple(example_shape)}; use mlp for other inputs"
        )
    channels, height, width = example_shape
    if min(height, width) < 4:
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
