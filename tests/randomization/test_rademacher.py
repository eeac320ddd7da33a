from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import linprog

from nonvacuous.errors import BadInput
from nonvacuous.randomization.classical import rademacher_estimate, sign_vectors

EXAMPLES = 200


def least_squares_errors(inputs: torch.Tensor, signs: torch.Tensor) -> tuple[int, ...]:
    """Wrong signs of the linear classifier that least squares finds, for each row of signs.

    A check of the estimate where theory gives the answer: for Gaussian inputs, d of them among n
    examples and h = d / n, the mean of 2 * accuracy - 1 is about 2 Phi(sqrt(h / (1 - h))) - 1, and
    1 from d = n on. The best linear classifier fits everything from about d = n / 2 on (Cover,
    1965): what a training rule reaches is a lower bound, and here one sees by how much.

    inputs   (examples, d)
    signs    (sign vectors, examples) of 0 and 1, as from sign_vectors
    """
    points = inputs.double()
    wanted = (2 * signs - 1).double().T
    # The projection on the columns is the same whichever solution lstsq would choose.
    basis, values, _ = torch.linalg.svd(points, full_matrices=False)
    tolerance = max(points.shape) * torch.finfo(torch.float64).eps
    basis = basis[:, values > tolerance * values.max().clamp(min=tolerance)]
    fitted = basis @ (basis.T @ wanted)
    return tuple((fitted.sign() != wanted).sum(dim=0).tolist())


def gaussian(inputs: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(EXAMPLES, inputs, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("inputs", "measured"),
    [(10, 0.18), (50, 0.43), (100, 0.67), (150, 0.92), (200, 1.00), (400, 1.00)],
)
def test_linear_classes_with_200_examples(inputs: int, measured: float) -> None:
    """The numbers of the prototype, and the formula for Gaussian inputs behind them."""
    errors = least_squares_errors(gaussian(inputs), sign_vectors(100, EXAMPLES, seed=1))
    found = rademacher_estimate(errors, examples=EXAMPLES)
    estimate = found.complexity.value
    assert estimate == pytest.approx(measured, abs=0.03)
    share = inputs / EXAMPLES
    theory = 1.0 if share >= 1 else 2 * stats.norm.cdf(math.sqrt(share / (1 - share))) - 1
    error = np.std([1 - 2 * count / EXAMPLES for count in errors], ddof=1) / math.sqrt(len(errors))
    assert abs(estimate - theory) <= 5 * error + 1e-12
    assert ("fitted without an error" in found.verdict) == (inputs >= EXAMPLES)


def test_training_gives_a_lower_bound_of_the_supremum() -> None:
    """With 150 inputs the best linear classifier fits all 200 signs; least squares does not."""
    inputs, signs = gaussian(150), sign_vectors(5, EXAMPLES, seed=2)
    reached = rademacher_estimate(least_squares_errors(inputs, signs), examples=EXAMPLES)
    assert reached.complexity.value < 0.97
    for row in (2 * signs - 1).double().numpy():
        margins = -row[:, None] * inputs.double().numpy()
        best = linprog(np.zeros(150), A_ub=margins, b_ub=-np.ones(EXAMPLES), bounds=(None, None))
        assert best.status == 0  # some weights put every example on its side


def test_least_squares_against_numpy_and_with_dependent_columns() -> None:
    inputs, signs = gaussian(20, seed=3), sign_vectors(4, EXAMPLES, seed=4)
    expected = []
    for row in (2 * signs - 1).double().numpy():
        weights = np.linalg.lstsq(inputs.double().numpy(), row, rcond=None)[0]
        expected.append(int((np.sign(inputs.double().numpy() @ weights) != row).sum()))
    assert least_squares_errors(inputs, signs) == tuple(expected)
    twice = torch.cat([inputs, inputs, torch.zeros(EXAMPLES, 2)], dim=1)
    assert least_squares_errors(twice, signs) == tuple(expected)


def test_estimate_and_standard_error_by_hand() -> None:
    found = rademacher_estimate([10, 20, 30], examples=100, confidence=0.9)
    assert found.complexity.value == pytest.approx((0.8 + 0.6 + 0.4) / 3)
    half = stats.t.ppf(0.95, 2) * 0.2 / math.sqrt(3)
    assert found.complexity.high - found.complexity.value == pytest.approx(half)
    assert found.gap_bound == pytest.approx(0.6 + 3 * math.sqrt(math.log(20) / 200))
    assert found.sign_vectors == 3
    assert "at least 0.600 ± 0.12" in found.verdict
    assert "diagnosis, not a certificate" in found.verdict


def test_verdicts_at_the_ends() -> None:
    perfect = rademacher_estimate([0, 0], examples=50)
    assert perfect.complexity.value == 1
    assert perfect.is_vacuous
    assert "says nothing, whatever the labels" in perfect.verdict
    one = rademacher_estimate([5], examples=1000)
    assert "±" not in one.verdict
    guessing = rademacher_estimate([60], examples=100)
    assert guessing.complexity.value == pytest.approx(-0.2)
    assert guessing.gap_bound > 0


def test_sign_vectors_are_fair_independent_and_extendable() -> None:
    signs = sign_vectors(50, 2000, seed=7)
    assert signs.dtype == torch.int64
    assert signs.unique().tolist() == [0, 1]
    assert torch.equal(sign_vectors(3, 2000, seed=7), signs[:3])
    assert not torch.equal(sign_vectors(3, 2000, seed=8), signs[:3])
    low, high = stats.binom.ppf([1e-6, 1 - 1e-6], signs.numel(), 0.5)
    assert low <= int(signs.sum()) <= high
    centered = (2 * signs - 1).double()
    products = (centered @ centered.T / 2000).fill_diagonal_(0.0)
    assert float(products.abs().max()) < 5.5 / math.sqrt(2000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rademacher_estimate([], examples=10), "no sign vector was given"),
        (lambda: rademacher_estimate([11], examples=10), "must not exceed examples"),
        (lambda: rademacher_estimate([0.5], examples=10), "integer count"),
        (lambda: sign_vectors(0, 10, seed=0), "count must be at least 1"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        call()
