"""Paths through a network: their number, their norm, and the path-lifting of small ones.

A path starts at an input or at a bias and follows edges to an output; its value is the product of
the weights that it passes. All values together, with the signs of the weights, are the
*path-lifting* (Gonon, Brisebarre, Riccietti and Gribonval, 2024): rescaling hidden units does not
change it. Two weights that rescaling turns into one another have the same lifting.

Definitions used here. Every number that the network computes is a neuron of its own, so a
convolution has one path for each position and tap. Max-pooling has an edge of weight 1 to each
number in its window, as if it were a sum; average pooling over k numbers has edges of weight 1/k.
Activations and padding zeros are not part of any product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.bounds import checks
from nonvacuous.distributions.gaussian import check_same_tensors
from nonvacuous.errors import BadInput
from nonvacuous.networks.layer_graph import LayerGraph, Node, Reference
from nonvacuous.rescaling.path_steps import Lift, LinearMap, Step, Visit, refused, step_of

Weights = nn.Module | Mapping[str, Tensor] | Mapping[str, np.ndarray]

# Operators that only give a weight another shape before it is used.
_WEIGHT_SHAPES = frozenset({"view", "reshape", "unsqueeze", "squeeze", "alias", "detach"})


def path_norm(graph: LayerGraph, weights: Weights | None = None, *, order: float = 1.0) -> float:
    """(sum over all paths of |value|^order)^(1/order), by one forward pass.

    The network is run on ones, with absolute values of all weights to the power ``order`` and
    with sums in place of maxima; the biases enter as they are. Nothing is enumerated, so any
    size will do. ``weights`` (a module or a mapping) replaces the values that the network had
    when it was captured.

    >>> network = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    >>> _ = nn.init.constant_(network[0].weight, -2.0), nn.init.constant_(network[2].weight, 3.0)
    >>> from nonvacuous.networks import capture
    >>> path_norm(capture(network.eval(), torch.zeros(2, 2)))  # four paths of -2 * 3
    24.0
    """
    total = _number(*_total(graph, _values(graph, weights), _power(order)))
    if not math.isfinite(total):
        raise BadInput(
            f"the path norm of order {order:g} leaves the range of float64; take a lower order, or "
            "rescale the network to weights of size one first (rescaled)"
        )
    return float(total ** (1 / order))


def log_path_norm(
    graph: LayerGraph, weights: Weights | None = None, *, order: float = 1.0
) -> float:
    """The natural logarithm of :func:`path_norm`; minus infinity where no path has a value.

    A hundred layers cannot overflow it.
    """
    total, exponent = _total(graph, _values(graph, weights), _power(order))
    return (math.log(total) + exponent * math.log(2)) / order if total > 0 else -math.inf


def path_count(graph: LayerGraph) -> int:
    """The number of paths from inputs and biases to outputs; exact below 2**53."""
    ones = {
        name: torch.ones(shape, dtype=torch.float64) for name, shape in graph.parameters.items()
    }
    total = _number(*_total(graph, ones, torch.ones_like))
    return int(total) if math.isfinite(total) else int(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class PathLifting:
    """Every path's value, and the sign of every weight.

    values   the product of the weights along each path
    starts   where each path starts: the name of an input or of a bias, and the neuron there,
             counted through one example in memory order
    ends     the output neuron in which each path ends
    signs    the signs of the weights: together with the values, all that rescaling preserves
    """

    values: np.ndarray
    starts: tuple[tuple[str, int], ...]
    ends: np.ndarray
    signs: Mapping[str, np.ndarray]

    def norm(self, order: float = 1.0) -> float:
        """(sum of |value|^order)^(1/order)."""
        return float((np.abs(self.values) ** order).sum() ** (1 / order))


def path_lifting(
    graph: LayerGraph, weights: Weights | None = None, *, max_paths: int = 200_000
) -> PathLifting:
    """All paths of a small network, one by one.

    Networks with more than ``max_paths`` paths are refused, with their number; use
    :func:`path_norm` for those.
    """
    count = path_count(graph)
    if count > max_paths:
        raise BadInput(
            f"the network has {count:.4g} paths, more than max_paths={max_paths}; path_norm gives "
            "their norm without listing them"
        )
    values = _values(graph, weights)
    bundles: dict[Reference, _Bundle] = {
        Reference("input", name): _Bundle.starting(name, np.ones(math.prod(shape[1:])))
        for name, shape in graph.inputs.items()
    }
    steps = zip(
        _steps(graph, values, lambda w: w), _steps(graph, values, torch.ones_like), strict=True
    )
    for (node, signed), (_, structure) in steps:
        shape = node.shape[1:]
        parts = [
            bundles[source].extended(
                _matrix(extend, graph, source), _matrix(present, graph, source) != 0
            )
            for (source, extend), (_, present) in zip(
                signed.operands, structure.operands, strict=True
            )
        ]
        if signed.bias is not None:
            bias = signed.bias.expand(shape).reshape(-1).numpy()
            parts.append(_Bundle.starting(signed.bias_name, bias))
        bundles[Reference("node", node.name)] = _Bundle.joined(parts)
    result = _Bundle.joined([bundles[reference] for reference in graph.outputs])
    signs = {name: np.sign(value.numpy()).astype(np.int8) for name, value in values.items()}
    return PathLifting(result.values, result.starts, result.ends, MappingProxyType(signs))


@dataclass(frozen=True, eq=False)
class _Bundle:
    """The paths that end in one tensor."""

    values: np.ndarray
    starts: tuple[tuple[str, int], ...]
    ends: np.ndarray

    @classmethod
    def starting(cls, name: str, values: np.ndarray) -> _Bundle:
        """At each neuron of an input (with the value 1) or of a bias."""
        starts = tuple((name, k) for k in range(len(values)))
        return cls(values, starts, np.arange(len(values)))

    @classmethod
    def joined(cls, parts: list[_Bundle]) -> _Bundle:
        return cls(
            np.concatenate([part.values for part in parts]),
            tuple(start for part in parts for start in part.starts),
            np.concatenate([part.ends for part in parts]),
        )

    def extended(self, matrix: np.ndarray, present: np.ndarray) -> _Bundle:
        """Every path goes on along every edge from where it ends; matrix is [after, before]."""
        path, ends = np.nonzero(present.T[self.ends])
        values = self.values[path] * matrix[ends, self.ends[path]]
        return _Bundle(values, tuple(self.starts[k] for k in path), ends)


def _matrix(extend: LinearMap, graph: LayerGraph, source: Reference) -> np.ndarray:
    """A linear map as a matrix [after, before], from what it does to each single neuron."""
    shape = graph.inputs[source.name] if source.kind == "input" else graph.node(source.name).shape
    size = math.prod(shape[1:])
    probes = torch.eye(size, dtype=torch.float64).reshape(size, *shape[1:])
    return extend(probes).reshape(size, -1).T.numpy()


def _values(graph: LayerGraph, weights: Weights | None) -> dict[str, Tensor]:
    """The weights by their names in the graph, in float64."""
    if isinstance(weights, nn.Module):
        weights = dict(weights.named_parameters())
    given = graph.weights if weights is None else weights
    known = {name: torch.as_tensor(given[name]) for name in graph.parameters if name in given}
    check_same_tensors("weights", known, "the graph", graph.parameters)
    return {name: value.detach().cpu().double() for name, value in known.items()}


def _power(order: float) -> Lift:
    checks.within("order", order, 0.0, open=True)
    return lambda w: w.abs() ** order


def _number(total: float, exponent: int) -> float:
    try:
        return math.ldexp(total, exponent)
    except OverflowError:
        return math.inf


def _total(graph: LayerGraph, values: Mapping[str, Tensor], lift: Lift) -> tuple[float, int]:
    """The sum over all outputs of the network of its edges, run on ones.

    It is the first number times two to the power of the second. So is every result on the way:
    only the power grows with the depth, and taking it out rounds nothing.
    """
    results = {
        Reference("input", name): (torch.ones(1, *shape[1:], dtype=torch.float64), 0)
        for name, shape in graph.inputs.items()
    }
    for node, step in _steps(graph, values, lift):
        parts = [
            (extend(results[source][0]), results[source][1]) for source, extend in step.operands
        ]
        if step.bias is not None:
            parts.append((step.bias, 0))
        results[Reference("node", node.name)] = _sum(parts, (1, *node.shape[1:]))
    outputs = [results[reference] for reference in graph.outputs]
    total, exponent = _sum([(tensor.sum(), exponent) for tensor, exponent in outputs], ())
    return float(total), exponent


def _sum(parts: list[tuple[Tensor, int]], shape: tuple[int, ...]) -> tuple[Tensor, int]:
    """The sum of tensors times powers of two, with a largest entry between 1/2 and 1."""
    present = [(tensor, exponent) for tensor, exponent in parts if bool((tensor > 0).any())]
    common = max((exponent for _, exponent in present), default=0)
    total = torch.zeros(shape, dtype=torch.float64)
    for tensor, exponent in present:
        total = total + tensor * math.ldexp(1.0, exponent - common)
    own = math.frexp(float(total.max()))[1]
    return total * math.ldexp(1.0, -own), common + own


def _steps(
    graph: LayerGraph, values: Mapping[str, Tensor], lift: Lift
) -> Iterator[tuple[Node, Step]]:
    """The steps of the operators that lie on some path, in order."""
    weights = {Reference("parameter", name): lift(value) for name, value in values.items()}
    shapes: dict[Reference, tuple[int, ...]] = {
        Reference("input", name): shape for name, shape in graph.inputs.items()
    }
    examples = {shape[0] for shape in shapes.values() if shape}
    needed = set(graph.outputs)  # What an output depends on.
    for node in reversed(graph.nodes):
        if Reference("node", node.name) in needed:
            needed.update(node.references)
    for node in graph.nodes:
        own = Reference("node", node.name)
        if own not in needed:
            continue
        if node.references and all(reference in weights for reference in node.references):
            if node.kind not in _WEIGHT_SHAPES or len(node.references) != 1:
                why = "the weights are computed from one another before they are used"
                raise refused(node, why)
            weights[own] = weights[node.references[0]].reshape(node.shape)
            continue
        shapes[own] = node.shape
        if not node.shape or {node.shape[0]} != examples:
            raise refused(node, "its result does not list the examples along the first axis")
        yield node, step_of(Visit(node, lift, weights, shapes))
