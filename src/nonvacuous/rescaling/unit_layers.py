"""Layers whose units can change places: any order of them gives the same function.

A unit's *block* is everything that belongs to it alone: the weights into it, its bias and the
weights out of it. This is not the same as having a free scale: a unit in front of a sigmoid can
change places but not scale, and a gain behind a normalization can scale but not change places.
Therefore the layers are found by following each one through operators that treat every unit
alike; whatever else is met ends the search, with the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from nonvacuous.errors import NotYetSupported
from nonvacuous.networks.layer_graph import LayerGraph, Node, Reference

_LAYERS = frozenset({"linear", "conv1d", "conv2d", "conv3d"})
# One number in, one number out, the same rule for every unit.
_ELEMENTWISE = frozenset(
    {
        *("relu", "leaky_relu", "gelu", "silu", "sigmoid", "tanh", "relu6", "hardtanh", "elu"),
        *("celu", "selu", "softplus", "mish", "hardswish", "hardsigmoid", "abs", "neg"),
        *("alias", "clone", "contiguous", "detach", "dropout", "feature_dropout"),
    }
)
# Every channel of an image on its own, all alike.
_PER_CHANNEL = frozenset(
    f"{kind}{dimensions}d"
    for dimensions in (1, 2, 3)
    for kind in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")
)
_RESHAPES = frozenset({"view", "reshape", "flatten", "squeeze", "_unsafe_view"})


@dataclass(frozen=True)
class UnitLayer:
    """A layer of interchangeable units.

    tensors   every tensor that holds a part of a unit's block: (name, axis, entries), where the
              axis lists ``entries`` neighbors for each unit in turn (more than one after an image
              was flattened)
    """

    name: str
    units: int
    tensors: tuple[tuple[str, int, int], ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of its tensors."""
        return frozenset(name for name, _, _ in self.tensors)


@dataclass(frozen=True)
class NotInterchangeable:
    """A layer whose units cannot be shown to change places freely, and why."""

    layer: str
    reason: str


class _Layout(NamedTuple):
    """Where the units are in a tensor: along which axis, and how many neighbors each has."""

    axis: int
    entries: int


def unit_layers(
    graph: LayerGraph,
) -> tuple[tuple[UnitLayer, ...], tuple[NotInterchangeable, ...]]:
    """The linear and convolutional layers with interchangeable units; the others with reasons."""
    search = _Search(graph)
    layers: list[UnitLayer] = []
    refused: list[NotInterchangeable] = []
    for node in graph.nodes:
        if node.kind not in _LAYERS:
            continue
        try:
            layers.append(search.follow(node))
        except NotYetSupported as reason:
            refused.append(NotInterchangeable(node.layer or node.name, str(reason)))
    return tuple(layers), tuple(refused)


class _Search:
    def __init__(self, graph: LayerGraph) -> None:
        self.uses = Counter(name for node in graph.nodes for name in node.parameters)
        self.outputs = {reference.name for reference in graph.outputs}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in dict.fromkeys(node.inputs):
                self.readers.setdefault(name, []).append(node)

    def follow(self, writer: Node) -> UnitLayer:
        linear = writer.kind == "linear"
        if not linear and writer.arguments["groups"] != 1:
            raise NotYetSupported("its channels are computed in groups and cannot all be exchanged")
        tensors = [(self._weight(writer, "weight"), 0, 1)]
        if writer.arguments["bias"] is not None:
            tensors.append((self._weight(writer, "bias"), 0, 1))
        axis = len(writer.shape) - 1 if linear else 1
        units = writer.shape[axis]
        pending = [(writer, _Layout(axis, 1))]
        while pending:
            node, layout = pending.pop()
            if node.name in self.outputs:
                raise NotYetSupported("its units are what the network returns, in a fixed order")
            for reader in self.readers.get(node.name, ()):
                read = self._reads(reader, node, layout)
                if read is not None:
                    tensors.append(read)
                else:
                    pending.append((reader, _after(reader, node, layout, units)))
        if not any(axis == 1 for _, axis, _ in tensors):
            raise NotYetSupported("nothing reads its units")
        return UnitLayer(writer.layer or writer.name, units, tuple(tensors))

    def _weight(self, node: Node, argument: str) -> str:
        value = node.arguments[argument]
        if not (isinstance(value, Reference) and value.kind == "parameter"):
            raise NotYetSupported(
                f"the {argument} of {node.layer or node.name!r} is computed or frozen, so a unit's "
                "block cannot be moved as a whole"
            )
        if self.uses[value.name] != 1:
            raise NotYetSupported(
                f"{value.name!r} is used in several places, so its rows belong to several layers"
            )
        return value.name

    def _reads(self, reader: Node, node: Node, layout: _Layout) -> tuple[str, int, int] | None:
        """The tensor through which a layer reads the units, None if it is no such layer."""
        kind = reader.kind
        if kind not in _LAYERS:
            return None
        where = reader.layer or reader.name
        source = Reference("node", node.name)
        if reader.arguments["input"] != source or reader.references.count(source) != 1:
            raise NotYetSupported(f"{where!r} uses its units as weights")
        last = len(node.shape) - 1
        if kind == "linear" and layout.axis != last:
            raise NotYetSupported(f"{where!r} mixes positions of each channel, not channels")
        if kind != "linear" and (reader.arguments["groups"] != 1 or layout != _Layout(1, 1)):
            raise NotYetSupported(
                f"{where!r} reads its channels in groups or in another layout, so they cannot all "
                "be exchanged"
            )
        return self._weight(reader, "weight"), 1, layout.entries


def _after(reader: Node, node: Node, layout: _Layout, units: int) -> _Layout:
    """Where the units are behind an operator that treats them all alike."""
    kind, where = reader.kind, reader.layer or reader.name
    alone = reader.references == (Reference("node", node.name),)
    if alone and kind in _ELEMENTWISE:
        return layout
    by_channel = kind in _PER_CHANNEL or (kind == "mean" and _over_positions(reader, node))
    if alone and by_channel and layout == _Layout(1, 1):
        return layout
    if alone and kind in _RESHAPES and layout.axis == 1 and reader.shape[:1] == node.shape[:1]:
        rest = math.prod(node.shape[2:])
        if layout.entries == 1 and reader.shape[1:] == (units * rest,):
            return _Layout(1, rest)
        if reader.shape[:2] == node.shape[:2]:
            return layout
    raise NotYetSupported(
        f"its units meet {where!r} ({reader.op}), which is not known to treat all units alike"
    )


def _over_positions(reader: Node, node: Node) -> bool:
    """Whether a mean runs over positions, not over units or examples."""
    axes = reader.arguments.get("dim")
    if not isinstance(axes, tuple) or not axes:
        return False
    return all(isinstance(a, int) and a % len(node.shape) > 1 for a in axes)
