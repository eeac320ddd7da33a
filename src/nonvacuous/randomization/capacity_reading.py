"""Whether a network is a plain ReLU perceptron: read from what it computes, not from its modules.

A module may list layers that its forward pass leaves out, repeats or joins by other functions, and
a theorem about perceptrons says nothing about those.
"""

from __future__ import annotations

import math

from nonvacuous.errors import NotYetSupported
from nonvacuous.networks.layer_graph import LayerGraph, Node, Reference

#: Operators that hand on the numbers of each example in their order.
_SILENT = frozenset({
    "view", "_unsafe_view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "clone",
    "alias", "detach", "dropout", "feature_dropout",
})  # fmt: skip


def perceptron_widths(graph: LayerGraph) -> tuple[int, ...]:
    """The widths of the hidden layers of a fully connected ReLU network with biases.

    NotYetSupported names what stands in the way where the network is anything else.
    """
    if len(graph.inputs) != 1:
        raise NotYetSupported("not a perceptron: it reads more than one input")
    ((name, shape),) = graph.inputs.items()
    current, bent, seen = Reference("input", name), False, set[str]()
    widths: list[int] = []
    for node in graph.nodes:
        read = tuple(r for r in node.references if r.kind != "parameter")
        if read != (current,):
            raise NotYetSupported(
                f"not a perceptron: {_place(node)} does not read the layer before"
            )
        kind = _kind(node)
        if kind == "linear" and bent == bool(widths):
            _check_linear(node, shape, seen)
            seen.update(node.parameters)
            widths.append(node.shape[1])
            bent = False
        elif kind == "relu" and widths and not bent:
            bent = True
        elif kind != "silent" or math.prod(node.shape[1:]) != math.prod(shape[1:]):
            raise NotYetSupported(
                f"not a perceptron: linear layers and ReLU must take turns, and {_place(node)} "
                "does not fit in"
            )
        current, shape = Reference("node", node.name), node.shape
    if bent or not widths or graph.outputs != (current,):
        raise NotYetSupported("not a perceptron: it does not return the scores of a linear layer")
    return tuple(widths[:-1])


def _kind(node: Node) -> str | None:
    parts = node.op.split(".")
    name = parts[1] if parts[0] == "aten" and len(parts) > 1 else ""
    if name in ("linear", "relu"):
        return name
    idle = name in _SILENT and not node.parameters and node.arguments.get("train") is not True
    return "silent" if idle else None


def _check_linear(node: Node, shape: tuple[int, ...], seen: set[str]) -> None:
    """One matrix and one bias of its own, for all numbers of an example at once."""
    parts = (node.arguments.get("weight"), node.arguments.get("bias"))
    if not all(isinstance(part, Reference) and part.kind == "parameter" for part in parts):
        raise NotYetSupported(
            f"not a perceptron with biases: {_place(node)} has none, or weights that are computed"
        )
    if not seen.isdisjoint(node.parameters):
        raise NotYetSupported(f"not a perceptron: {_place(node)} repeats the weights of another")
    if len(shape) != 2:
        raise NotYetSupported(
            f"not a perceptron: {_place(node)} is applied to parts of an example, one by one"
        )


def _place(node: Node) -> str:
    return f"{node.layer or 'the network'} ({node.op})"
