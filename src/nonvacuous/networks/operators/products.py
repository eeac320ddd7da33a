"""Sums of products: linear layers, convolutions, matrix products, einsum.

What writes a channel multiplies it by λ, what reads it divides by λ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from nonvacuous.networks.layer_graph import Argument, Shape
from nonvacuous.networks.log_scale import LogScale
from nonvacuous.networks.operators.registry import Passage, along, aten, register_operator

Names = Sequence[str]


def _sum_of_products(
    passage: Passage, arguments: Sequence[Argument], names: Sequence[Names], result: Names
) -> LogScale:
    """The scale of an einsum; a weight that is met for the first time gets one unknown per
    position that it writes and one per position that it reads."""
    operands = []
    for k, (argument, own) in enumerate(zip(arguments, names, strict=True)):
        others = {name for j, each in enumerate(names) if j != k for name in each}
        written = [a for a, name in enumerate(own) if name in result]
        read = [a for a, name in enumerate(own) if name not in result]
        shape = passage.shape_of(argument)
        layout: list[tuple[tuple[int, ...], np.ndarray]] = []
        if written:
            layout.append(along(shape, written))
        if read:
            shared = [a for a in written if own[a] in others]
            layout.append(along(shape, [*shared, *read]))
        operands.append((passage.scale_of(argument, layout), own))
    return passage.product(operands, result)


def _with_bias(passage: Passage, scale: LogScale, name: str = "bias") -> LogScale:
    return passage.tie(scale, passage.scale(name)) if passage.has(name) else scale


@register_operator("aten.linear")
def linear(passage: Passage) -> LogScale:
    arguments = [passage.node.arguments[name] for name in ("input", "weight")]
    front = [f"n{k}" for k in range(len(passage.shape_of(arguments[0])) - 1)]
    weight = ["o", "i"] if len(passage.shape_of(arguments[1])) == 2 else ["i"]
    result = [*front, *weight[:-1]]
    scale = _sum_of_products(passage, arguments, [[*front, "i"], weight], result)
    return _with_bias(passage, scale)


@register_operator(*aten("matmul mm bmm mv dot vdot"))
def matmul(passage: Passage) -> LogScale:
    left, right = list(passage.node.arguments.values())[:2]
    return _matrix_product(passage, left, right)


def _matrix_product(passage: Passage, left: Argument, right: Argument) -> LogScale:
    ranks = [len(passage.shape_of(argument)) for argument in (left, right)]
    front = [f"n{k}" for k in range(max(*ranks, 2) - 2)]
    first = [*front, "m", "i"][-ranks[0] :]
    second = [*front, "i", "p"][-ranks[1] :] if ranks[1] > 1 else ["i"]
    result = [*front, *(name for name in "mp" if name in (*first, *second))]
    return _sum_of_products(passage, [left, right], [first, second], result)


@register_operator("aten.addmm", "aten.baddbmm")
def addmm(passage: Passage) -> LogScale:
    _, left, right = list(passage.node.arguments.values())[:3]
    return _with_bias(passage, _matrix_product(passage, left, right), "self")


@register_operator("aten.bilinear")
def bilinear(passage: Passage) -> LogScale:
    arguments = [passage.node.arguments[name] for name in ("input1", "weight", "input2")]
    front = [f"n{k}" for k in range(len(passage.shape) - 1)]
    names = [[*front, "i"], ["o", "i", "j"], [*front, "j"]]
    return _with_bias(passage, _sum_of_products(passage, arguments, names, [*front, "o"]))


@register_operator("aten.einsum")
def einsum(passage: Passage) -> LogScale:
    tensors = passage.node.arguments["tensors"]
    equation = passage.attribute("equation")
    assert isinstance(tensors, tuple) and isinstance(equation, str)
    ranks = [len(passage.shape_of(tensor)) for tensor in tensors]
    names, result = _einsum_names(equation, ranks)
    if any(len(set(own)) < len(own) for own in names):
        passage.pin_all(
            "einsum that takes a diagonal", "Take the diagonal with torch.diagonal, outside einsum"
        )
        return LogScale(passage.shape)
    return _sum_of_products(passage, tensors, names, result)


def _einsum_names(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The axis names of every operand and of the result, with the dots spelled out."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    parts = inputs.split(",")
    pairs = list(zip(parts, ranks, strict=True))
    dotted = [rank - len(part.replace("...", "")) for part, rank in pairs if "..." in part]
    widest = max(dotted, default=0)

    def spelled(part: str, rank: int) -> list[str]:
        before, dots, after = part.partition("...")
        count = rank - len(before) - len(after) if dots else 0
        return [*before, *(f".{k}" for k in range(widest - count, widest)), *after]

    names = [spelled(part, rank) for part, rank in pairs]
    if arrow:
        return names, spelled(output, len(output.replace("...", "")) + widest)
    letters = Counter("".join(parts).replace("...", ""))
    once = sorted(letter for letter, count in letters.items() if count == 1)
    return names, [*(f".{k}" for k in range(widest)), *once]


@register_operator(*aten("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"))
def convolution(passage: Passage) -> LogScale:
    """Every position of the image is treated alike, so only channels scale."""
    shape = passage.shape_of(passage.node.arguments["weight"])
    groups = passage.integer("groups", 1)
    layout, names = [along(shape, (0,)), _by_group(shape, groups)], "goi"
    if "transpose" in passage.node.op:
        layout, names = layout[::-1], "gio"
    weight = passage.scale("weight", layout).split(0, (groups, shape[0] // groups))
    spatial = weight.dimensions - 3
    image = passage.scale("input")
    channel = image.dimensions - spatial - 1
    image = passage.channels(image, spatial)
    image = image.split(channel, (groups, image.shape[channel] // groups))
    front = [f"n{k}" for k in range(channel)]
    kernel = [f"k{k}" for k in range(spatial)]
    scale = passage.product(
        [(image, [*front, "g", "i"]), (weight, [*names, *kernel])], [*front, "g", "o"]
    )
    return passage.spread(_with_bias(passage, scale.reshape(passage.shape[: channel + 1])))


def _by_group(shape: Shape, groups: int) -> tuple[tuple[int, ...], np.ndarray]:
    """One unknown per group and position along axis 1: axis 0 runs through the groups."""
    if groups == 1:
        return along(shape, (1,))
    numbers = np.arange(groups * shape[1]).reshape(groups, shape[1])
    spread = np.repeat(numbers, shape[0] // groups, axis=0)
    return (0, 1), spread.reshape((*spread.shape, *(1 for _ in shape[2:])))
