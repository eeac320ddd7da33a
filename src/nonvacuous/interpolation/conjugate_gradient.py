"""Conjugate gradients without a matrix: for more points than memory or disk can hold a factor of.

The kernel matrix is multiplied with vectors tile by tile. A preconditioner from a partial Cholesky
factorization, the points chosen greedily, takes care of the largest eigenvalues; it changes how
fast the answer is reached, never which answer that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from nonvacuous.interpolation.gram import Gram
from nonvacuous.interpolation.plan import RANK


class Iterated(NamedTuple):
    """What conjugate gradients reached; ``remainder`` is y − K a, computed afresh at the end."""

    solution: Tensor
    remainder: Tensor
    iterations: int

    @property
    def residual(self) -> float:
        return float(self.remainder.abs().max())


def conjugate_gradient(
    multiply: Callable[[Tensor], Tensor],
    right_sides: Tensor,
    *,
    precondition: Callable[[Tensor], Tensor],
    start: Tensor | None = None,
    tolerance: float = 1e-6,
    limit: int = 1000,
    report: Callable[[int, float], None] | None = None,
) -> Iterated:
    """Solve K a = y for every column of y at once; columns share the products with K.

    tolerance   of the largest entry of y − K a
    report      called with the iteration and the residual it believes in
    """
    solution = torch.zeros_like(right_sides) if start is None else start.clone()
    remainder = right_sides - multiply(solution) if start is not None else right_sides.clone()
    best, best_size = solution.clone(), float(remainder.abs().max())
    searched = precondition(remainder)
    direction = searched.clone()
    inner = (remainder * searched).sum(0)
    iterations = 0
    while iterations < limit and float(remainder.abs().max()) > 0.5 * tolerance:
        image = multiply(direction)
        curvature = (direction * image).sum(0)
        # A column that is solved has no direction left; it stands still.
        step = torch.where(curvature > 0, inner / curvature.clamp(min=1e-300), 0.0)
        solution += step * direction
        remainder -= step * image
        searched = precondition(remainder)
        following = (remainder * searched).sum(0)
        ratio = torch.where(inner > 0, following / inner.clamp(min=1e-300), 0.0)
        direction = searched + ratio * direction
        inner = following
        iterations += 1
        size = float(remainder.abs().max())
        if size < best_size:
            best, best_size = solution.clone(), size
        if report is not None:
            report(iterations, size)
        if not bool(inner.isfinite().all()):
            break
    # What the recursion believes drifts away from the truth: only a fresh product counts.
    return Iterated(best, right_sides - multiply(best), iterations)


def greedy_preconditioner(gram: Gram, *, rank: int = RANK) -> Callable[[Tensor], Tensor]:
    """The inverse of F Fᵀ + μ I, F a partial pivoted Cholesky factor, μ the mean of what it leaves.

    Serves conjugate gradients as their preconditioner; there is no μ in the equations solved.
    """
    diagonal = gram.diagonal().clone()
    whole = float(diagonal.sum())
    rank = min(rank, gram.size)
    factor = torch.zeros(gram.size, rank, dtype=torch.float64, device=gram.device)
    used = 0
    for step in range(rank):
        point = int(diagonal.argmax())
        pivot = float(diagonal[point])
        if pivot <= 1e-12 * whole / gram.size:
            break
        column = gram.tile(slice(0, gram.size), slice(point, point + 1))[:, 0]
        column -= factor[:, :step] @ factor[point, :step]
        factor[:, step] = column / pivot**0.5
        diagonal -= factor[:, step].square()
        diagonal.clamp_(min=0)
        diagonal[point] = 0
        used += 1
    factor = factor[:, :used]
    shift = max(float(diagonal.mean()), 1e-10 * whole / gram.size)
    inside = factor.T @ factor
    inside.diagonal().add_(shift)
    corner = torch.linalg.cholesky(inside)

    def precondition(vectors: Tensor) -> Tensor:
        small = torch.cholesky_solve(factor.T @ vectors, corner)
        return (vectors - factor @ small) / shift

    return precondition
