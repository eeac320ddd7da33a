"""What every norm here starts from: a finite float64 matrix, and sums rounded up."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput

#: Distance from 1 to the next float64.
EPSILON = 2.0**-52


def as_matrix(weight: Any, *, name: str = "weight") -> tuple[Tensor, float]:
    """The matrix in float64 divided by a power of two, and that power.

    The largest entry then lies between 1/2 and 1, so that no square overflows or vanishes. Powers
    of two divide without rounding.
    """
    if not isinstance(weight, Tensor) or weight.dim() != 2 or 0 in weight.shape:
        shape = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise BadInput(f"{name} must be a matrix (outputs, inputs) with entries, got {shape}.")
    matrix = weight.detach().double()
    largest = float(matrix.abs().max())
    if not math.isfinite(largest):
        raise BadInput(f"{name} contains NaN or infinity; train the network again.")
    if largest == 0.0:
        return matrix, 1.0
    power = math.ldexp(1.0, math.frexp(largest)[1])
    return matrix / power, power


def active(name: str, value: int, size: int) -> int:
    """How many rows or columns may be active: from 1 to all of them."""
    number = checks.count(name, value, minimum=1)
    if number > size:
        raise BadInput(f"{name} = {number}, but the matrix has only {size}.")
    return number


def up(value: float, *, terms: int) -> float:
    """``value`` raised beyond what a sum of ``terms`` products and a root can have lost."""
    return value if value == 0.0 else math.nextafter(value * (1 + (terms + 8) * EPSILON), math.inf)


def raised(values: Tensor, *, terms: int) -> Tensor:
    """:func:`up` for every entry of a tensor."""
    return values * (1 + (terms + 8) * EPSILON)


def top_sums(values: Tensor, count: int) -> Tensor:
    """The sum of the ``count`` largest entries along the last axis."""
    size = values.shape[-1]
    if count == size:
        return values.sum(-1)
    if 2 * count <= size:
        return values.topk(count, dim=-1, sorted=False).values.sum(-1)
    # Fewer are left out than taken, and selecting costs by how many are selected.
    left_out = values.topk(size - count, dim=-1, largest=False, sorted=False).values
    return values.sum(-1) - left_out.sum(-1)


def descending_sums(values: Tensor, dim: int) -> Tensor:
    """Sums of the 0, 1, 2, ... largest entries along an axis, which grows by one."""
    sums = values.sort(dim=dim, descending=True).values.cumsum(dim)
    shape = list(sums.shape)
    shape[dim] = 1
    return torch.cat([sums.new_zeros(shape), sums], dim=dim)
