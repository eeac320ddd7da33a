"""The edges of a network, operator by operator: along which a path can go, and their weights.

Unrolled to single numbers, a network of the supported kinds is a graph in which every neuron adds
up weighted neurons before it and a bias, and then applies an activation that only switches paths
on or off (or dims them). A rule gives the linear part of one operator: a map for each tensor that
it reads, and the biases that start new paths. The maps are made of *lifted* weights: the weights
themselves, or their absolute values to a power, or ones, depending on what is asked. Constants in
the graph, such as the 1/k of an average over k numbers, are edge weights too and are lifted alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

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
    dimensions = int(visit.node.op.partition("_pool")[2][0])
    adaptive = ".adaptive_" in visit.node.op
    mean = "avg_pool" in visit.node.op
    matrices = []
    for k in range(dimensions):
        axis = len(shape) - dimensions + k
        before, after = shape[axis], visit.node.shape[axis]
        windows = (
            _adaptive_windows(before, after) if adaptive else _windows(visit, k, before, after)
        )
        matrix = torch.zeros(after, before, dtype=torch.float64)
        for output, (positions, divisor) in enumerate(windows):
            matrix[output, positions] = visit.constant(1 / divisor) if mean else 1.0
        matrices.append((axis, matrix))
    override = visit.attribute("divisor_override")
    factor = visit.constant(1 / override) if isinstance(override, int) else 1.0

    def extend(x: Tensor) -> Tensor:
        for axis, matrix in matrices:
            x = along(x, matrix, axis)
        return x * factor

    return Step(((source, extend),))


def _windows(visit: Visit, k: int, before: int, after: int) -> list[tuple[list[int], int]]:
    """For each position of the result the positions it sees, and by how much a mean divides."""

    def number(name: str, default: int) -> int:
        value = visit.attribute(name)
        if isinstance(value, tuple):
            value = (value[k] if len(value) > 1 else value[0]) if value else None
        return value if isinstance(value, int) else default

    size = number("kernel_size", 1)
    stride, padding = number("stride", size), number("padding", 0)
    dilation = number("dilation", 1)
    whole = visit.attribute("count_include_pad", True)
    overridden = visit.attribute("divisor_override") is not None
    windows = []
    for output in range(after):
        start = output * stride - padding
        every = [start + dilation * step for step in range(size)]
        # Beyond the padding there is nothing at all, not even zeros to divide by.
        counted = [p for p in every if p < before + padding]
        inside = [p for p in counted if 0 <= p < before]
        divisor = 1 if overridden else (len(counted) if whole else max(1, len(inside)))
        windows.append((inside, divisor))
    return windows


def _adaptive_windows(before: int, after: int) -> list[tuple[list[int], int]]:
    windows = []
    for output in range(after):
        start, stop = output * before // after, -((-(output + 1) * before) // after)
        windows.append((list(range(start, stop)), stop - start))
    return windows
