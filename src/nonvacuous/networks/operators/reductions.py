"""Operators that mix positions along some axes: pooling, sums, padding, resampling."""

from __future__ import annotations

import math
import re

import numpy as np

from nonvacuous.networks.log_scale import LogScale
from nonvacuous.networks.operators.pointwise import not_homogeneous
from nonvacuous.networks.operators.registry import Passage, aten, register_operator


@register_operator(
    *aten(
        " ".join(
            f"max_pool{d}d max_pool{d}d_with_indices avg_pool{d}d adaptive_avg_pool{d}d "
            f"adaptive_max_pool{d}d upsample_nearest{d}d _upsample_nearest_exact{d}d "
            f"reflection_pad{d}d replication_pad{d}d"
            for d in (1, 2, 3)
        )
    ),
    *aten("upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d"),
)
def pool(passage: Passage) -> LogScale:
    """Channels pass; height, width and depth change their size.

    The largest or mean value of scaled values scales; where it stands does not change.
    """
    dimensions = int(re.findall(r"(\d)d", passage.node.op)[0])
    scale = passage.scale(next(iter(passage.node.arguments)))
    return passage.spread(passage.channels(scale, dimensions))


@register_operator(
    *aten("sum mean amax amin max.default min.default max.dim min.dim argmax argmin"),
    *aten("std var linalg_vector_norm norm"),
)
def reduce(passage: Passage) -> LogScale:
    """One value out of all positions along some axes, which must scale alike.

    The length of a scaled vector is scaled; counting its non-zero entries is not. Which one is
    largest does not change when all are scaled alike.
    """
    if any(passage.attribute(name) == 0 for name in ("ord", "p")):
        return not_homogeneous(passage)
    scale = passage.scale("self").power(2 if passage.node.kind == "var" else 1)
    axes = sorted({scale.axis(axis) for axis in passage.integers("dim")})
    axes = axes or list(range(scale.dimensions))
    scale = passage.constant(scale, axes)
    kept = len(passage.shape) == scale.dimensions
    if 0 in scale.shape:  # nothing was reduced, and nothing scales
        return LogScale(passage.shape)
    for axis in reversed(axes):
        scale = scale.take(axis, [0]) if kept else scale.select(axis, 0)
    return LogScale(passage.shape) if "arg" in passage.node.kind else scale


register_operator("aten.cumsum")(lambda p: p.constant(p.scale("self"), p.integers("dim")))


def _positions(passage: Passage, factor: str) -> int:
    """How many positions of one channel are channels on the other side."""
    kernel = "kernel_size" in passage.node.arguments
    return math.prod(passage.integers("kernel_size")) if kernel else passage.integer(factor) ** 2


@register_operator("aten.pixel_shuffle", "aten.col2im")
def channels_into_space(passage: Passage) -> LogScale:
    """Several channels become one, or are added up as its patches: they scale alike."""
    count = _positions(passage, "upscale_factor")
    scale = passage.scale("self")
    scale = passage.channels(scale, 1 if passage.node.kind == "col2im" else 2)
    scale = scale.reshape((*scale.shape[:-1], scale.shape[-1] // count, count))
    return passage.spread(passage.constant(scale, [-1]).select(-1, 0))


@register_operator("aten.pixel_unshuffle", "aten.im2col")
def space_into_channels(passage: Passage) -> LogScale:
    """One channel becomes several, one for each position."""
    scale = passage.channels(passage.scale("self"), 2)
    return passage.spread(scale.repeat_along(-1, _positions(passage, "downscale_factor")))


@register_operator("aten.channel_shuffle", "aten.native_channel_shuffle")
def channel_shuffle(passage: Passage) -> LogScale:
    scale = passage.scale("self")
    order = np.arange(scale.shape[1]).reshape(passage.integer("groups"), -1).T.ravel()
    return scale.take(1, order)


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
    return scale.take(axis, np.arange(half))
