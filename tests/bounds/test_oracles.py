"""The oracles against each other and against scipy: a judge is examined before it judges."""

from __future__ import annotations

import pytest
from scipy import stats

from . import oracles
from .oracles import mp, mpf

QS = [5e-324, 1e-300, 1e-12, 0.1, 0.5, 0.9, 1.0 - 1e-12, 1.0 - 2.0**-53]
CS = [1e-18, 1e-9, 0.1, 1.0, 50.0, 700.0, 1e6]


@pytest.mark.parametrize("c", CS)
@pytest.mark.parametrize("q", QS)
def test_inverses_invert_the_definition(q: float, c: float) -> None:
    upper, lower = oracles.kl_inverse_upper(q, c), oracles.kl_inverse_lower(q, c)
    assert 0 <= lower < q < upper <= 1
    with mp.workdps(1000):
        for p in (upper, lower):
            if 0 < p < 1:  # 1 - p may be e^-10^22, which only rounds to p = 1
                assert abs(oracles.binary_kl(q, p) / c - 1) < mpf(10) ** -15


@pytest.mark.slow
def test_inverses_where_they_have_closed_forms() -> None:
    for c in CS:
        assert oracles.kl_inverse_upper(0.0, c) == -mp.expm1(-c)
        assert oracles.kl_inverse_lower(1.0, c) == mp.exp(-c)
        # kl(1/2, p) = -ln(4p(1-p))/2
        with mp.workdps(200):
            half_width = mp.sqrt(-mp.expm1(-2 * mpf(c))) / 2
            upper, lower = oracles.kl_inverse_upper(0.5, c), oracles.kl_inverse_lower(0.5, c)
            assert abs(upper - (mpf(0.5) + half_width)) < mpf(10) ** -45
            assert abs(lower - (mpf(0.5) - half_width)) < mpf(10) ** -45


def test_the_two_forms_of_kl_agree() -> None:
    for q in QS:
        for tilt in (-50, -1, -1e-3, 1e-3, 1, 50):
            q_exact, d = mpf(q), mpf(tilt)
            with mp.workdps(400):
                p = q_exact * mp.exp(d) / (1 + q_exact * mp.expm1(d))
                expected = oracles.binary_kl(q, p)
            assert abs(oracles._kl_of_tilt(q_exact, d) / expected - 1) < mpf(10) ** -40


def test_three_routes_to_the_moment() -> None:
    for n in [*range(1, 60), 200, 500]:
        exact = oracles.real(oracles.maurer_moment_by_definition(n))
        assert abs(oracles.maurer_moment(n) / exact - 1) < mpf(10) ** -55
    for n in (10**5, 10**7, 10**9):
        # The first term left out is about n^(-5/2)/300.
        difference = abs(oracles.maurer_moment(n) - oracles.maurer_moment_by_expansion(n))
        assert difference < mpf(n) ** mpf(-2.5) / 100


def test_quadratic_solves_its_equation() -> None:
    p = oracles.quadratic(0.02, 100.0, 10_000, 0.05)
    complexity = (100 + mp.log(2 * mp.sqrt(10_000) / mpf(0.05))) / 10_000
    assert abs((p - mpf(0.02)) ** 2 / (2 * p) - complexity) < mpf(10) ** -50
    half = complexity / 2
    assert abs(p - (mp.sqrt(mpf(0.02) + half) + mp.sqrt(half)) ** 2) < mpf(10) ** -50


def test_the_best_temperature_reaches_the_kl_inverse() -> None:
    rates = [mpf(10) ** (mpf(power) / 200) for power in range(-600, 300)]
    best = min(oracles.catoni(0.1, 50.0, 1000, 0.05, rate) for rate in rates)
    infimum = oracles.catoni_infimum(0.1, 50.0, 1000, 0.05)
    assert infimum <= best <= infimum * (1 + mpf(10) ** -4)


def test_binomial_tail_against_its_sum() -> None:
    for n, k, p in [(1, 0, 0.3), (10, 3, 0.6), (10, 9, 0.95), (50, 20, 0.2), (50, 49, 0.5)]:
        direct = mp.fsum(
            mp.binomial(n, j) * mpf(p) ** j * (1 - mpf(p)) ** (n - j) for j in range(k + 1)
        )
        assert abs(oracles.binomial_cdf(k, n, p) / direct - 1) < mpf(10) ** -35
    assert oracles.binomial_cdf(4, 4, 0.5) == 1
    assert oracles.binomial_cdf(0, 4, 1.0) == 0


@pytest.mark.parametrize("failure", [1e-12, 0.01, 0.5, 0.9])
@pytest.mark.parametrize(
    ("errors", "examples"), [(0, 1), (0, 10), (3, 10), (10, 10), (100, 10_000), (999, 1000)]
)
def test_holdout_against_the_beta_quantile(errors: int, examples: int, failure: float) -> None:
    upper = oracles.holdout(errors, examples, failure)
    lower = oracles.holdout_lower(errors, examples, failure)
    if errors < examples:
        quantile = stats.beta.isf(failure, errors + 1, examples - errors)
        assert float(upper) == pytest.approx(quantile, rel=1e-9)
    if errors > 0:
        quantile = stats.beta.ppf(failure, errors, examples - errors + 1)
        assert float(lower) == pytest.approx(quantile, rel=1e-9)


def test_large_holdout_against_the_beta_quantile() -> None:
    for errors, failure in [(0, 1e-12), (1, 0.5), (10**5, 1e-6)]:
        quantile = stats.beta.isf(failure, errors + 1, 10**9 - errors)
        assert float(oracles.holdout(errors, 10**9, failure)) == pytest.approx(quantile, rel=1e-9)
    quantile = stats.beta.isf(1e-6, 5 * 10**8 + 1, 5 * 10**8)
    tail = oracles.binomial_cdf(5 * 10**8, 10**9, quantile)
    assert float(tail) == pytest.approx(1e-6, rel=1e-6)
