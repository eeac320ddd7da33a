"""Walk through a graph and find out which scales pass where.

Inputs do not scale. Every weight starts with unknown scales along its axes. Each operator then
says how the scales of its arguments pass to its result, and which equations between them must
hold for that to be true. What no operator vouches for is pinned: its factor is 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from nonvacuous.networks.equations import Constraints
from nonvacuous.networks.layer_graph import LayerGraph, Node, Reference, Support
from nonvacuous.networks.log_scale import LogScale, Term
from nonvacuous.networks.operators.registry import Layout, Passage, lookup, per_axis

UNKNOWN_REMEDY = (
    "The scales beside it stay at 1, so the function is kept; say how a scale passes it with "
    "nonvacuous.networks.register_operator"
)


@dataclass(frozen=True, eq=False)
class Birth:
    """The unknowns that were made for one weight, along some of its axes."""

    parameter: str
    labels: np.ndarray


class Propagation:
    """What is known while walking, and after it: the scales of the weights and the equations.

    weights    the scale of every weight that was used
    births     where each unknown comes from
    support    the places where no scale passes
    unknown    those of them where nobody has said how one would
    """

    def __init__(self, graph: LayerGraph, frozen: Iterable[str] = ()) -> None:
        self.graph = graph
        self.equations = Constraints()
        self.weights: dict[str, LogScale] = {}
        self.births: list[Birth] = []
        self.support: tuple[Support, ...] = ()
        self.unknown: tuple[Support, ...] = ()
        self._frozen = frozenset(frozen)
        self._values: dict[str, tuple[LogScale, ...]] = {}

    def weight(self, name: str, layout: Layout | None = None) -> LogScale:
        """The scale of a weight; at its first use unknowns are made for it, one term per entry of
        the layout (one per axis by default)."""
        if name not in self.weights:
            shape = self.graph.parameters[name]
            chosen = per_axis(shape) if layout is None else layout
            if 0 in shape:
                chosen = ()
            terms = []
            for axes, numbers in chosen:
                labels = self.equations.fresh(int(numbers.max(initial=-1)) + 1)
                self.births.append(Birth(name, labels))
                terms.append(Term(1, labels[numbers], frozenset(axes)))
            if name in self._frozen:
                for term in terms:
                    self.equations.require_zero([term], reason=f"{name} is frozen")
            self.weights[name] = LogScale(shape, tuple(terms), name)
        return self.weights[name]

    def value(self, reference: Reference) -> tuple[LogScale, ...]:
        """The scales of what a reference stands for."""
        if reference.kind == "node":
            return self._values[reference.name]
        if reference.kind == "parameter":
            return (self.weight(reference.name),)
        still = self.graph.inputs if reference.kind == "input" else self.graph.constants
        return (LogScale(still[reference.name]),)

    def visit(self, node: Node) -> None:
        """Let the scales pass one node."""
        passage = Passage(node, self)
        rule = lookup(node.op)
        if rule is None:
            passage.pin_all("nobody has said how a scale passes it", UNKNOWN_REMEDY)
            self.unknown += passage.support
            result = []
        else:
            returned = rule(passage)
            result = [returned] if isinstance(returned, LogScale) else list(returned)
        # Results of which nothing is said, such as positions of maxima, do not scale.
        result += [LogScale(())] * (len(node.shapes) - len(result))
        for scale, floating in zip(result, node.floating, strict=True):
            if not floating:
                passage.pin(scale, "whole numbers do not scale")
        self.support += tuple(entry for entry in passage.support if entry not in self.support)
        pairs = zip(result, node.shapes, strict=True)
        self._values[node.name] = tuple(scale.broadcast_to(shape) for scale, shape in pairs)


def propagate(graph: LayerGraph, *, frozen: Sequence[str] = ()) -> Propagation:
    """Visit every node, then pin what the network returns."""
    propagation = Propagation(graph, frozen)
    for node in graph.nodes:
        propagation.visit(node)
    for reference in graph.outputs:
        for scale in propagation.value(reference):
            propagation.equations.pin(scale, reason="it is what the network returns")
    return propagation
