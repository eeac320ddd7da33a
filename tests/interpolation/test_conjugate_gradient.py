from __future__ import annotations

import numpy as np
import torch

from nonvacuous.interpolation import Limits, gaussian, interpolate, laplace
from nonvacuous.interpolation.equations import conjugate_gradient, greedy_preconditioner
from nonvacuous.interpolation.kernels import PointGram


def problem(n: int = 300):
    generator = np.random.default_rng(0)
    return generator.normal(size=(n, 4)), generator.normal(size=(n, 2))


def test_it_reaches_the_direct_solution():
    points, values = problem()
    direct = interpolate(points, values, kernel=laplace(1.0))
    iterated = interpolate(
        points,
        values,
        kernel=laplace(1.0),
        method="conjugate-gradient",
        limits=Limits(tolerance=1e-10),
    )
    assert iterated.residual <= 1e-10
    assert iterated.warnings == ()
    assert iterated.pivots is None
    assert np.allclose(
        iterated.coefficients["values"], direct.coefficients["values"], rtol=1e-6, atol=1e-8
    )


def test_it_says_so_when_it_has_not_converged():
    points, values = problem()
    found = interpolate(
        points,
        values,
        kernel=gaussian(0.02),
        method="conjugate-gradient",
        limits=Limits(iterations=3),
    )
    assert found.residual > 1e-6
    assert "NOT an interpolant" in found.warnings[0]
    k = PointGram(gaussian(0.02), torch.from_numpy(points)).tile(slice(0, 300), slice(0, 300))
    missed = np.abs(k.numpy() @ found.coefficients["values"] - values).max()
    assert abs(missed - found.residual) <= 1e-9 * missed


def test_the_preconditioner_saves_iterations_and_changes_nothing_else():
    points, values = problem()
    gram = PointGram(laplace(0.3), torch.from_numpy(points))
    k = gram.tile(slice(0, 300), slice(0, 300))
    targets = k @ torch.from_numpy(values)
    runs = [
        conjugate_gradient(
            lambda v: k @ v, targets, precondition=precondition, tolerance=1e-7, limit=1000
        )
        for precondition in (lambda v: v.clone(), greedy_preconditioner(gram, rank=100))
    ]
    assert all(run.residual <= 1e-7 for run in runs)
    assert runs[1].iterations < runs[0].iterations / 2


def test_a_start_at_the_solution_needs_no_iteration():
    k = torch.eye(5, dtype=torch.float64) * 2
    right = torch.ones(5, 1, dtype=torch.float64)
    run = conjugate_gradient(
        lambda v: k @ v, right, precondition=lambda v: v, start=right / 2, tolerance=1e-9
    )
    assert run.iterations == 0 and run.residual == 0


def test_a_column_of_zeros_does_no_harm():
    points, values = problem(50)
    values[:, 1] = 0
    found = interpolate(points, values, kernel=laplace(1.0), method="conjugate-gradient")
    assert found.residual <= 1e-6
    assert not found.coefficients["values"][:, 1].any()
