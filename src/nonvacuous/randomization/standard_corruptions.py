"""The corruptions of Zhang et al. (2017): labels drawn anew, pixels moved, noise for images."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from nonvacuous.randomization.registry import (
    CORRUPTIONS,
    ImageRule,
    Setting,
    register_corruption,
)


@register_corruption("true", description="true labels, inputs as they are", what="nothing")
def _true(setting: Setting) -> None:
    return None


@register_corruption(
    "partial",
    description="each label, with this probability, drawn anew from all classes",
    what="labels",
    takes_strength=True,
)
@register_corruption(
    "random-labels", description="every label drawn anew from all classes", what="labels"
)
def _redrawn_labels(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    count, old = len(setting.train), setting.train.labels.cpu().numpy()
    # Both are drawn for all examples whatever the strength: a stronger corruption under the same
    # seed then changes the same labels in the same way, and others besides.
    mask = setting.generator("which labels").random(count) < setting.strength
    new = setting.generator("new labels").integers(0, setting.train.classes, count)
    return np.where(mask, new, old), mask


@register_corruption(
    "shuffled-pixels",
    description="the pixels of all images, training and test, in one random order",
    what="inputs",
)
def _shuffled_pixels(setting: Setting) -> ImageRule:
    shape = setting.train.example_shape
    order = torch.from_numpy(setting.generator("pixel order").permutation(_positions(shape)))
    order = order.to(setting.train.inputs.device)
    return lambda image, random: _reordered(image, order)


@register_corruption(
    "random-pixels",
    description="the pixels of each image in a random order of its own",
    what="inputs",
)
def _random_pixels(setting: Setting) -> ImageRule:
    positions = _positions(setting.train.example_shape)

    def rule(image: Tensor, random: np.random.Generator) -> Tensor:
        order = torch.from_numpy(random.permutation(positions)).to(image.device)
        return _reordered(image, order)

    return rule


@register_corruption(
    "gaussian",
    description="Gaussian noise with the mean and variance of each channel, no image at all",
    what="inputs",
)
def _gaussian(setting: Setting) -> ImageRule:
    means, deviations = setting.channel_statistics

    def rule(image: Tensor, random: np.random.Generator) -> Tensor:
        noise = torch.from_numpy(random.standard_normal(tuple(image.shape))).to(means.device)
        return (means + deviations * noise).to(image.dtype)

    return rule


def _positions(shape: tuple[int, ...]) -> int:
    """How many pixels: the channels of an image (channels, height, width) move together."""
    pixels = shape[1:] if len(shape) > 2 else shape
    return math.prod(pixels)


def _reordered(image: Tensor, order: Tensor) -> Tensor:
    return image.reshape(-1, len(order))[:, order].reshape(image.shape)


STANDARD: tuple[str, ...] = tuple(CORRUPTIONS)
"""The names of the corruptions that the library brings along."""
