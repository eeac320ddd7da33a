"""The plain numbers behind Theorems A, D and E."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nonvacuous.bounds import sparsity as numbers
from nonvacuous.errors import BadInput
from tests.sparsity import number_oracles as oracle

PROBABILITIES = (0.45, 0.2, 0.05, 0.02, 0.01, 1e-4)


@pytest.mark.parametrize(("p", "t"), [(0.05, 2.06), (0.02, 2.44), (0.01, 2.70)])
def test_self_normalized_quantile_has_the_known_values(p: float, t: float) -> None:
    assert numbers.self_normalized_quantile(p) == pytest.approx(t, abs=0.005)


@pytest.mark.parametrize("p", PROBABILITIES)
def test_self_normalized_quantile_is_a_quantile_rounded_up(p: float) -> None:
    t = numbers.self_normalized_quantile(p)
    assert oracle.self_normalized_tail(t) <= p
    assert oracle.self_normalized_tail(t * (1 - 1e-6)) > p


def test_self_normalized_quantile_covers_lipschitz_parts_with_dependent_scales() -> None:
    """The inequality itself: M is normal, and the size of the second part may depend on M."""
    generator = np.random.default_rng(0)
    m, n = generator.standard_normal((2, 400_000))
    for p in (0.3, 0.1, 0.02):
        t = numbers.self_normalized_quantile(p)
        worst = np.where(
            (m > 0) & (m < t), np.sqrt(np.maximum(t * t - m * m, 1e-12)) / np.maximum(m, 1e-9), 1e3
        )
        for r in (worst, 0.5 * worst, np.full_like(m, 0.3), np.full_like(m, 1.0)):
            rate = np.mean(m + r * n > t * np.sqrt(1 + r * r))
            assert rate <= p + 4 * math.sqrt(p / len(m))


@pytest.mark.parametrize("distance", [0.0, 0.3, 1.0, 2.5, 5.0, 8.0])
def test_kink_is_the_mean_of_a_rectified_normal(distance: float) -> None:
    exact = oracle.kink(distance)
    assert exact <= numbers.kink(distance) <= float(exact) * (1 + 1e-6) + 1e-13


@pytest.mark.parametrize("p", PROBABILITIES)
def test_quantiles_are_rounded_up_by_little(p: float) -> None:
    for events in (1, 300):
        t = numbers.two_sided_quantile(failure=p, events=events)
        assert 2 * events * oracle.tail(t) <= p < 2 * events * oracle.tail(t * (1 - 1e-6))
    for degrees in (1, 7, 100):
        c = numbers.chi_quantile(degrees=degrees, failure=p)
        assert oracle.chi_tail(degrees, c) <= p < oracle.chi_tail(degrees, c * (1 - 1e-6))
    shortfall = numbers.expected_shortfall(p)
    z = numbers.two_sided_quantile(failure=2 * p, events=1) if p < 0.5 else 0.0
    exact = oracle.density(z) / oracle.tail(z)
    assert float(exact) * (1 - 1e-7) <= shortfall <= float(exact) * (1 + 1e-7)


def test_lipschitz_quantile_covers_the_worst_function_and_not_much_more() -> None:
    """The extremal function grows with slope one up to x0 and is flat from there on."""
    p = 0.02
    t = numbers.lipschitz_quantile(failure=2 * p, events=1)
    x0 = numbers.two_sided_quantile(failure=2 * p, events=1)
    n = np.random.default_rng(1).standard_normal(1_000_000)
    values = np.minimum(n, x0) + float(oracle.kink(x0))
    assert abs(values.mean()) < 5e-3
    assert np.mean(values > t) == 0.0
    assert np.mean(values >= t - 1e-3) == pytest.approx(p, rel=0.05)


def test_expected_shortfall_covers_two_point_parts_that_convex_domination_allows() -> None:
    """A martingale step dominated by a normal may jump to its conditional mean above z."""
    p = 0.05
    q = numbers.expected_shortfall(p)
    n = np.random.default_rng(2).standard_normal(1_000_000)
    z = numbers.two_sided_quantile(failure=2 * p, events=1)
    jump = np.where(n > z, n[n > z].mean(), n[n <= z].mean())
    assert np.mean(jump > q) <= p
    assert np.mean(jump >= q * 0.99) == pytest.approx(p, rel=0.05)


@pytest.mark.slow
def test_noise_quantiles_of_theorem_a_hold_for_every_block() -> None:
    from itertools import combinations

    generator = np.random.default_rng(3)
    rows, columns, active, failure = 4, 5, 3, 0.2
    row_limit = numbers.row_noise_quantile(
        rows=rows, columns=columns, active=active, failure=failure
    )
    block_limit = numbers.block_noise_quantile(
        rows=rows, active_rows=2, columns=columns, active_columns=active, failure=failure
    )
    row_broken = block_broken = 0
    for _ in range(300):
        noise = generator.standard_normal((rows, columns))
        squares = np.sort(noise**2, axis=1)[:, -active:].sum(1)
        row_broken += bool(np.sqrt(squares.max()) > row_limit)
        largest = max(
            np.linalg.norm(noise[np.ix_(i, j)], 2)
            for i in combinations(range(rows), 2)
            for j in combinations(range(columns), active)
        )
        block_broken += largest > block_limit
    assert row_broken <= 300 * failure
    assert block_broken <= 300 * failure


def test_weights_of_the_integers_sum_to_one() -> None:
    total = math.fsum(math.exp(-numbers.integer_nats(j)) for j in range(-20_000, 20_001))
    assert 0.9999 < total <= 1.0


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: numbers.derandomized(loss_upper=0.1, escape=1.0, kl_nats=1.0, grid_nats=0.0,
                                      examples=100, failure=0.05), "escape"),
        (lambda: numbers.derandomized(loss_upper=0.1, escape=0.1, kl_nats=1.0, grid_nats=-1.0,
                                      examples=100, failure=0.05), "grid_nats"),
        (lambda: numbers.self_normalized_quantile(0.7), "1/2"),
        (lambda: numbers.integer_nats(1.0), "integer"),  # type: ignore[arg-type]
        (lambda: numbers.two_sided_quantile(failure=0.1, events=0), "events"),
        (lambda: numbers.chi_quantile(degrees=-1, failure=0.1), "degrees"),
        (lambda: numbers.row_noise_quantile(rows=2, columns=3, active=4, failure=0.1), "active"),
    ],
)  # fmt: skip
def test_bad_numbers_are_refused(call: object, word: str) -> None:
    with pytest.raises(BadInput, match=word):
        call()  # type: ignore[operator]
