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

    def through(self, extend: LinearMap, argument: str = "") -> Step:
        """One operand, the first argument unless another is named, and nothing beside it."""
        return Step(((self.operand(argument or next(iter(self.node.arguments))), extend),))

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

    def attribute(self, argument: str, default: Argument = None) -> Any:
        return self.node.arguments.get(argument, default)

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


def step_of(visit: Visit) -> Step:
    """The step of an operator, or NotYetSupported naming it."""
    name = visit.node.op.removeprefix("aten.")
    rule = _RULES.get(name) or _RULES.get(name.rpartition(".")[0])
    if rule is None:
        raise refused(visit.node, "this operator has no rule")
    return rule(visit)


def _layer(visit: Visit) -> Step:
    """The operator itself, with lifted weights and without its bias."""
    function, weight = getattr(F, visit.node.kind), visit.weight("weight")
    own = ("input", "weight", "bias")
    options = {name: value for name, value in visit.node.arguments.items() if name not in own}
    step = visit.through(lambda x: function(x, weight, **options))
    bias = visit.attribute("bias")
    if not isinstance(bias, Reference):
        return step
    shape = (-1, *(1,) * (weight.ndim - 2))
    return Step(step.operands, visit.weight("bias").reshape(shape), bias.name)


def _permute(visit: Visit) -> Step:
    kind = visit.node.kind
    names = ("dims",) if kind == "permute" else ("dim0", "dim1")
    axes = visit.axes(*names, dimensions=len(visit.node.shape))
    if axes[0] != 0 if kind == "permute" else 0 in axes:
        raise refused(visit.node, "it moves the axis of the examples")
    return visit.through(lambda x: getattr(x, kind)(*axes))


def _add(visit: Visit) -> Step:
    sign = -1.0 if visit.node.kind == "sub" else 1.0
    factors = {"self": 1.0, "other": visit.constant(sign * visit.attribute("alpha", 1))}
    shape = visit.node.shape[1:]
    operands: list[tuple[Reference, LinearMap]] = []
    bias, name = None, ""
    for argument, factor in factors.items():
        value = visit.attribute(argument)
        if isinstance(value, Reference) and value in visit.weights:
            bias, name = visit.weights[value] * factor, value.name
            if bias.ndim > len(shape):
                bias = bias.reshape(bias.shape[-len(shape) :])
        elif isinstance(value, Reference):
            source = visit.operand(argument)
            if visit.shapes[source][1:] != shape:
                raise refused(visit.node, "it adds tensors of different shapes")
            operands.append((source, partial(torch.mul, other=factor)))
        elif value != 0:
            raise refused(visit.node, f"it adds the number {value!r}, which no weight controls")
    return Step(tuple(operands), bias, name)


def _multiply(visit: Visit) -> Step:
    divides = visit.node.kind == "div"
    for name, source in (("other", "self"), ("self", "other")):
        value = visit.attribute(name)
        factor: Tensor | float
        if isinstance(value, Reference) and value in visit.weights and not divides:
            factor = visit.weights[value]
            if factor.ndim > len(visit.node.shape):
                raise refused(visit.node, "the weight has more axes than what it multiplies")
        elif isinstance(value, int | float) and not (divides and name == "self"):
            factor = visit.constant(1 / value if divides else value)
        else:
            continue
        return visit.through(partial(torch.mul, other=factor), source)
    raise refused(visit.node, "products of two results have no paths")


def _concatenate(visit: Visit) -> Step:
    """Every part with zeros in the places of the others."""
    parts, dimensions = visit.attribute("tensors"), len(visit.node.shape)
    (axis,) = visit.axes("dim", dimensions=dimensions)
    if not isinstance(parts, tuple) or axis == 0:
        raise refused(visit.node, "it joins examples")
    operands: list[tuple[Reference, LinearMap]] = []
    before, after = 0, visit.node.shape[axis]
    for part in parts:
        if not isinstance(part, Reference) or part not in visit.shapes:
            raise refused(visit.node, "it joins weights to results")
        after -= visit.shapes[part][axis]
        widths = [0, 0] * (dimensions - 1 - axis) + [before, after]
        operands.append((part, partial(F.pad, pad=widths)))
        before += visit.shapes[part][axis]
    return Step(tuple(operands))


def _pad(visit: Visit) -> Step:
    widths = visit.attribute("pad")
    if visit.attribute("mode", "constant") != "constant" or visit.attribute("value"):
        raise refused(visit.node, "only zeros can be added around an image")
    if not isinstance(widths, tuple):
        raise refused(visit.node, "its sizes are not known")
    return visit.through(partial(F.pad, pad=widths))


def _reduce(visit: Visit) -> Step:
    """A sum, a mean (edges of weight 1/n), or a largest value (an edge to each)."""
    shape = visit.shapes[visit.operand("self")]
    numbers = visit.axes("dim", dimensions=len(shape))
    if not numbers or 0 in numbers:
        raise refused(visit.node, "it runs over the examples")
    count = math.prod(shape[a] for a in numbers)
    factor = visit.constant(1 / count) if visit.node.kind == "mean" else 1.0
    keep = bool(visit.attribute("keepdim", False))
    return visit.through(lambda x: x.sum(numbers, keepdim=keep) * factor)


def _pooling(visit: Visit) -> Step:
    """One edge to each number in the window: of weight 1 for the largest, 1/k for the mean of k.

    A window is a product of intervals, so the edges are those of one matrix along each axis.
    """
    shape = visit.shapes[visit.operand("self")]
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
            x = torch.movedim(torch.tensordot(x, matrix, dims=([axis], [1])), -1, axis)
        return x * factor

    return visit.through(extend)


def _window(visit: Visit, k: int, after: int) -> dict[str, Any]:
    """The arguments of pooling along one axis."""
    if visit.node.kind.startswith("adaptive_"):
        return {"output_size": after}
    window = {}
    for name, value in visit.node.arguments.items():
        if isinstance(value, tuple):  # One for each axis, one for all, or the usual one.
            value = value[min(k, len(value) - 1)] if value else None
        if value is not None and name not in ("self", "divisor_override"):
            window[name] = value
    return window


_RULES: dict[str, Callable[[Visit], Step]] = {
    name: rule
    for names, rule in {
        "linear conv1d conv2d conv3d": _layer,
        # Activations switch paths on or off, or dim them; they are not part of the product.
        "relu leaky_relu dropout feature_dropout clone contiguous alias detach": lambda visit: (
            visit.through(lambda x: x)
        ),
        "neg": lambda visit: visit.through(partial(torch.mul, other=visit.constant(-1.0))),
        "view reshape flatten _unsafe_view squeeze unsqueeze": lambda visit: visit.through(
            lambda x: x.reshape(-1, *visit.node.shape[1:])
        ),
        "permute transpose.int": _permute,
        "add sub": _add,
        # One of the two passes: an edge to each.
        "maximum minimum": lambda visit: Step(
            tuple((visit.operand(name), lambda x: x) for name in ("self", "other"))
        ),
        "mul div": _multiply,
        "cat": _concatenate,
        "pad constant_pad_nd": _pad,
        "sum.dim_IntList mean.dim amax": _reduce,
        "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d": _pooling,
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d": _pooling,
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d": _pooling,
    }.items()
    for name in names.split()
}
