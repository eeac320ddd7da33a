"""Edges of pooling: one to each number in the window.

A window is a product of intervals, so the edges are those of one matrix along each axis. Taking
the largest number has edges of weight 1; taking the mean of k numbers has edges of weight 1/k.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nonvacuous.rescaling.path_steps import Step, Visit, along, rule_for


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
        for place, (positions, divisor) in enumerate(windows):
            matrix[place, positions] = visit.constant(1 / divisor) if mean else 1.0
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
    found = []
    for place in range(after):
        start = place * stride - padding
        every = [start + dilation * step for step in range(size)]
        # Beyond the padding there is nothing at all, not even zeros to divide by.
        counted = [p for p in every if p < before + padding]
        inside = [p for p in counted if 0 <= p < before]
        divisor = 1 if overridden else (len(counted) if whole else max(1, len(inside)))
        found.append((inside, divisor))
    return found


def _adaptive_windows(before: int, after: int) -> list[tuple[list[int], int]]:
    found = []
    for place in range(after):
        start, stop = place * before // after, -((-(place + 1) * before) // after)
        found.append((list(range(start, stop)), stop - start))
    return found
