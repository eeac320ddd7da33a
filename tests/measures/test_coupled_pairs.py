"""The sign-error over environments against a loop over all pairs, and in planted worlds."""

from __future__ import annotations

import numpy as np
import pytest

from nonvacuous.measures.correlation import (
    bootstrap_weights,
    environment_errors,
    environments,
    pair_errors,
    sign_errors,
)
from tests.measures import correlation_oracles as oracles
from tests.measures.correlation_worlds import world


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("beyond", [0.0, 1.0])
def test_it_is_that_of_the_loop(seed: int, beyond: float) -> None:
    trials = world(seed=seed, noise=0.01)
    generator = np.random.default_rng(seed)
    trials = trials.where(generator.random(len(trials)) < 0.8)
    measure = np.round(trials.gaps * 20 + generator.normal(size=len(trials)))
    found = environments(trials, beyond=beyond)
    errors = pair_errors(measure, trials.gaps, found)
    ones = np.ones((1, len(trials)))
    whole, kinds = (entry[0] for entry in sign_errors(errors, found, ones))
    each = environment_errors(errors, found)
    expected_each, expected_kinds = oracles.sign_errors(measure, trials, beyond=beyond)
    assert sorted(each) == pytest.approx(sorted(expected_each.values()))
    assert whole == pytest.approx(np.mean(list(expected_each.values())))
    assert dict(zip(found.kinds, kinds, strict=True)) == pytest.approx(expected_kinds)


def test_the_gap_itself_is_never_wrong_and_its_opposite_always() -> None:
    trials = world(noise=0.005)
    found = environments(trials)
    for measure, error in ((trials.gaps, 0.0), (-trials.gaps, 1.0), (0 * trials.gaps, 0.5)):
        errors = pair_errors(measure, trials.gaps, found)
        assert (errors == error).all()


def test_pairs_that_differ_by_chance_only_are_left_out() -> None:
    trials = world(effects={"noise": 1.0}, spread=0.001, noise=0.1)
    found = environments(trials)
    assert {kind[0] for kind in found.kinds} == {"noise"}
    assert found.left_out > 0
    assert len(environments(world(effects={"noise": 0.0}, spread=0.001, noise=1.0))) == 0


def test_the_worst_kind_of_change_is_found() -> None:
    trials = world(effects={"width": 0.1, "noise": 0.5}, spread=0.0001)
    measure = trials.gaps.copy()
    # Right everywhere but between the second and the third width.
    measure[trials.axes["width"] == 2] -= 0.15
    found = environments(trials, beyond=0.0)
    ones = np.ones((1, len(trials)))
    _, kinds = sign_errors(pair_errors(measure, trials.gaps, found), found, ones)
    worst = found.kinds[int(kinds[0].argmax())]
    assert worst == ("width", 1, 2)
    assert kinds[0].max() == 1.0


def test_random_weights_spread_the_mean() -> None:
    trials = world(seed=2)
    measure = np.random.default_rng(0).normal(size=len(trials))
    found = environments(trials, beyond=0.0)
    weights = bootstrap_weights(trials.cells, draws=100, seed=0)
    whole, kinds = sign_errors(pair_errors(measure, trials.gaps, found), found, weights)
    assert whole.shape == (100,)
    assert kinds.shape == (100, len(found.kinds))
    assert np.percentile(whole, 2.5) < 0.5 < np.percentile(whole, 97.5)
