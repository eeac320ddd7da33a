"""Simulated worlds with known risk: how often is each bound false, and is that at most delta?

Every world draws ten thousand samples. A bound passes when the number of its false claims is
compatible with a failure probability of delta: the test fails if that many or more would happen
with probability below 10^-4 even for a bound that fails exactly as often as it may.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from nonvacuous import bounds
from tests.validity.finite_class import (
    WORLDS,
    FiniteClass,
    assert_covered,
    finite_class,
    in_every_world,
    zero_one_world,
)

# --------------------------------------------------------------------------- counts


def upper_of_counts(bound: Callable[[int], float], counts: np.ndarray) -> np.ndarray:
    return in_every_world(lambda errors: bound(int(errors)), errors=counts)


def least_favorable_risk(examples: int, failure: float, errors: int) -> float:
    """Just above the bound for this count: there the bound fails as often as it ever does."""
    return bounds.holdout(errors=errors, examples=examples, failure=failure) * (1 + 1e-9)


COUNT_WORLDS = [
    (200, 0.1, least_favorable_risk(200, 0.1, 7)),
    (50, 0.05, least_favorable_risk(50, 0.05, 20)),
    (1000, 0.01, least_favorable_risk(1000, 0.01, 0)),
    (300, 0.3, least_favorable_risk(300, 0.3, 290)),
    (100, 0.05, 0.5),
]


@pytest.mark.parametrize(("examples", "failure", "risk"), COUNT_WORLDS)
def test_holdout(examples: int, failure: float, risk: float) -> None:
    counts = np.random.default_rng(1).binomial(examples, risk, WORLDS)
    upper = upper_of_counts(
        lambda k: bounds.holdout(errors=k, examples=examples, failure=failure), counts
    )
    assert_covered(upper < risk, failure)


@pytest.mark.parametrize(("examples", "failure", "risk"), COUNT_WORLDS)
def test_holdout_lower(examples: int, failure: float, risk: float) -> None:
    safe = 1 - risk  # the lower bound's least favorable world is the upper one's mirror image
    counts = np.random.default_rng(2).binomial(examples, safe, WORLDS)
    lower = upper_of_counts(
        lambda k: bounds.holdout_lower(errors=k, examples=examples, failure=failure), counts
    )
    assert_covered(lower > safe, failure)


@pytest.mark.parametrize(("trials", "failure", "risk"), COUNT_WORLDS)
def test_sampling_of_identical_trials(trials: int, failure: float, risk: float) -> None:
    counts = np.random.default_rng(3).binomial(trials, risk, WORLDS)
    for identical in (True, False):
        upper = upper_of_counts(
            lambda k, identical=identical: bounds.sampling(
                errors=k, trials=trials, failure=failure, identical=identical
            ),
            counts,
        )
        assert_covered(upper < risk, failure)


@pytest.mark.parametrize("spread", ["narrow", "wide", "almost all certain"])
def test_sampling_of_different_trials(spread: str) -> None:
    """Every example has its own probability of being wrong, and each is tried once."""
    generator = np.random.default_rng(4)
    probabilities = {
        "narrow": generator.uniform(0.08, 0.12, 150),
        "wide": generator.uniform(0.0, 1.0, 150),
        "almost all certain": np.where(np.arange(150) < 120, 0.001, 0.8),
    }[spread]
    failure = 0.1
    counts = (generator.random((WORLDS, 150)) < probabilities).sum(axis=1)
    upper = upper_of_counts(
        lambda k: bounds.sampling(errors=k, trials=150, failure=failure, identical=False), counts
    )
    assert_covered(upper < probabilities.mean(), failure)


@pytest.mark.parametrize(("a", "b"), [(0.02, 0.1), (0.5, 5.0), (2.0, 2.0)])
def test_sampling_bounded(a: float, b: float) -> None:
    """Losses with a Beta distribution, from nearly all-or-nothing to bell-shaped."""
    trials, failure = 100, 0.1
    totals = np.random.default_rng(5).beta(a, b, (WORLDS, trials)).sum(axis=1)
    upper = in_every_world(
        lambda total: bounds.sampling_bounded(total=total, trials=trials, failure=failure),
        total=totals,
    )
    assert_covered(upper < a / (a + b), failure)


# --------------------------------------------------------------------------- a finite class


@cache
def ternary_world(name: str) -> FiniteClass:
    generator = np.random.default_rng(21)
    if name == "noise":
        probabilities = np.tile([0.5, 0.4, 0.1], (200, 1))
        examples, sharpness = 80, 3.0
    else:
        middle, top = generator.uniform(0.1, 0.6, 80), generator.uniform(0.0, 0.1, 80)
        probabilities = np.stack([1 - middle - top, middle, top], axis=1)
        examples, sharpness = 150, 1.0
    return finite_class(22, examples, probabilities, (0.0, 0.5, 1.0), sharpness)


FAILURE = 0.1
CATONI_GRID = tuple(np.geomspace(0.05, 5.0, 12).tolist())
THIEMANN_GRID = tuple(np.linspace(0.1, 1.9, 10).tolist())
PAC_BAYES = {
    "seeger": bounds.seeger,
    "seeger, exact moment": lambda **call: bounds.seeger(**call, exact_moment=True),
    "mcallester": bounds.mcallester,
    "quadratic": bounds.quadratic,
    "thiemann": lambda **call: bounds.thiemann(**call, trade_off=1.0),
    "thiemann at its best": lambda **call: bounds.thiemann(
        **call, trade_off=bounds.best_trade_off(**call)
    ),
    "thiemann_union": lambda **call: bounds.thiemann_union(**call, grid=THIEMANN_GRID),
    "catoni": lambda **call: bounds.catoni(**call, temperature=1.0),
    "catoni_union": lambda **call: bounds.catoni_union(**call, grid=CATONI_GRID),
}


def gibbs_uppers(bound: Callable[..., float], world: FiniteClass) -> np.ndarray:
    return in_every_world(
        lambda **call: bound(**call, examples=world.examples, failure=FAILURE),
        empirical_risk=np.clip(world.average(world.empirical), 0, 1),
        kl_nats=np.maximum(world.kl, 0),
    )


@pytest.mark.slow_if("noise-catoni_union", "noise-thiemann_union", "signal-catoni_union")
@pytest.mark.parametrize("name", PAC_BAYES)
@pytest.mark.parametrize("world_name", ["noise", "signal", "one hypothesis"])
def test_average_over_a_posterior(name: str, world_name: str) -> None:
    world = zero_one_world(world_name)
    upper = gibbs_uppers(PAC_BAYES[name], world)
    assert_covered(upper < world.average(world.true), FAILURE)


def test_scalar_calls_equal_the_vectorized_formula() -> None:
    world = zero_one_world("noise")
    risk, kl, n = world.average(world.empirical), world.kl, world.examples
    formula = bounds.kl_inverse_upper(risk, (kl + math.log(2 * math.sqrt(n) / FAILURE)) / n)
    calls = gibbs_uppers(bounds.seeger, world)
    np.testing.assert_allclose(calls, formula, rtol=1e-11)


@pytest.mark.slow_if("noise")
@pytest.mark.parametrize("world_name", ["noise", "signal"])
def test_split_kl(world_name: str) -> None:
    world = ternary_world(world_name)
    upper = in_every_world(
        lambda first, second, kl: bounds.split_kl(
            levels=world.levels,
            tail_risks=(first, second),
            kl_nats=kl,
            examples=world.examples,
            failure=FAILURE,
        ),
        first=np.clip(world.average(world.tails[:, :, 0]), 0, 1),
        second=np.clip(world.average(world.tails[:, :, 1]), 0, 1),
        kl=world.kl,
    )
    assert_covered(upper < world.average(world.true), FAILURE)


@pytest.mark.parametrize("grid", [None, (0.3,)], ids=["default grid", "one rate"])
@pytest.mark.parametrize("world_name", ["noise", "signal"])
def test_empirical_bernstein(world_name: str, grid: tuple[float, ...] | None) -> None:
    world = ternary_world(world_name)
    # E loss^2 = sum over j of (b_j^2 - b_{j-1}^2) P(loss >= b_j).
    squares = world.average(world.tails @ np.diff(np.square(world.levels)))
    upper = in_every_world(
        lambda **call: bounds.empirical_bernstein(
            **call, examples=world.examples, failure=FAILURE, grid=grid
        ),
        empirical_risk=world.average(world.empirical),
        second_moment=squares,
        kl_nats=world.kl,
    )
    assert_covered(upper < world.average(world.true), FAILURE)


# --------------------------------------------------------------------------- one drawn hypothesis


def drawn_risks(world: FiniteClass) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(WORLDS)
    return world.empirical[rows, world.drawn], world.true[world.drawn]


def log_density_ratios(world: FiniteClass) -> np.ndarray:
    chosen = world.posterior[np.arange(WORLDS), world.drawn]
    return np.log(chosen * world.posterior.shape[1])


@pytest.mark.slow_if("noise-False")
@pytest.mark.parametrize("exact_moment", [False, True])
@pytest.mark.parametrize("world_name", ["noise", "signal", "one hypothesis"])
def test_disintegrated(world_name: str, exact_moment: bool) -> None:
    world = zero_one_world(world_name)
    empirical, true = drawn_risks(world)
    upper = in_every_world(
        lambda **call: bounds.disintegrated(
            **call, examples=world.examples, failure=FAILURE, exact_moment=exact_moment
        ),
        empirical_risk=empirical,
        log_density_ratio=log_density_ratios(world),
    )
    assert_covered(upper < true, FAILURE)


@pytest.mark.parametrize("order", [1.5, 4.0])
@pytest.mark.parametrize("world_name", ["noise", "signal"])
def test_disintegrated_renyi(world_name: str, order: float) -> None:
    world = zero_one_world(world_name)
    empirical, true = drawn_risks(world)
    ratio = world.posterior * world.posterior.shape[1]
    renyi = np.log(np.mean(ratio**order, axis=1)) / (order - 1)
    upper = in_every_world(
        lambda **call: bounds.disintegrated_renyi(
            **call, order=order, examples=world.examples, failure=FAILURE
        ),
        empirical_risk=empirical,
        renyi_nats=np.maximum(renyi, 0),
    )
    assert_covered(upper < true, FAILURE)


# --------------------------------------------------------------------------- the harness can fail


def planted_empirical_risk() -> np.ndarray:
    """The empirical risk passed off as a bound."""
    examples, _, risk = COUNT_WORLDS[0]
    counts = np.random.default_rng(1).binomial(examples, risk, WORLDS)
    return counts / examples < risk


def planted_off_by_one() -> np.ndarray:
    """The binomial tail with one error too few."""
    examples, failure, risk = COUNT_WORLDS[0]
    counts = np.random.default_rng(1).binomial(examples, risk, WORLDS)
    upper = upper_of_counts(
        lambda k: bounds.holdout(errors=max(0, k - 1), examples=examples, failure=failure), counts
    )
    return upper < risk


def planted_whole_sample_without_divergence() -> np.ndarray:
    """n of the whole data set although half of it trained the prior, and the KL left out."""
    world = zero_one_world("noise")
    upper = gibbs_uppers(
        lambda **call: bounds.seeger(**{**call, "examples": 2 * world.examples, "kl_nats": 0.0}),
        world,
    )
    return upper < world.average(world.true)


def planted_without_density_ratio() -> np.ndarray:
    """A drawn hypothesis judged as if it had been fixed before the sample."""
    world = zero_one_world("noise")
    empirical, true = drawn_risks(world)
    upper = [
        bounds.holdout(errors=k, examples=world.examples, failure=FAILURE)
        for k in range(world.examples + 1)
    ]
    return np.array(upper)[np.rint(empirical * world.examples).astype(int)] < true


def planted_shared_draws_counted_per_example() -> np.ndarray:
    """Fifty independent draws, each shared by ten examples, counted as five hundred trials."""
    draws = np.random.default_rng(6).beta(0.05, 0.2, (WORLDS, 50))
    upper = in_every_world(
        lambda total: bounds.sampling_bounded(total=total, trials=500, failure=FAILURE),
        total=10 * draws.sum(axis=1),
    )
    return upper < 0.2


@pytest.mark.parametrize(
    "planted",
    [
        planted_empirical_risk,
        planted_off_by_one,
        planted_whole_sample_without_divergence,
        planted_without_density_ratio,
        planted_shared_draws_counted_per_example,
    ],
    ids=lambda planted: planted.__name__.removeprefix("planted_"),
)
def test_planted_mistakes_are_found(planted: Callable[[], np.ndarray]) -> None:
    with pytest.raises(AssertionError, match="claims were false"):
        assert_covered(planted(), FAILURE)


def test_the_worlds_are_not_all_trivial() -> None:
    """The exact bounds fail about as often as they may; a harness that saw nothing would not."""
    examples, failure, risk = COUNT_WORLDS[0]
    counts = np.random.default_rng(1).binomial(examples, risk, WORLDS)
    upper = upper_of_counts(
        lambda k: bounds.holdout(errors=k, examples=examples, failure=failure), counts
    )
    assert (upper < risk).mean() == pytest.approx(failure, rel=0.1)
