"""Conditional mutual information of signs against a loop over ordered pairs."""

from __future__ import annotations

import numpy as np
import pytest

from nonvacuous.measures.correlation import bootstrap_weights
from nonvacuous.measures.correlation_summary import (
    conditions_of,
    least_information,
    normalized_information,
)
from tests.measures import correlation_oracles as oracles
from tests.measures.correlation_worlds import world


def test_sets_of_at_most_two_hyper_parameters() -> None:
    conditions = conditions_of(world().axes)
    assert len(conditions) == 1 + 4 + 6
    assert next(iter(conditions)) == ()
    assert conditions[()].max() == 0
    assert conditions["width", "noise"].max() + 1 == 6


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ties", [False, True])
def test_it_is_that_of_the_loop(seed: int, ties: bool) -> None:
    trials = world(seed=seed, repetitions=1)
    generator = np.random.default_rng(seed)
    measure = trials.gaps * 20 + generator.normal(size=len(trials))
    measure = np.round(measure) if ties else measure
    conditions = conditions_of(trials.axes)
    weights = bootstrap_weights(trials.cells, draws=1, seed=seed)
    for rows in (None, weights):
        (found,) = normalized_information(measure, trials.gaps, conditions, rows)
        for chosen, value in zip(conditions, found, strict=True):
            expected = oracles.information(
                measure, trials, chosen, None if rows is None else rows[0]
            )
            assert value == pytest.approx(expected, abs=1e-5, nan_ok=True)


def test_the_gap_tells_everything_and_noise_nothing() -> None:
    trials = world(levels={"width": 4, "rate": 4, "noise": 4}, repetitions=4)
    conditions = conditions_of(trials.axes)
    assert least_information(
        normalized_information(trials.gaps, trials.gaps, conditions)[0], conditions
    )[0] == pytest.approx(1.0)
    noise = np.random.default_rng(0).normal(size=len(trials))
    (shares,) = normalized_information(noise, trials.gaps, conditions)
    assert least_information(shares, conditions)[0] < 0.005


def test_knowing_the_hyper_parameter_takes_away_what_a_measure_had_from_it() -> None:
    trials = world(effects={"noise": 1.0, "width": 0.05}, spread=0.01)
    measure = trials.axes["noise"].astype(float)
    conditions = conditions_of(trials.axes)
    (shares,) = normalized_information(measure, trials.gaps, conditions)
    assert shares[0] > 0.3
    least, given = least_information(shares, conditions)
    assert least == pytest.approx(0.0, abs=1e-9)
    assert "noise" in given


def test_signs_do_not_mind_an_increasing_function() -> None:
    trials = world(seed=4)
    measure = np.random.default_rng(1).normal(size=len(trials))
    conditions = conditions_of(trials.axes)
    one = normalized_information(measure, trials.gaps, conditions)
    other = normalized_information(np.exp(measure), trials.gaps, conditions)
    assert np.array_equal(one, other)
    # Nor does information mind which way round the measure is read.
    assert normalized_information(-measure, trials.gaps, conditions) == pytest.approx(one)


def test_equal_gaps_leave_nothing_to_tell() -> None:
    trials = world()
    conditions = conditions_of(trials.axes)
    (shares,) = normalized_information(trials.gaps, 0 * trials.gaps, conditions)
    assert np.isnan(shares).all()
    assert least_information(shares, conditions) == (0.0, ())


def test_many_draws_at_once_are_those_one_at_a_time() -> None:
    generator = np.random.default_rng(5)
    codes = {"a": generator.integers(0, 3, 40), "b": generator.integers(0, 2, 40)}
    measure, gaps = generator.normal(size=40), generator.normal(size=40)
    weights = generator.exponential(size=(4, 40))
    conditions = conditions_of(codes)
    together = normalized_information(measure, gaps, conditions, weights)
    each = [normalized_information(measure, gaps, conditions, row[None])[0] for row in weights]
    assert together.shape == (4, len(conditions))
    assert together == pytest.approx(np.array(each), rel=1e-9)
