"""Kendall's rank correlation and its bootstrap, against loops, SciPy and worlds with an answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from nonvacuous.errors import BadInput
from nonvacuous.measures.correlation import (
    Estimate,
    Trials,
    bootstrap_weights,
    kendall_tau,
    ranked,
)
from tests.measures import correlation_oracles as oracles
from tests.measures.correlation_worlds import world

COLUMN = st.lists(st.integers(-3, 3), min_size=12, max_size=12)


@given(COLUMN, COLUMN)
def test_tau_is_that_of_scipy_and_of_a_loop(one: list[int], other: list[int]) -> None:
    found = kendall_tau(one, other)[0]
    assert found == pytest.approx(oracles.tau(one, other), abs=1e-12)
    reference = kendalltau(one, other).statistic
    assert found == pytest.approx(0.0 if np.isnan(reference) else reference, abs=1e-12)


@given(COLUMN, COLUMN, st.integers(0, 100))
def test_weighted_tau_is_the_weighted_loop(one: list[int], other: list[int], seed: int) -> None:
    weights = bootstrap_weights(np.arange(12), draws=3, seed=seed)
    found = kendall_tau(one, other, weights)
    for row, value in zip(weights, found, strict=True):
        assert value == pytest.approx(oracles.tau(one, other, row), abs=1e-5)


@given(COLUMN, COLUMN)
def test_tau_turns_with_its_argument_and_does_not_mind_the_scale(
    one: list[int], other: list[int]
) -> None:
    value = kendall_tau(one, other)[0]
    assert kendall_tau([-x for x in one], other)[0] == pytest.approx(-value, abs=1e-12)
    assert kendall_tau(np.exp(np.array(one)), other)[0] == pytest.approx(value, abs=1e-12)
    assert kendall_tau(other, one)[0] == pytest.approx(value, abs=1e-12)


def test_many_networks_are_taken_in_parts() -> None:
    generator = np.random.default_rng(0)
    one, other = generator.normal(size=(2, 1300))
    assert kendall_tau(one, other)[0] == pytest.approx(kendalltau(one, other).statistic, abs=1e-9)


def test_infinities_have_their_places() -> None:
    assert ranked([np.inf, 1.0, -np.inf, 1.0]).tolist() == [2, 1, 0, 1]
    assert kendall_tau([-np.inf, 0.0, np.inf], [1, 2, 3])[0] == 1.0


def test_the_interval_covers_what_is_true_as_often_as_it_says() -> None:
    # Two normal columns with correlation r have tau = 2 arcsin(r) / pi.
    truth, hits = 2 * np.arcsin(0.5) / np.pi, 0
    for seed in range(120):
        generator = np.random.default_rng(seed)
        one = generator.normal(size=80)
        other = 0.5 * one + np.sqrt(0.75) * generator.normal(size=80)
        weights = bootstrap_weights(np.arange(80), draws=200, seed=seed)
        found = Estimate.of(kendall_tau(one, other, np.vstack([np.ones(80), weights])))
        hits += found.low <= truth <= found.high
    assert 104 <= hits <= 120


def test_repetitions_of_a_cell_share_their_weight() -> None:
    trials = world()
    cells = trials.cells
    assert len(set(cells.tolist())) == 24
    weights = bootstrap_weights(cells, draws=5, seed=1)
    assert weights.shape == (5, 48)
    assert np.allclose(weights.mean(axis=1), 1.0)
    for cell in range(24):
        assert np.ptp(weights[:, cells == cell], axis=1).max() == 0.0


def test_axes_that_never_change_are_left_out() -> None:
    trials = Trials.of([0.1, 0.2, 0.3], {"width": [8, 64, 8], "depth": [2, 2, 2]})
    assert list(trials.axes) == ["width"]
    assert trials.values["width"] == (8, 64)
    assert trials.axes["width"].tolist() == [0, 1, 0]
    few = trials.where(np.array([True, False, True]))
    assert len(few) == 2
    assert few.values == trials.values


@pytest.mark.parametrize(
    ("gaps", "axes", "message"),
    [
        ([0.1], {}, "at least two"),
        ([0.1, np.nan], {}, "finite"),
        ([0.1, 0.2], {"width": [1]}, "width has shape"),
    ],
)
def test_refused(gaps: list[float], axes: dict[str, list[int]], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Trials.of(gaps, axes)


def test_an_interval_ends_where_its_statistic_does():
    drawn = np.array([0.5, *np.linspace(-1.5, 1.5, 301)])
    whole, share = Estimate.of(drawn), Estimate.of(drawn, least=0.0)
    assert (whole.low, whole.high) == (-1.0, 1.0)
    assert (share.low, share.high) == (0.0, 1.0)
    inner = Estimate.of(drawn / 10.0)
    assert -0.15 < inner.low < -0.13 and 0.13 < inner.high < 0.15
