"""K a = y, solved to a residual that is measured and reported. There is no ridge anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.interpolation.cholesky import NotPositive, Pivots
from nonvacuous.interpolation.factor import Factor, build_factor, forget_factor
from nonvacuous.interpolation.kernels import CHUNK, Gram, product
from nonvacuous.interpolation.plan import RANK, Limits, Plan
from nonvacuous.progress import Progress, Reporter

#: A pivot below this share of its diagonal entry is told to the user.
NEAR_SINGULAR = 1e-8
_MOST_REFINEMENTS = 20
#: A refinement that does not shrink the residual by this factor has stalled.
_PROGRESS = 0.5


@dataclass(frozen=True, eq=False)
class Solved:
    """What it took to solve the equations, and how well it went.

    refinements    the residual before refinement and after each step of it
    iterations     of conjugate gradients, where they were needed
    plan           method, precision, place and sizes, as in the end
    pivots         the smallest pivot and its point; None with conjugate gradients
    warnings       sentences worth reading: repeated points, near-singular, not converged
    """

    refinements: tuple[float, ...]
    iterations: int
    plan: Plan
    pivots: Pivots | None
    warnings: tuple[str, ...]

    @property
    def residual(self) -> float:
        """max |f(x_i) − y_i| over everything, computed afresh in float64."""
        return self.refinements[-1]


@dataclass(frozen=True, eq=False)
class Solution(Solved):
    """Coefficients, (points, columns) float64, and K times them, computed afresh in float64."""

    coefficients: Tensor
    fitted: Tensor


def solve_equations(
    gram: Gram,
    targets: Tensor,
    plan: Plan,
    *,
    identity: str = "",
    limits: Limits | None = None,
    replan: Callable[[], Plan] | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Solve for all columns of the targets at once, as planned.

    replan   gives the plan for float64, used when float32 turns out too coarse; None: not allowed
    """
    limits = limits or Limits()
    if plan.method == "conjugate-gradient":
        return _by_iteration(gram, targets, plan, limits, progress)
    final = plan.precision == "float64" or replan is None
    attempt: Solution | None = None
    try:
        # The factor is an argument alone: its memory is free again on return.
        attempt = _refined(
            gram,
            targets,
            plan,
            build_factor(gram, plan, identity=identity, tile=limits.tile, progress=progress),
            limits.tolerance,
            progress,
        )
        reason = f"with a factor in float32 the residual stayed at {attempt.residual:.1e}"
    except NotPositive as trouble:
        if final:
            raise near_singular(gram, trouble.point, plan.precision) from trouble
        reason = f"the factorization in float32 broke down at point {trouble.point}"
    forget_factor(plan.folder)
    if attempt is not None and (final or attempt.residual <= limits.tolerance):
        return attempt
    del attempt
    assert replan is not None
    again = solve_equations(
        gram, targets, replan(), identity=identity, limits=limits, progress=progress
    )
    return replace(again, warnings=(f"{reason}; solved again in float64", *again.warnings))


def near_singular(gram: Gram, point: int, precision: str) -> BadInput:
    """The error for a pivot that is not positive, with the point most like the one in trouble."""
    values = gram.tile(slice(point, point + 1), slice(0, gram.size))[0]
    own = float(values[point])
    if own <= 0:
        return BadInput(
            f"the kernel of point {point} with itself is {own:g}: every function of this kernel is "
            "zero there. Remove the point, or add a constant coordinate"
        )
    if point == 0:
        return BadInput(f"the kernel of point 0 with itself is {own:g}, which cannot be used")
    # Only the points before it have a say in a pivot.
    alike = (values / gram.diagonal().clamp(min=1e-300).sqrt() / own**0.5).abs()[:point]
    other = int(alike.argmax())
    more = "take precision float64, " if precision == "float32" else ""
    return BadInput(
        f"the kernel matrix is singular in {precision}: its pivot at point {point} is not "
        "positive, so the points before it already decide the value there. Most like it is point "
        f"{other} (normalized kernel {float(alike[other]):.12g}). {more.capitalize()}"
        f"{'remove' if more else 'Remove'} one of them, or take a narrower kernel (a larger gamma) "
        "or laplace; no ridge is added behind your back"
    )


def _refined(
    gram: Gram,
    targets: Tensor,
    plan: Plan,
    factor: Factor,
    tolerance: float,
    progress: Progress | None,
) -> Solution:
    """Iterative refinement: the factor's answer to what is left, until enough is left over."""
    multiply = _multiplier(gram, progress, "refining")
    coefficients = factor.solve(targets)
    fitted = multiply(coefficients)
    history = [_largest(targets - fitted)]
    aim = tolerance if plan.precision == "float64" else 0.5 * tolerance
    while history[-1] > aim and len(history) <= _MOST_REFINEMENTS:
        better = coefficients + factor.solve(targets - fitted)
        fitted_better = multiply(better)
        size = _largest(targets - fitted_better)
        if not size < history[-1]:
            break
        coefficients, fitted = better, fitted_better
        history.append(size)
        if size > _PROGRESS * history[-2]:
            break
    iterations = 0
    if history[-1] > tolerance and torch.isfinite(coefficients).all():
        # A factor too coarse to refine with is still an excellent preconditioner.
        done = conjugate_gradient(
            multiply,
            targets,
            precondition=factor.solve,
            start=coefficients,
            tolerance=tolerance,
            limit=50,
        )
        iterations = done.iterations
        if done.residual < history[-1]:
            coefficients, fitted = done.solution, targets - done.remainder
            history.append(done.residual)
    residual, pivots, warnings = history[-1], factor.pivots, []
    if pivots.smallest < NEAR_SINGULAR:
        warnings.append(
            f"near-singular: the smallest pivot is {pivots.smallest:.1e} of its diagonal entry, at "
            f"point {pivots.point}; the function is determined, its coefficients hardly"
        )
    if residual > tolerance:
        warnings.append(
            f"the residual {residual:.1e} is above the tolerance {tolerance:g}: the function "
            "passes near the values, not through them. The kernel matrix is near-singular; take a "
            "narrower kernel (a larger gamma) or laplace"
        )
    return Solution(tuple(history), iterations, plan, pivots, tuple(warnings), coefficients, fitted)


def _by_iteration(
    gram: Gram, targets: Tensor, plan: Plan, limits: Limits, progress: Progress | None
) -> Solution:
    reporter = Reporter(progress, "conjugate gradients")
    tolerance, limit = limits.tolerance, limits.iterations
    done = conjugate_gradient(
        _multiplier(gram, None, ""),
        targets,
        precondition=greedy_preconditioner(gram),
        tolerance=tolerance,
        limit=limit,
        report=lambda step, size: reporter.report(step, limit, f"residual {size:.1e}"),
    )
    warnings: tuple[str, ...] = ()
    if not done.residual <= tolerance:  # or not a number
        warnings = (
            f"conjugate gradients stopped after {done.iterations} iterations with the residual "
            f"{done.residual:.1e}, above the tolerance {tolerance:g}: this is NOT an interpolant "
            "yet. Allow more iterations, or take a narrower kernel (a larger gamma)",
        )
    fitted = targets - done.remainder
    return Solution((done.residual,), done.iterations, plan, None, warnings, done.solution, fitted)


def _multiplier(gram: Gram, progress: Progress | None, phase: str) -> Callable[[Tensor], Tensor]:
    passes = 0

    def multiply(vectors: Tensor) -> Tensor:
        nonlocal passes
        passes += 1
        reporter = Reporter(progress, phase)
        return product(
            gram,
            vectors,
            chunk=CHUNK if gram.device.type == "cpu" else 4 * CHUNK,
            report=lambda done, total: reporter.report(done, total, f"pass {passes} in float64"),
        )

    return multiply


def _largest(remainder: Tensor) -> float:
    largest = float(remainder.abs().max())
    return math.inf if math.isnan(largest) else largest


# Conjugate gradients without a matrix: for more points than memory or disk can hold a factor of.
# The kernel matrix is multiplied with vectors tile by tile. A preconditioner from a partial
# Cholesky factorization, the points chosen greedily, takes care of the largest eigenvalues; it
# changes how fast the answer is reached, never which answer that is.


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
    direction, inner, iterations = torch.zeros_like(remainder), torch.zeros_like(remainder[0]), 0
    while iterations < limit and float(remainder.abs().max()) > 0.5 * tolerance:
        searched = precondition(remainder)
        following = (remainder * searched).sum(0)
        if not bool(following.isfinite().all()):
            break
        ratio = torch.where(inner > 0, following / inner.clamp(min=1e-300), 0.0)
        direction, inner = searched + ratio * direction, following
        image = multiply(direction)
        curvature = (direction * image).sum(0)
        # A column that is solved has no direction left; it stands still.
        step = torch.where(curvature > 0, inner / curvature.clamp(min=1e-300), 0.0)
        solution += step * direction
        remainder -= step * image
        iterations += 1
        size = float(remainder.abs().max())
        if size < best_size:
            best, best_size = solution.clone(), size
        if report is not None:
            report(iterations, size)
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
