"""What counting arguments look at: how deep a network is, where it compares, what it pools over.

Only for networks of affine maps and piecewise linear functions: those whose paths can be followed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from nonvacuous.errors import NotYetSupported
from nonvacuous.networks.layer_graph import LayerGraph, Node, Reference
from nonvacuous.rescaling.output_layer import output_layer
from nonvacuous.rescaling.paths import path_count

#: One comparison with zero for each number.
_KINKS = frozenset({"relu", "leaky_relu"})
#: One comparison for each pair of numbers.
_PAIRS = frozenset({"maximum", "minimum"})


#: Operators whose result holds the numbers of their operands and no others.
_VIEWS = frozenset({
    "view", "_unsafe_view", "reshape", "flatten", "unflatten", "permute", "transpose", "t",
    "squeeze", "unsqueeze", "contiguous", "clone", "alias", "detach", "dropout", "dropout_",
    "expand", "select", "slice", "cat", "stack", "split", "chunk", "unbind", "to", "_to_copy",
})  # fmt: skip


@dataclass(frozen=True)
class Structure:
    """The parts of a network that its capacity is counted from.

    layers   for every operator with weights of its own or with comparisons, in order: how many new
             weights it reads, and how many comparisons decide what it does to one input
    depth    the largest number of neurons on one path, the scores included: a neuron is a linear
             combination of others, or its positive part, or a maximum of others
    pools    the different numbers of values over which maxima are taken
    """

    layers: tuple[tuple[int, int], ...]
    depth: int
    pools: frozenset[int]


class _Next(NamedTuple):
    """The depth of a neuron that would read a result directly, by the kind of the neuron.

    A positive part is taken by the very neuron that adds up weighted inputs; but where its operand
    is a sum of finished neurons (``added``), it is a neuron more. The positive part of a maximum is
    the maximum of positive parts; of the negative of a maximum, or of a sum of several, it is not.
    """

    weighted: int
    positive: int
    maximum: int
    added: int


def structure_of(graph: LayerGraph) -> Structure:
    """Count; raises NotYetSupported where a path cannot be followed or a maximum not be counted."""
    path_count(graph)  # refuses operators that are not piecewise linear, and says which
    start = _Next(1, 1, 1, 1)
    following: dict[Reference, _Next] = {Reference("input", name): start for name in graph.inputs}
    layers: list[tuple[int, int]] = []
    pools: set[int] = set()
    seen: set[str] = set()
    for node in graph.nodes:
        pooled = _pooled(node, graph)
        pools |= {pooled} - {1}
        read = [following[source] for source in node.references if source in following] or [start]
        following[Reference("node", node.name)] = _after(node, pooled, read)
        if again := [name for name in node.parameters if name in seen]:
            raise NotYetSupported(
                f"{again[0]} is used more than once, and a polynomial of higher degree is not "
                "counted here"
            )
        seen.update(node.parameters)
        weights = sum(math.prod(graph.parameters[name]) for name in node.parameters)
        each = 1 if node.kind in _KINKS | _PAIRS else pooled * (pooled - 1) // 2
        comparisons = each * math.prod(node.shape[1:])  # for one example
        if weights or comparisons:
            layers.append((weights, comparisons))
    # The scores are neurons themselves: their depth is that of what would read them, less one.
    depth = max(following.get(output, start).weighted - 1 for output in graph.outputs)
    return Structure(tuple(layers), depth, frozenset(pools))


def score_difference(graph: LayerGraph) -> tuple[tuple[int, int], ...]:
    """The layers of the network that compares two scores: what a VC dimension is counted from.

    The difference of two scores is one output with as many weights as either, and its sign is the
    last comparison. Raises NotYetSupported as `structure_of` does.
    """
    output = output_layer(graph)
    layers = list(structure_of(graph).layers)
    last = sum(math.prod(graph.parameters[name]) for name in output.tensors)
    if layers[-1] != (last, 0):
        raise NotYetSupported("the last layer is followed by comparisons")
    layers[-1] = (last // graph.parameters[output.weight][0], 1)
    return tuple(layers)


def _after(node: Node, pooled: int, read: list[_Next]) -> _Next:
    """What one operator makes of the depths of its operands.

    Linear operators without weights are merged into the neurons that read them, which makes no sum
    over paths larger.
    """
    weighted, positive, maximum, added = map(max, zip(*read, strict=True))
    if pooled > 1:
        # The positive part of a maximum is counted as the maximum of positive parts.
        return _Next(maximum + 1, positive + 1, maximum + 1, maximum + 1)
    if node.kind in _KINKS:
        return _Next(*[positive + 1] * 4)
    if node.parameters:
        # What takes the positive part belongs to the same neuron, also after a sum of such.
        return _Next(weighted + 1, weighted, weighted + 1, weighted)
    if node.kind in _VIEWS:
        return _Next(weighted, positive, maximum, added)
    # A sum is a neuron of its own to what takes its positive part, or a maximum of it.
    return _Next(weighted, added, added + 1, added)


def _pooled(node: Node, graph: LayerGraph) -> int:
    """Over how many numbers a maximum is taken; 1 where none is."""
    name = node.kind
    if name in _PAIRS:
        return 2
    if name.startswith("max_pool"):
        size, axes = node.arguments["kernel_size"], int(name[8])
        sizes = size if isinstance(size, tuple) else (size,)
        lengths = [length for length in sizes if isinstance(length, int)]
        if len(lengths) < len(sizes):
            raise NotYetSupported(f"the window of {node.layer or node.name} is not known")
        return math.prod(lengths if len(lengths) == axes else lengths * axes)
    if name.startswith("adaptive_max_pool") or name == "amax":
        source = node.references[0]
        shape = graph.inputs.get(source.name) or graph.node(source.name).shape
        total, left = math.prod(shape[1:]), math.prod(node.shape[1:])
        if total % left:
            raise NotYetSupported(f"the windows of {node.layer or node.name} differ in size")
        return total // left
    return 1
