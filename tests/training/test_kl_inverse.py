"""The differentiable kl inverse against the rounded one and against finite differences."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.bounds import kl_inverse_upper
from nonvacuous.training.objectives import kl_inverse

RISKS = [1e-8, 1e-4, 0.01, 0.2, 0.5, 0.9, 0.999]
BUDGETS = [1e-7, 1e-4, 0.01, 0.3, 2.0, 20.0]


def slopes(q: float, c: float) -> tuple[float, float, float]:
    risk = torch.tensor(q, dtype=torch.float64, requires_grad=True)
    budget = torch.tensor(c, dtype=torch.float64, requires_grad=True)
    value = kl_inverse(risk, budget)
    value.backward()
    assert risk.grad is not None and budget.grad is not None
    return value.item(), risk.grad.item(), budget.grad.item()


def exact_distance(q: mpmath.mpf, c: mpmath.mpf) -> mpmath.mpf:
    """1 - p for the upper inverse p, by bisection in 60 digits."""

    def excess(log_distance: mpmath.mpf) -> mpmath.mpf:
        distance = mpmath.exp(log_distance)
        return q * mpmath.log(q / (1 - distance)) + (1 - q) * mpmath.log((1 - q) / distance) - c

    low, high = mpmath.log(1 - q) - (c + 1) / (1 - q), mpmath.log(1 - q)
    for _ in range(220):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return mpmath.exp(high)


@given(st.floats(0.0, 1.0), st.floats(1e-9, 50.0))
def test_value_equals_the_rounded_inverse(q: float, c: float) -> None:
    value = slopes(q, c)[0]
    assert value == pytest.approx(kl_inverse_upper(q, c), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("q", RISKS)
@pytest.mark.parametrize("c", BUDGETS)
def test_gradient_against_sixty_digits(q: float, c: float) -> None:
    with mpmath.workdps(60):
        step = mpmath.mpf(10) ** -20
        exact_q, exact_c = mpmath.mpf(q), mpmath.mpf(c)
        in_q = exact_distance(exact_q - step * q, exact_c) - exact_distance(
            exact_q + step * q, exact_c
        )
        in_c = exact_distance(exact_q, exact_c - step * c) - exact_distance(
            exact_q, exact_c + step * c
        )
        expected_q, expected_c = in_q / (2 * step * q), in_c / (2 * step * c)
    _, slope_q, slope_c = slopes(q, c)
    assert slope_q == pytest.approx(float(expected_q), rel=1e-6)
    assert slope_c == pytest.approx(float(expected_c), rel=1e-6)


@pytest.mark.parametrize("q", [0.003, 0.02, 0.2, 0.6])
@pytest.mark.parametrize("c", [0.005, 0.05, 0.5])
def test_gradient_against_finite_differences_of_the_bound(q: float, c: float) -> None:
    step = 1e-6
    in_q = (kl_inverse_upper(q + step, c) - kl_inverse_upper(q - step, c)) / (2 * step)
    in_c = (kl_inverse_upper(q, c + step) - kl_inverse_upper(q, c - step)) / (2 * step)
    _, slope_q, slope_c = slopes(q, c)
    assert slope_q == pytest.approx(in_q, rel=1e-5)
    assert slope_c == pytest.approx(in_c, rel=1e-5)


def test_gradcheck_of_torch_agrees() -> None:
    risks = torch.tensor([0.001, 0.1, 0.4, 0.8], dtype=torch.float64, requires_grad=True)
    budgets = torch.tensor([0.01, 0.2, 1.5, 0.05], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(kl_inverse, (risks, budgets), atol=1e-6)


@pytest.mark.parametrize("q", [0.0, 1e-300, 1e-12, 0.5, 1.0 - 1e-13, 1.0])
@pytest.mark.parametrize("c", [0.0, 1e-300, 1e-15, 1.0, 700.0, 1e6])
def test_extremes_stay_finite_and_point_the_right_way(q: float, c: float) -> None:
    value, slope_q, slope_c = slopes(q, c)
    assert q - 1e-12 <= value <= 1.0
    assert math.isfinite(slope_q) and slope_q >= 0.0
    assert math.isfinite(slope_c) and slope_c >= 0.0


def test_at_zero_risk_the_inverse_is_one_minus_e_to_the_minus_c() -> None:
    value, slope_q, slope_c = slopes(0.0, 0.25)
    assert value == pytest.approx(-math.expm1(-0.25), rel=1e-9)
    assert slope_c == pytest.approx(math.exp(-0.25), rel=1e-6)
    assert slope_q > 1.0


def test_near_the_vacuous_end_the_slope_is_small_but_not_lost() -> None:
    value, _, slope_c = slopes(0.5, 40.0)
    assert value == 1.0
    assert 0.0 < slope_c < 1e-30


def test_float32_and_shapes_are_accepted() -> None:
    value = kl_inverse(torch.tensor([0.1, 0.2]), torch.tensor(0.05))
    assert value.dtype == torch.float64 and value.shape == (2,)
    expected = kl_inverse_upper(np.float32([0.1, 0.2]).astype(float), float(np.float32(0.05)))
    assert np.allclose(value.numpy(), expected, rtol=1e-12)
