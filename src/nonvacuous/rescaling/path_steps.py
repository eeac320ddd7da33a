"""The edges of a network, operator by operator: along which a path can go, and their weights.

Unrolled to single numbers, a network of the supported kinds is a graph in which every neuron adds
up weighted neurons before it and a bias, and then applies an activation that only switches paths
on or off (or dims them). A rule gives the linear part of one operator: a map for each tensor that
it reads, and the biases that start new paths. The maps are made of *lifted* weights: the weights
themselves, or their absolute values to a power, or ones, depending on what is asked. Constants in
the graph, such as the 1/k of an average over k numbers, are edge weights too and are lifted alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nonvacuous.errors import NotYetSupported
from nonvacuous.networks.layer_graph import Argument, Node, Reference

LinearMap = Callable[[Tensor], Tensor]
Lift = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Step:
    """What one operator does to paths: extend those at its operands, and start some of its own.

    ``bias`` broadcasts to the result of one example; ``bias_name`` says whose it is.
    """

    operands: tuple[tuple[Reference, LinearMap], ...]
    bias: Tensor | None = None
    bias_name: str = ""


@dataclass(frozen=True, eq=False)
class Visit:
    """One operator on the way, with the lifted weights that are known so far."""

    node: Node
    lift: Lift
    weights: Mapping[Reference, Tensor]
    shapes: Mapping[Reference, tuple[int, ...]]

    def weight(self, argument: str) -> Tensor:
        value = self.node.arguments[argument]
        if not isinstance(value, Reference) or value not in self.weights:
            raise refused(self.node, f"its {argument} is not a weight of the network")
        return self.weights[value]

    def constant(self, number: float) -> float:
        """A number written into the graph, lifted like a weight."""
        return float(self.lift(torch.tensor(float(number), dtype=torch.float64)))

    def operand(self, argument: str) -> Reference:
        value = self.node.arguments[argument]
        if not isinstance(value, Reference) or value not in self.shapes:
            raise refused(self.node, f"its {argument} is not computed from the input")
        return value

    def attribute(self, argument: str, default: Argument = None) -> Argument:
        return self.node.arguments.get(argument, default)

    def number(self, argument: str, default: float) -> float:
        value = self.attribute(argument, default)
        if not isinstance(value, int | float):
            raise refused(self.node, f"its {argument} is not a plain number")
        return value

    def axes(self, *arguments: str, dimensions: int) -> list[int]:
        """Axes counted from the front, out of one argument with several or several with one."""
        numbers: list[int] = []
        for argument in arguments:
            value = self.attribute(argument)
            for axis in value if isinstance(value, tuple) else (value,):
                if not isinstance(axis, int):
                    raise refused(self.node, f"its {argument} does not name the axes")
                numbers.append(axis % dimensions)
        return numbers


def refused(node: Node, why: str) -> NotYetSupported:
    """The error for an operator through which paths cannot be followed."""
    return NotYetSupported(
        f"paths cannot be followed through {node.layer or node.name!r} ({node.op}): {why}; they "
        "are defined for linear and convolutional layers, ReLU and LeakyReLU, pooling, sums, "
        "concatenation and reshaping (fold batch normalization first: fold_batch_norm)"
    )


Rule = Callable[[Visit], Step]
_RULES: dict[str, Rule] = {}


def rule_for(*names: str) -> Callable[[Rule], Rule]:
    """Give the ATen operators of these names a rule, as a decorator."""

    def register(rule: Rule) -> Rule:
        for name in names:
            _RULES[f"aten.{name}"] = rule
        return rule

    return register


def step_of(visit: Visit) -> Step:
    """The step of an operator, or NotYetSupported naming it."""
    rule = _RULES.get(visit.node.op) or _RULES.get(visit.node.op.rpartition(".")[0])
    if rule is None:
        raise refused(visit.node, "this operator has no rule")
    return rule(visit)


def along(x: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """A matrix [after, before] applied along one axis."""
    return torch.movedim(torch.tensordot(x, matrix.to(x.device), dims=([axis], [1])), -1, axis)


# Layers, sums, products with weights, and operators that move numbers around.


@rule_for("linear", "conv1d", "conv2d", "conv3d")
def _layer(visit: Visit) -> Step:
    """The operator itself, with lifted weights and without its bias."""
    function, weight = getattr(F, visit.node.kind), visit.weight("weight")
    own = ("input", "weight", "bias")
    options = {name: value for name, value in visit.node.arguments.items() if name not in own}
    operands = ((visit.operand("input"), lambda x: function(x, weight, **options)),)
    bias = visit.attribute("bias")
    if not isinstance(bias, Reference):
        return Step(operands)
    return Step(operands, visit.weight("bias").reshape(-1, *(1,) * (weight.ndim - 2)), bias.name)


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


@rule_for("permute", "transpose.int")
def _permute(visit: Visit) -> Step:
    dimensions = len(visit.node.shape)
    if visit.node.kind == "permute":
        axes = visit.axes("dims", dimensions=dimensions)
    else:
        first, second = visit.axes("dim0", "dim1", dimensions=dimensions)
        axes = list(range(dimensions))
        axes[first], axes[second] = second, first
    if axes[0] != 0:
        raise refused(visit.node, "it moves the axis of the examples")
    return Step(((visit.operand("self"), lambda x: x.permute(axes)),))


@rule_for("add", "sub")
def _add(visit: Visit) -> Step:
    sign = -1.0 if visit.node.kind == "sub" else 1.0
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
    divides = visit.node.kind == "div"
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
    factor = visit.constant(1 / count) if visit.node.kind == "mean" else 1.0
    keep = bool(visit.attribute("keepdim", False))
    return Step(((source, lambda x: x.sum(numbers, keepdim=keep) * factor),))


# Edges of pooling: one to each number in the window.
#
# A window is a product of intervals, so the edges are those of one matrix along each axis. Taking
# the largest number has edges of weight 1; taking the mean of k numbers has edges of weight 1/k.


@rule_for(
    *(
        f"{kind}_pool{dimensions}d"
        for kind in ("max", "avg", "adaptive_max", "adaptive_avg")
        for dimensions in (1, 2, 3)
    )
)
def _pooling(visit: Visit) -> Step:
    source = visit.operand("self")
    shape = visit.shapes[source]
    kind, _, rest = visit.node.kind.partition("_pool")
    override = visit.attribute("divisor_override")
    matrices = []
    for k in range(int(rest[0])):
        axis = len(shape) - int(rest[0]) + k
        # What the operator itself makes of single ones along this axis.
        ones = torch.eye(shape[axis], dtype=torch.float64)
        seen = getattr(F, f"{kind}_pool1d")(ones, **_window(visit, k, visit.node.shape[axis])).T
        matrix = (seen > 0).double()
        for value in seen.unique().tolist() if override is None else ():
            matrix[seen == value] = visit.constant(value) if value else 0.0
        matrices.append((axis, matrix))
    factor = visit.constant(1 / override) if isinstance(override, int) else 1.0

    def extend(x: Tensor) -> Tensor:
        for axis, matrix in matrices:
            x = along(x, matrix, axis)
        return x * factor

    return Step(((source, extend),))


def _window(visit: Visit, k: int, after: int) -> dict[str, Any]:
    """The arguments of pooling along one axis."""

    def number(name: str, default: int) -> int:
        value = visit.attribute(name)
        if isinstance(value, tuple):
            value = (value[k] if len(value) > 1 else value[0]) if value else None
        return value if isinstance(value, int) else default

    if visit.node.kind.startswith("adaptive_"):
        return {"output_size": after}
    size = number("kernel_size", 1)
    window = {
        "kernel_size": size,
        "stride": number("stride", size),
        "padding": number("padding", 0),
    }
    own = {"dilation": number("dilation", 1)}
    if visit.node.kind.startswith("avg_"):
        own = {"count_include_pad": bool(visit.attribute("count_include_pad", True))}
    return {**window, **own, "ceil_mode": bool(visit.attribute("ceil_mode", False))}
