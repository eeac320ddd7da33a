"""One hyper-parameter at a time: the granulated correlation against loops and planted worlds."""

from __future__ import annotations

import numpy as np
import pytest

from nonvacuous.measures.correlation import (
    bootstrap_weights,
    coupled_by,
    granulated_tau,
    kendall_tau,
)
from tests.measures import correlation_oracles as oracles
from tests.measures.correlation_worlds import world


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_mean_over_groups(seed: int) -> None:
    trials = world(seed=seed)
    generator = np.random.default_rng(seed)
    # Some networks are missing, and the measure has ties.
    trials = trials.where(generator.random(len(trials)) < 0.8)
    measure = np.round(trials.gaps * 20 + generator.normal(size=len(trials)))
    for axis in trials.axes:
        pairs = coupled_by(trials, axis)
        found = granulated_tau(measure, trials.gaps, pairs)
        assert found[0] == pytest.approx(oracles.granulated(measure, trials, axis), abs=1e-12)
        ones = np.ones((2, len(trials)))
        assert granulated_tau(measure, trials.gaps, pairs, ones) == pytest.approx(found[0])


def test_pairs_differ_in_one_hyper_parameter_alone() -> None:
    trials = world()
    pairs = coupled_by(trials, "width")
    assert len(pairs) == 8 * 2 * 3
    assert pairs.groups.max() == 15
    for name, codes in (*trials.axes.items(), ("seed", trials.seeds)):
        same = codes[pairs.first] == codes[pairs.second]
        assert not same.any() if name == "width" else same.all()


def test_a_measure_that_knows_one_hyper_parameter_only_is_exposed() -> None:
    # The gap is all about the noise; the measure is the noise level and nothing else.
    trials = world(effects={"noise": 1.0, "width": 0.1}, spread=0.01)
    measure = trials.axes["noise"].astype(float)
    assert kendall_tau(measure, trials.gaps)[0] > 0.6
    each = {
        axis: granulated_tau(measure, trials.gaps, coupled_by(trials, axis))[0]
        for axis in trials.axes
    }
    assert each["noise"] == 1.0
    assert each["width"] == each["rate"] == each["decay"] == 0.0
    assert np.mean(list(each.values())) == 0.25


def test_a_measure_that_opposes_one_change_is_exposed() -> None:
    trials = world(effects={"noise": 1.0, "width": 0.1}, spread=0.001)
    measure = trials.gaps - 0.3 * trials.axes["width"]
    found = granulated_tau(measure, trials.gaps, coupled_by(trials, "width"))[0]
    assert found == -1.0


def test_weights_move_it_within_the_range_of_the_groups() -> None:
    trials = world(seed=3)
    measure = np.random.default_rng(0).normal(size=len(trials))
    weights = bootstrap_weights(trials.cells, draws=50, seed=0)
    drawn = granulated_tau(measure, trials.gaps, coupled_by(trials, "noise"), weights)
    assert np.ptp(drawn) > 0.01
    assert (abs(drawn) <= 1.5).all()


def test_without_any_pair_there_is_nothing_to_say() -> None:
    trials = world()
    one_width = trials.where(trials.axes["width"] == 0)
    pairs = coupled_by(one_width, "width")
    assert len(pairs) == 0
    assert np.isnan(granulated_tau(one_width.gaps, one_width.gaps, pairs)).all()
