"""Operators that only move elements: views, permutations, slices, concatenation, padding."""

from __future__ import annotations

import numpy as np

from nonvacuous.networks.log_scale import LogScale, concatenate
from nonvacuous.networks.operators.pointwise import not_homogeneous
from nonvacuous.networks.operators.registry import Passage, aten, register_operator


@register_operator(*aten("view reshape _unsafe_view flatten unflatten view_as reshape_as"))
def reshape(passage: Passage) -> LogScale:
    if passage.node.op == "aten.view.dtype":
        return not_homogeneous(passage)
    return passage.scale("self").reshape(passage.shape)


@register_operator("aten.permute")
def permute(passage: Passage) -> LogScale:
    return passage.scale("self").permute(passage.integers("dims"))


@register_operator("aten.transpose", "aten.t", "aten.numpy_T", "aten.mT", "aten.swapaxes")
def transpose(passage: Passage) -> LogScale:
    scale = passage.scale("self")
    order = list(range(scale.dimensions))
    first = passage.integer("dim0", passage.integer("axis0", -2))
    second = passage.integer("dim1", passage.integer("axis1", -1))
    if passage.node.op.startswith("aten.numpy_T"):
        return scale.permute(order[::-1])
    if scale.dimensions < 2:
        return scale
    a, b = scale.axis(first), scale.axis(second)
    order[a], order[b] = order[b], order[a]
    return scale.permute(order)


@register_operator("aten.movedim")
def move_axes(passage: Passage) -> LogScale:
    scale = passage.scale("self")
    source = [scale.axis(a) for a in passage.integers("source")]
    target = [scale.axis(a) for a in passage.integers("destination")]
    order = [-1] * scale.dimensions
    for old, new in zip(source, target, strict=True):
        order[new] = old
    rest = iter(a for a in range(scale.dimensions) if a not in source)
    return scale.permute([a if a >= 0 else next(rest) for a in order])


@register_operator("aten.squeeze")
def squeeze(passage: Passage) -> LogScale:
    scale = passage.scale("self")
    named = [scale.axis(a) for a in passage.integers("dim")] or list(range(scale.dimensions))
    for axis in sorted(set(named), reverse=True):
        if scale.shape[axis] == 1:
            scale = scale.squeeze(axis)
    return scale


@register_operator("aten.unsqueeze")
def unsqueeze(passage: Passage) -> LogScale:
    return passage.scale("self").unsqueeze(passage.integer("dim"))


@register_operator("aten.expand", "aten.expand_as", "aten.broadcast_to")
def expand(passage: Passage) -> LogScale:
    return passage.scale("self").broadcast_to(passage.shape)


@register_operator("aten.select.int")
def select(passage: Passage) -> LogScale:
    return passage.scale("self").select(passage.integer("dim"), passage.integer("index"))


@register_operator("aten.slice")
def slice_(passage: Passage) -> LogScale:
    scale = passage.scale("self")
    axis = scale.axis(passage.integer("dim"))
    positions = _sliced(passage, scale.shape[axis])
    return scale.take(axis, positions)


def _sliced(passage: Passage, size: int) -> np.ndarray:
    start, end = passage.attribute("start"), passage.attribute("end")
    step = passage.integer("step", 1)
    return np.arange(size)[slice(start, end, step)]


@register_operator("aten.narrow")
def narrow(passage: Passage) -> LogScale:
    start = passage.integer("start")
    positions = np.arange(start, start + passage.integer("length"))
    return passage.scale("self").take(passage.integer("dim"), positions)


@register_operator(*aten("chunk split split_with_sizes tensor_split unsafe_chunk"))
def split(passage: Passage) -> list[LogScale]:
    scale = passage.scale("self")
    axis = scale.axis(passage.integer("dim"))
    ends = np.cumsum([shape[axis] for shape in passage.node.shapes])
    return [
        scale.take(axis, np.arange(end - shape[axis], end))
        for end, shape in zip(ends, passage.node.shapes, strict=True)
    ]


@register_operator("aten.unbind")
def unbind(passage: Passage) -> list[LogScale]:
    scale = passage.scale("self")
    axis = scale.axis(passage.integer("dim"))
    return [scale.select(axis, k) for k in range(scale.shape[axis])]


@register_operator("getitem")
def getitem(passage: Passage) -> LogScale:
    """One of the several results of a node."""
    scales = passage.scales("0")
    return scales[passage.integer("1")]


@register_operator("aten.cat")
def cat(passage: Passage) -> LogScale:
    scales = [s for s in passage.scales("tensors") if s.shape != (0,)]
    return concatenate(scales, passage.integer("dim"))


@register_operator("aten.stack")
def stack(passage: Passage) -> LogScale:
    axis = passage.integer("dim") % len(passage.shape)
    return concatenate([s.unsqueeze(axis) for s in passage.scales("tensors")], axis)


@register_operator("aten.repeat")
def repeat(passage: Passage) -> LogScale:
    """The whole tensor again and again."""
    counts = passage.integers("repeats")
    scale = passage.scale("self")
    scale = scale.broadcast_to((1,) * (len(counts) - scale.dimensions) + scale.shape)
    for axis, count in enumerate(counts):
        scale = scale.take(axis, np.tile(np.arange(scale.shape[axis]), count))
    return scale


@register_operator("aten.repeat_interleave.self_int")
def repeat_interleave(passage: Passage) -> LogScale:
    scale = passage.scale("self")
    if passage.attribute("dim") is None:
        scale = scale.reshape((int(np.prod(scale.shape)),))
    axis = passage.integer("dim") if passage.attribute("dim") is not None else 0
    return scale.repeat_along(axis, passage.integer("repeats"))


@register_operator("aten.pad", "aten.constant_pad_nd")
def pad(passage: Passage) -> LogScale:
    """Zeros may be called scaled by anything; copies of the border are the border's own.

    Another constant would have to scale with the rest, which it does not.
    """
    mode = passage.attribute("mode", "constant")
    value = passage.attribute("value", 0)
    if mode == "constant" and value not in (None, 0):
        return not_homogeneous(passage)
    scale = passage.scale("self")
    sizes = passage.integers("pad")
    for k in range(len(sizes) // 2):
        axis = scale.dimensions - 1 - k
        before, after = sizes[2 * k], sizes[2 * k + 1]
        size = scale.shape[axis]
        depends = any(axis in term.axes for term in scale.terms)
        if depends and mode != "constant":
            scale, depends = passage.constant(scale, [axis]), False
        if not depends:
            shape = (*scale.shape[:axis], size + before + after, *scale.shape[axis + 1 :])
            scale = LogScale(shape, scale.terms)
            continue
        kept = scale.take(axis, np.arange(max(0, -before), size - max(0, -after)))
        pieces = [kept]
        for count, side in ((before, 0), (after, 1)):
            if count > 0:
                shape = (*scale.shape[:axis], count, *scale.shape[axis + 1 :])
                pieces.insert(len(pieces) * side, passage.fresh(shape, axis))
        scale = concatenate(pieces, axis)
    return scale


@register_operator("aten.flip")
def flip(passage: Passage) -> LogScale:
    scale = passage.scale("self")
    for axis in passage.integers("dims"):
        scale = scale.take(axis, np.arange(scale.shape[axis])[::-1])
    return scale


@register_operator("aten.roll")
def roll(passage: Passage) -> LogScale:
    scale = passage.scale("self")
    shifts, axes = passage.integers("shifts"), passage.integers("dims")
    if not axes:
        flat = scale.reshape((int(np.prod(scale.shape)),))
        return flat.take(0, np.roll(np.arange(flat.shape[0]), shifts[0])).reshape(scale.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        scale = scale.take(axis, np.roll(np.arange(scale.shape[axis]), shift))
    return scale


@register_operator("aten.index.Tensor")
def index(passage: Passage) -> LogScale:
    """Positions picked by tensors of indices: along those axes everything must scale alike."""
    scale = passage.scale("self")
    indices = passage.node.arguments["indices"]
    assert isinstance(indices, tuple)
    picked = [axis for axis, entry in enumerate(indices) if entry is not None]
    for entry in indices:
        passage.pin(passage.scale_of(entry), "an index does not scale")
    scale = passage.constant(scale, picked)
    for axis in reversed(picked):
        scale = scale.select(axis, 0)
    neighbors = picked == list(range(picked[0], picked[-1] + 1))
    side = picked[0] if neighbors else 0
    for _ in range(len(passage.shape) - scale.dimensions):
        scale = scale.unsqueeze(side)
    return LogScale(passage.shape, scale.broadcast_to(passage.shape).terms)


@register_operator("aten.view_as_complex")
def view_as_complex(passage: Passage) -> LogScale:
    """Real and imaginary part will be mixed by multiplication: they scale alike."""
    return passage.constant(passage.scale("self"), [-1]).select(-1, 0)


@register_operator("aten.view_as_real")
def view_as_real(passage: Passage) -> LogScale:
    scale = passage.scale("self")
    return scale.unsqueeze(scale.dimensions).broadcast_to(passage.shape)


@register_operator("aten.index_select")
def index_select(passage: Passage) -> LogScale:
    """Which positions are taken is not known here, so they must all scale alike."""
    passage.pin(passage.scale("index"), "an index does not scale")
    axis = passage.integer("dim")
    scale = passage.constant(passage.scale("self"), [axis])
    return LogScale(passage.shape, scale.take(axis, [0]).terms)


@register_operator("aten.copy", "aten.fill")
def overwrite(passage: Passage) -> LogScale:
    """The result is the new content."""
    name = "src" if "src" in passage.node.arguments else "value"
    return LogScale(passage.shape, passage.scale(name).broadcast_to(passage.shape).terms)


@register_operator("aten.slice_scatter", "aten.select_scatter")
def scatter(passage: Passage) -> LogScale:
    """Some positions along an axis replaced by another tensor."""
    scale, source = passage.scale("self"), passage.scale("src")
    axis = scale.axis(passage.integer("dim"))
    size = scale.shape[axis]
    if isinstance(passage.attribute("index"), int):
        positions = np.array([passage.integer("index") % size])
        source = source.unsqueeze(axis)
    else:
        positions = _sliced(passage, size)
    order = np.arange(size)
    order[positions] = size + np.arange(len(positions))
    return concatenate([scale, source], axis).take(axis, order)
