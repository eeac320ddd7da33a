"""The path norm as a logarithm: a hundred layers cannot overflow it.

As in :func:`nonvacuous.rescaling.paths.path_norm`, absolute weights to a power are run on ones.
Here every intermediate result is kept as a tensor with largest entry 1 and the logarithm of what
it was divided by, so that only the logarithm grows with the depth.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.networks.layer_graph import LayerGraph, Reference
from nonvacuous.rescaling.paths import Weights, _steps, _values


def log_path_norm(
    graph: LayerGraph, weights: Weights | None = None, *, order: float = 1.0
) -> float:
    """The natural logarithm of :func:`path_norm`; minus infinity where no path has a value.

    >>> from nonvacuous.networks import capture
    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False)).eval()
    >>> _ = torch.nn.init.constant_(network[0].weight, -2.0)
    >>> round(math.exp(log_path_norm(capture(network, torch.zeros(2, 2)))), 12)
    4.0
    """
    if not (math.isfinite(order) and order > 0):
        raise BadInput(f"order must be a finite number above 0, got {order!r}")
    results = {
        Reference("input", name): (torch.ones(1, *shape[1:], dtype=torch.float64), 0.0)
        for name, shape in graph.inputs.items()
    }
    for node, step in _steps(graph, _values(graph, weights), lambda w: w.abs() ** order):
        parts = []
        for source, extend in step.operands:
            tensor, log = results[source]
            parts.append((extend(tensor), log))
        if step.bias is not None:
            parts.append((step.bias, 0.0))
        shape = (1, *node.shape[1:])
        results[Reference("node", node.name)] = _sum(parts, shape)
    total, log = _sum(
        [(results[reference][0].sum(), results[reference][1]) for reference in graph.outputs], ()
    )
    largest = float(total)
    return (math.log(largest) + log) / order if largest > 0 else -math.inf


def _sum(parts: list[tuple[Tensor, float]], shape: tuple[int, ...]) -> tuple[Tensor, float]:
    """The sum of tensors times exp(log), again as a tensor of largest entry 1 and a logarithm."""
    present = [(tensor, log) for tensor, log in parts if bool((tensor > 0).any())]
    common = max((log for _, log in present), default=0.0)
    total = torch.zeros(shape, dtype=torch.float64)
    for tensor, log in present:
        total = total + tensor * math.exp(log - common)
    largest = float(total.max())
    if not largest > 0:
        return total, 0.0
    return total / largest, common + math.log(largest)
