from __future__ import annotations

import numpy as np
import pytest
import torch

from nonvacuous.errors import BadInput
from nonvacuous.interpolation import gaussian, linear
from nonvacuous.interpolation.perfect_fits import (
    LinearProblem,
    compare_fits,
    compare_interpolants,
    family,
    hessian_difference,
    minimum_norm,
    random_problem,
)
from nonvacuous.interpolation.solve import interpolate


@pytest.fixture(scope="module")
def problem():
    return random_problem(examples=15, weights=45, seed=3)


@pytest.fixture(scope="module")
def fits(problem):
    return {fit.name: fit for fit in compare_fits(problem, seed=3)}


def test_minimum_norm_is_the_pseudo_inverse_and_the_linear_kernel(problem):
    found = minimum_norm(problem)
    assert np.allclose(found, np.linalg.pinv(problem.inputs) @ problem.targets, atol=1e-10)
    kernel = interpolate(problem.inputs, problem.targets, kernel=linear())
    assert kernel.norms["values"] == pytest.approx(np.linalg.norm(found))
    assert np.allclose(kernel.predict(problem.test_inputs), problem.test_inputs @ found, atol=1e-8)


def test_every_fit_is_perfect(fits):
    assert len(fits) == 5
    assert max(fit.residual for fit in fits.values()) < 1e-12


def test_descent_ends_where_theory_says(fits):
    assert fits["SGD from zero"].expected < 1e-12
    assert fits["SGD from zero"].outside < 1e-12
    assert fits["SGD from elsewhere"].expected < 1e-12
    assert fits["SGD from elsewhere"].to_minimum > 0.5


@pytest.mark.parametrize("name", ["Adam from zero", "AdaGrad from zero"])
def test_adaptive_methods_leave_the_span(fits, name):
    assert fits[name].outside > 0.1
    assert fits[name].norm > 1.01 * fits["minimum norm"].norm


def test_the_family_fits_and_its_norm_grows(problem):
    members = list(family(problem, np.array([0.0, 3.0, 30.0])))
    assert max(fit.residual for fit in members) < 1e-12
    norms = np.array([fit.norm for fit in members])
    assert np.allclose(norms**2, norms[0] ** 2 + np.array([0.0, 9.0, 900.0]))
    assert members[2].test_error > 10 * members[0].test_error


def test_the_hessian_is_the_same_at_all_perfect_fits_and_only_there(problem):
    smallest, *others = compare_fits(problem, seed=3).values()
    others += family(problem, np.array([50.0])).values()
    assert max(hessian_difference(problem, smallest, other) for other in others) < 1e-12
    assert hessian_difference(problem, smallest, smallest / 2) > 1e-3
    # The squared loss has one Hessian everywhere, perfect fit or not.
    assert hessian_difference(problem, smallest, smallest * 0, loss=_squared) < 1e-12


def _squared(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (predictions - targets).square().mean()


def test_bad_problems():
    x, y = np.eye(3), np.ones(3)
    with pytest.raises(BadInput, match="more weights than examples"):
        LinearProblem(x, y, x, y)
    with pytest.raises(BadInput, match="dependent"):
        LinearProblem(np.ones((2, 5)), np.ones(2), np.ones((2, 5)), np.ones(2))


def test_interpolants_that_fit_and_fail():
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(3, 6)) * 2
    labels = generator.integers(0, 3, 120)
    points = centers[labels] + generator.normal(size=(120, 6))
    good, forced, elsewhere = compare_interpolants(
        points[:80], labels[:80], points[80:], labels[80:], kernel=gaussian(0.05), classes=3
    )
    assert [entry.train_errors for entry in (good, forced, elsewhere)] == [0, 0, 0]
    assert max(entry.residual for entry in (good, forced, elsewhere)) < 1e-5
    assert good.test_errors < 10 < forced.test_errors
    assert good.norm < forced.norm and good.norm < elsewhere.norm
    assert elsewhere.test_errors > good.test_errors
