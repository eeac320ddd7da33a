"""Operators that mix positions along some axes: pooling, sums, padding, resampling."""

from __future__ import annotations

from collections.abc import Sequence

from nonvacuous.networks.log_scale import LogScale
from nonvacuous.networks.operators.passage import Passage
from nonvacuous.networks.operators.pointwise import not_homogeneous
from nonvacuous.networks.operators.registry import register_operator


def _image(passage: Passage, dimensions: int) -> LogScale:
    """Channels pass; height, width and depth change their size."""
    scale = passage.scale(next(iter(passage.node.arguments)))
    scale = passage.constant(scale, range(scale.dimensions - dimensions, scale.dimensions))
    shape = (*scale.shape[:-dimensions], *([1] * dimensions))
    for axis in range(scale.dimensions - dimensions, scale.dimensions):
        scale = scale.take(axis, [0])
    return LogScale(shape, scale.terms).broadcast_to(passage.shape)


def _pooling(dimensions: int, *names: str) -> None:
    @register_operator(*names)
    def pool(passage: Passage) -> LogScale | list[LogScale]:
        """The largest or mean value of scaled values scales; where it stands does not change."""
        first = _image(passage, dimensions)
        rest = [LogScale(shape) for shape in passage.node.shapes[1:]]
        return [first, *rest] if rest else first


_pooling(
    1,
    "aten.max_pool1d",
    "aten.max_pool1d_with_indices",
    "aten.avg_pool1d",
    "aten.adaptive_avg_pool1d",
    "aten.adaptive_max_pool1d",
    "aten.upsample_nearest1d",
    "aten._upsample_nearest_exact1d",
    "aten.upsample_linear1d",
    "aten.reflection_pad1d",
    "aten.replication_pad1d",
)
_pooling(
    2,
    "aten.max_pool2d",
    "aten.max_pool2d_with_indices",
    "aten.avg_pool2d",
    "aten.adaptive_avg_pool2d",
    "aten.adaptive_max_pool2d",
    "aten.upsample_nearest2d",
    "aten._upsample_nearest_exact2d",
    "aten.upsample_bilinear2d",
    "aten.upsample_bicubic2d",
    "aten.reflection_pad2d",
    "aten.replication_pad2d",
)
_pooling(
    3,
    "aten.max_pool3d",
    "aten.max_pool3d_with_indices",
    "aten.avg_pool3d",
    "aten.adaptive_avg_pool3d",
    "aten.adaptive_max_pool3d",
    "aten.upsample_nearest3d",
    "aten._upsample_nearest_exact3d",
    "aten.upsample_trilinear3d",
    "aten.reflection_pad3d",
    "aten.replication_pad3d",
)


def _reduced(
    passage: Passage, scale: LogScale, axes: Sequence[int], shape: Sequence[int]
) -> LogScale:
    """One value out of all positions along these axes."""
    axes = sorted({scale.axis(axis) for axis in axes}) or list(range(scale.dimensions))
    scale = passage.constant(scale, axes)
    for axis in axes:
        scale = scale.take(axis, [0])
    if len(shape) != scale.dimensions:
        for axis in reversed(axes):
            scale = scale.squeeze(axis)
    return LogScale(tuple(shape), scale.terms)


@register_operator(
    "aten.sum", "aten.mean", "aten.amax", "aten.amin", "aten.max.default", "aten.min.default"
)
def reduce(passage: Passage) -> LogScale:
    return _reduced(passage, passage.scale("self"), passage.integers("dim"), passage.shape)


@register_operator("aten.std", "aten.linalg_vector_norm", "aten.norm")
def norm(passage: Passage) -> LogScale:
    """The length of a scaled vector is scaled; counting its non-zero entries is not."""
    if any(passage.attribute(name) == 0 for name in ("ord", "p")):
        return not_homogeneous(passage)
    return _reduced(passage, passage.scale("self"), passage.integers("dim"), passage.shape)


@register_operator("aten.var")
def variance(passage: Passage) -> LogScale:
    scale = passage.scale("self").power(2)
    return _reduced(passage, scale, passage.integers("dim"), passage.shape)


@register_operator("aten.max.dim", "aten.min.dim")
def extreme_along(passage: Passage) -> list[LogScale]:
    values = _reduced(passage, passage.scale("self"), passage.integers("dim"), passage.shape)
    return [values, LogScale(passage.node.shapes[1])]


@register_operator("aten.argmax", "aten.argmin")
def position_of_extreme(passage: Passage) -> LogScale:
    """Which one is largest does not change when all are scaled alike."""
    _reduced(passage, passage.scale("self"), passage.integers("dim"), passage.shape)
    return LogScale(passage.shape)


@register_operator("aten.cumsum")
def running_sum(passage: Passage) -> LogScale:
    scale = passage.constant(passage.scale("self"), passage.integers("dim"))
    return LogScale(passage.shape, scale.terms)
