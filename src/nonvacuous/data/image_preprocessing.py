"""Fixed steps for images, each a function of one image alone, so that nothing is fitted to data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from nonvacuous.data.examples import Dataset, Examples
from nonvacuous.errors import BadInput


def center_crop(inputs: Tensor, size: int) -> Tensor:
    """The middle size x size pixels of images (..., height, width), as a view.

    Where the margin is odd, the larger part of it is cut at the right and at the bottom.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise BadInput(f"center_crop: size = {size!r} is not a number of pixels; give 1 or more")
    if inputs.ndim < 3:
        raise BadInput(
            f"center_crop: a tensor of shape {tuple(inputs.shape)} holds no images; give one of "
            "shape (channels, height, width) or (examples, channels, height, width)"
        )
    height, width = inputs.shape[-2:]
    if size > min(height, width):
        raise BadInput(
            f"center_crop: {size} x {size} pixels cannot be cut out of images of {height} x "
            f"{width}; give a size of at most {min(height, width)}"
        )
    top, left = (height - size) // 2, (width - size) // 2
    return inputs[..., top : top + size, left : left + size]


def whiten_each_image(inputs: Tensor) -> Tensor:
    """Each image shifted and scaled to mean 0 and variance 1 over all its pixels and channels.

    (x - mean) / max(standard deviation, 1 / sqrt(number of values)): the floor keeps an image of
    one color from being divided by nothing. ``inputs`` has shape (examples, ...).
    """
    if inputs.ndim < 2 or not inputs.is_floating_point():
        raise BadInput(
            f"whiten_each_image: give floating-point images of shape (examples, ...), not "
            f"{inputs.dtype} of shape {tuple(inputs.shape)}"
        )
    values = inputs.flatten(1)
    means = values.mean(dim=1, keepdim=True)
    deviations = values.std(dim=1, correction=0, keepdim=True)
    floor = 1.0 / math.sqrt(max(values.shape[1], 1))
    return ((values - means) / deviations.clamp(min=floor)).reshape(inputs.shape)


def cropped(dataset: Dataset, size: int) -> Dataset:
    """The data set with every image cropped; the step is recorded in `preprocessing`."""
    return _both(dataset, lambda part: center_crop(part, size), f"center crop {size}")


def whitened(dataset: Dataset) -> Dataset:
    """The data set with every image whitened; the step is recorded in `preprocessing`."""
    return _both(dataset, whiten_each_image, "whiten each image")


def _both(dataset: Dataset, step: Callable[[Tensor], Tensor], words: str) -> Dataset:
    def stepped(part: Examples) -> Examples:
        return replace(
            part,
            inputs=step(part.inputs).contiguous(),
            preprocessing=(*part.preprocessing, words),
        )

    return Dataset(stepped(dataset.train), None if dataset.test is None else stepped(dataset.test))
