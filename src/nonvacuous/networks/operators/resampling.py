"""Operators that move channels into space and back."""

from __future__ import annotations

import numpy as np

from nonvacuous.networks.log_scale import LogScale
from nonvacuous.networks.operators.passage import Passage
from nonvacuous.networks.operators.registry import register_operator


def _channels(passage: Passage, scale: LogScale, spatial: int) -> LogScale:
    """Without the spatial axes, along which nothing may depend."""
    axes = range(scale.dimensions - spatial, scale.dimensions)
    scale = passage.constant(scale, axes)
    for _ in axes:
        scale = scale.take(-1, [0]).squeeze(-1)
    return scale


def _spread(passage: Passage, scale: LogScale) -> LogScale:
    while scale.dimensions < len(passage.shape):
        scale = scale.unsqueeze(scale.dimensions)
    return LogScale(passage.shape, scale.broadcast_to(passage.shape).terms)


@register_operator("aten.pixel_shuffle")
def pixel_shuffle(passage: Passage) -> LogScale:
    """r² channels become one: they scale alike."""
    square = passage.integer("upscale_factor") ** 2
    scale = _channels(passage, passage.scale("self"), 2)
    scale = scale.reshape((*scale.shape[:-1], scale.shape[-1] // square, square))
    return _spread(passage, passage.constant(scale, [-1]).select(-1, 0))


@register_operator("aten.pixel_unshuffle")
def pixel_unshuffle(passage: Passage) -> LogScale:
    """One channel becomes r²."""
    square = passage.integer("downscale_factor") ** 2
    scale = _channels(passage, passage.scale("self"), 2)
    return _spread(passage, scale.repeat_along(-1, square))


@register_operator("aten.channel_shuffle", "aten.native_channel_shuffle")
def channel_shuffle(passage: Passage) -> LogScale:
    scale = passage.scale("self")
    order = np.arange(scale.shape[1]).reshape(passage.integer("groups"), -1).T.ravel()
    return scale.take(1, order)


@register_operator("aten.im2col")
def patches(passage: Passage) -> LogScale:
    """Every channel once per position of the kernel."""
    scale = _channels(passage, passage.scale("self"), 2)
    scale = scale.repeat_along(-1, int(np.prod(passage.integers("kernel_size"))))
    return _spread(passage, scale)


@register_operator("aten.col2im")
def from_patches(passage: Passage) -> LogScale:
    """The patches of a channel are added up: they scale alike."""
    positions = int(np.prod(passage.integers("kernel_size")))
    scale = _channels(passage, passage.scale("self"), 1)
    scale = scale.reshape((*scale.shape[:-1], scale.shape[-1] // positions, positions))
    return _spread(passage, passage.constant(scale, [-1]).select(-1, 0))


@register_operator("aten.glu")
def gated_linear_unit(passage: Passage) -> LogScale:
    """The first half passes, multiplied by the sigmoid of the second, which does not scale."""
    scale = passage.scale("self")
    axis = scale.axis(passage.integer("dim", -1))
    half = scale.shape[axis] // 2
    gate = scale.take(axis, np.arange(half, 2 * half))
    passage.pin(
        gate,
        "the gate goes through a sigmoid",
        "The scales of the gate stay at 1, those of the value pass; a ReLU gate would free both",
    )
    value = scale.take(axis, np.arange(half))
    return LogScale(passage.shape, value.terms)
