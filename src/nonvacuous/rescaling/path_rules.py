"""Edges of layers, sums, products with weights, and of operators that move numbers around."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nonvacuous.networks.layer_graph import Reference
from nonvacuous.rescaling.path_steps import LinearMap, Step, Visit, along, refused, rule_for


def _with_bias(visit: Visit, source: str, extend: LinearMap, shape: tuple[int, ...]) -> Step:
    bias = visit.attribute("bias")
    operands = ((visit.operand(source), extend),)
    if bias is None:
        return Step(operands)
    values = visit.weight("bias").reshape(shape)
    assert isinstance(bias, Reference)
    return Step(operands, values, bias.name)


@rule_for("linear")
def _linear(visit: Visit) -> Step:
    weight = visit.weight("weight")
    return _with_bias(visit, "input", lambda x: F.linear(x, weight), (-1,))


@rule_for("conv1d", "conv2d", "conv3d")
def _convolution(visit: Visit) -> Step:
    weight = visit.weight("weight")
    convolve = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[weight.ndim]
    names = ("stride", "padding", "dilation", "groups")
    arguments: dict[str, Any] = {name: visit.attribute(name) for name in names}

    def extend(x: Tensor) -> Tensor:
        return convolve(x, weight, **arguments)

    return _with_bias(visit, "input", extend, (-1, *(1,) * (weight.ndim - 2)))


@rule_for(
    "relu", "leaky_relu", "dropout", "feature_dropout", "clone", "contiguous", "alias", "detach"
)
def _passes(visit: Visit) -> Step:
    """Activations switch paths on or off, or dim them; they are not part of the product."""
    first = next(iter(visit.node.arguments))
    return Step(((visit.operand(first), lambda x: x),))


@rule_for("neg")
def _negative(visit: Visit) -> Step:
    factor = visit.constant(-1.0)
    return Step(((visit.operand("self"), lambda x: x * factor),))


@rule_for("view", "reshape", "flatten", "_unsafe_view", "squeeze", "unsqueeze")
def _reshape(visit: Visit) -> Step:
    shape = (-1, *visit.node.shape[1:])
    return Step(((visit.operand("self"), lambda x: x.reshape(shape)),))


@rule_for("permute")
def _permute(visit: Visit) -> Step:
    axes = visit.axes("dims", dimensions=len(visit.node.shape))
    if axes[0] != 0:
        raise refused(visit.node, "it moves the axis of the examples")
    return Step(((visit.operand("self"), lambda x: x.permute(axes)),))


@rule_for("transpose.int")
def _transpose(visit: Visit) -> Step:
    first, second = visit.axes("dim0", "dim1", dimensions=len(visit.node.shape))
    if 0 in (first, second):
        raise refused(visit.node, "it moves the axis of the examples")
    return Step(((visit.operand("self"), lambda x: x.transpose(first, second)),))


@rule_for("add", "sub")
def _add(visit: Visit) -> Step:
    sign = -1.0 if visit.node.op.startswith("aten.sub") else 1.0
    factor = visit.constant(sign * visit.number("alpha", 1))
    shape = visit.node.shape[1:]
    operands: list[tuple[Reference, LinearMap]] = []
    bias, name = None, ""
    for argument, weight in (("self", 1.0), ("other", factor)):
        value = visit.node.arguments[argument]
        if isinstance(value, Reference) and value in visit.weights:
            bias, name = visit.weights[value] * weight, value.name
            if bias.ndim > len(shape):
                bias = bias.reshape(bias.shape[-len(shape) :])
            continue
        if not isinstance(value, Reference):
            if value == 0:
                continue
            raise refused(visit.node, f"it adds the number {value!r}, which no weight controls")
        source = visit.operand(argument)
        if visit.shapes[source][1:] != shape:
            raise refused(visit.node, "it adds tensors of different shapes")
        operands.append((source, partial(torch.mul, other=weight)))
    return Step(tuple(operands), bias, name)


@rule_for("maximum", "minimum")
def _extreme(visit: Visit) -> Step:
    """One of the two passes: an edge to each."""
    return Step(tuple((visit.operand(name), lambda x: x) for name in ("self", "other")))


@rule_for("mul", "div")
def _multiply(visit: Visit) -> Step:
    values = {name: visit.node.arguments[name] for name in ("self", "other")}
    divides = visit.node.op.startswith("aten.div")
    factor: Tensor | float | None = None
    for name, value in values.items():
        if isinstance(value, Reference) and value in visit.weights and not divides:
            factor, source = visit.weights[value], "other" if name == "self" else "self"
        elif isinstance(value, int | float):
            number = 1 / value if divides else value
            factor, source = visit.constant(number), "other" if name == "self" else "self"
    if factor is None or (divides and source != "self"):
        raise refused(visit.node, "products of two results have no paths")
    multiplier = factor
    if isinstance(multiplier, Tensor) and multiplier.ndim > len(visit.node.shape):
        raise refused(visit.node, "the weight has more axes than what it multiplies")
    return Step(((visit.operand(source), lambda x: x * multiplier),))


@rule_for("cat")
def _concatenate(visit: Visit) -> Step:
    parts = visit.node.arguments["tensors"]
    (axis,) = visit.axes("dim", dimensions=len(visit.node.shape))
    if not isinstance(parts, tuple) or axis == 0:
        raise refused(visit.node, "it joins examples")
    operands: list[tuple[Reference, LinearMap]] = []
    start, total = 0, visit.node.shape[axis]
    for part in parts:
        if not isinstance(part, Reference) or part not in visit.shapes:
            raise refused(visit.node, "it joins weights to results")
        size = visit.shapes[part][axis]
        matrix = torch.zeros(total, size, dtype=torch.float64)
        matrix[start : start + size] = torch.eye(size, dtype=torch.float64)
        operands.append((part, partial(along, matrix=matrix, axis=axis)))
        start += size
    return Step(tuple(operands))


@rule_for("pad", "constant_pad_nd")
def _pad(visit: Visit) -> Step:
    sizes, value = visit.attribute("pad"), visit.attribute("value")
    if visit.attribute("mode", "constant") != "constant" or value not in (None, 0):
        raise refused(visit.node, "only zeros can be added around an image")
    if not isinstance(sizes, tuple):
        raise refused(visit.node, "its sizes are not known")
    widths: Any = sizes
    return Step(((visit.operand("self"), lambda x: F.pad(x, widths)),))


@rule_for("sum.dim_IntList", "mean.dim", "amax")
def _reduce(visit: Visit) -> Step:
    """A sum, a mean (edges of weight 1/n), or a largest value (an edge to each)."""
    source = visit.operand("self")
    shape = visit.shapes[source]
    numbers = visit.axes("dim", dimensions=len(shape))
    if not numbers or 0 in numbers:
        raise refused(visit.node, "it runs over the examples")
    count = math.prod(shape[a] for a in numbers)
    factor = visit.constant(1 / count) if visit.node.op.startswith("aten.mean") else 1.0
    keep = bool(visit.attribute("keepdim", False))
    return Step(((source, lambda x: x.sum(numbers, keepdim=keep) * factor),))
