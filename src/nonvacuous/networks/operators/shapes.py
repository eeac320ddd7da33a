"""Operators that only move elements: views, permutations, slices, concatenation, padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from nonvacuous.networks.log_scale import LogScale, concatenate
from nonvacuous.networks.operators.pointwise import not_homogeneous
from nonvacuous.networks.operators.registry import Passage, aten, register_operator


@register_operator(*aten("view reshape _unsafe_view flatten unflatten view_as reshape_as"))
def reshape(passage: Passage) -> LogScale:
    if passage.node.op == "aten.view.dtype":
        return not_homogeneous(passage)
    return passage.scale("self").reshape(passage.shape)


def _move(x: LogScale, source: Sequence[int], target: Sequence[int]) -> LogScale:
    """Some axes elsewhere: numpy finds the order, with the numbers of axes in place of sizes."""
    return x.permute(np.moveaxis(np.empty(range(x.dimensions)), source, target).shape)


def _transpose(p: Passage, x: LogScale) -> LogScale:
    first = p.integer("dim0", p.integer("axis0", -2))
    second = p.integer("dim1", p.integer("axis1", -1))
    return _move(x, (first, second), (second, first)) if x.dimensions > 1 else x


def _sliced(passage: Passage, size: int) -> np.ndarray:
    start, end = passage.attribute("start"), passage.attribute("end")
    return np.arange(size)[slice(start, end, passage.integer("step", 1))]


def _narrow(p: Passage, x: LogScale) -> LogScale:
    start = p.integer("start")
    return x.take(p.integer("dim"), np.arange(start, start + p.integer("length")))


def _flip(p: Passage, x: LogScale) -> LogScale:
    for axis in p.integers("dims"):
        x = x.take(axis, np.arange(x.shape[axis])[::-1])
    return x


def _squeeze(p: Passage, x: LogScale) -> LogScale:
    named = {x.axis(a) for a in p.integers("dim")} or range(x.dimensions)
    for axis in sorted(named, reverse=True):
        x = x.squeeze(axis) if x.shape[axis] == 1 else x
    return x


def _repeat(p: Passage, x: LogScale) -> LogScale:
    """The whole tensor again and again."""
    counts = p.integers("repeats")
    x = x.broadcast_to((1,) * (len(counts) - x.dimensions) + x.shape)
    for axis, count in enumerate(counts):
        x = x.take(axis, np.tile(np.arange(x.shape[axis]), count))
    return x


def _repeat_interleave(p: Passage, x: LogScale) -> LogScale:
    if p.attribute("dim") is None:
        return x.reshape((math.prod(x.shape),)).repeat_along(0, p.integer("repeats"))
    return x.repeat_along(p.integer("dim"), p.integer("repeats"))


def _roll(p: Passage, x: LogScale) -> LogScale:
    shifts, axes = p.integers("shifts"), p.integers("dims")
    if not axes:
        flat = x.reshape((math.prod(x.shape),))
        return flat.take(0, np.roll(np.arange(flat.shape[0]), shifts[0])).reshape(x.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        x = x.take(axis, np.roll(np.arange(x.shape[axis]), shift))
    return x


#: What becomes of the scale of the one tensor that these operators rearrange.
_MOVES: dict[str, Callable[[Passage, LogScale], LogScale | list[LogScale]]] = {
    "permute": lambda p, x: x.permute(p.integers("dims")),
    "transpose swapaxes t mT": _transpose,
    "numpy_T": lambda p, x: x.permute(range(x.dimensions)[::-1]),
    "movedim": lambda p, x: _move(x, p.integers("source"), p.integers("destination")),
    "squeeze": _squeeze,
    "unsqueeze": lambda p, x: x.unsqueeze(p.integer("dim")),
    "expand expand_as broadcast_to": lambda p, x: x,
    "select.int": lambda p, x: x.select(p.integer("dim"), p.integer("index")),
    "slice": lambda p, x: x.take(p.integer("dim"), _sliced(p, x.shape[p.integer("dim")])),
    "narrow": _narrow,
    "unbind": lambda p, x: [
        x.select(p.integer("dim"), k) for k in range(x.shape[p.integer("dim")])
    ],
    "flip": _flip,
    "roll": _roll,
    "repeat": _repeat,
    "repeat_interleave.self_int": _repeat_interleave,
    # Real and imaginary part will be mixed by multiplication: they scale alike.
    "view_as_complex": lambda p, x: p.constant(x, [-1]).select(-1, 0),
    "view_as_real": lambda p, x: x.unsqueeze(x.dimensions),
}
for _names, _rule in _MOVES.items():
    register_operator(*aten(_names))(lambda p, rule=_rule: rule(p, p.scale("self")))


@register_operator(*aten("chunk split split_with_sizes tensor_split unsafe_chunk"))
def split(passage: Passage) -> list[LogScale]:
    scale = passage.scale("self")
    axis = scale.axis(passage.integer("dim"))
    ends = np.cumsum([shape[axis] for shape in passage.node.shapes])
    return [
        scale.take(axis, np.arange(end - shape[axis], end))
        for end, shape in zip(ends, passage.node.shapes, strict=True)
    ]


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
    return scale


@register_operator("aten.index_select")
def index_select(passage: Passage) -> LogScale:
    """Which positions are taken is not known here, so they must all scale alike."""
    passage.pin(passage.scale("index"), "an index does not scale")
    axis = passage.integer("dim")
    return passage.constant(passage.scale("self"), [axis]).take(axis, [0])


# The result is the new content.
register_operator("aten.copy")(lambda p: p.scale("src"))
register_operator("aten.fill")(lambda p: p.scale("value"))


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
