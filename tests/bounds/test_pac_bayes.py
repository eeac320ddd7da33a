"""PAC-Bayes bounds for the average over a posterior, each against its oracle."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nonvacuous import bounds

from . import oracles
from .checks import (
    DETERMINISTIC,
    DETERMINISTIC_FEW,
    assert_upper,
    failures,
    log_uniform,
    nats,
    risks,
    sizes,
)
from .oracles import mpf

# Ordinary certificates first, then the corners.
CALLS = [
    (0.01, 0.0, 10_000, 0.05),
    (0.02, 5000.0, 60_000, 0.05),
    (0.3, 12.5, 1437, 0.025),
    (0.0, 0.0, 1, 0.5),
    (0.0, 1e-9, 10**9, 1e-12),
    (1.0, 0.0, 10, 0.05),
    (1.0 - 2.0**-53, 0.0, 10**9, 0.999),
    (5e-324, 3.0, 10**6, 0.01),
    (0.5, 1e6, 100, 0.05),
    (0.999, 1.0, 10**9, 1e-12),
    (1e-9, 20.0, 10**9, 0.5),
]
same_call = given(empirical_risk=risks, kl_nats=nats, examples=sizes, failure=failures)
temperatures = st.one_of(st.floats(0.01, 20.0), log_uniform(-12, 3))
trade_offs = st.one_of(
    st.floats(0.001, 1.999),
    log_uniform(-12, 0),
    log_uniform(-12, 0).map(lambda gap: 2.0 - gap),
)
rates = st.one_of(
    st.floats(0.001, 0.999),
    log_uniform(-12, -0.01),
    log_uniform(-12, -0.01).map(lambda gap: 1.0 - gap),
)


def keywords(call: tuple[float, float, int, float]) -> dict[str, float]:
    names = ("empirical_risk", "kl_nats", "examples", "failure")
    return dict(zip(names, call, strict=True))


# --------------------------------------------------------------------------- Maurer's moment


def test_moment_equals_its_definition() -> None:
    for n in [*range(1, 40), 100, 300]:
        exact = oracles.real(oracles.maurer_moment_by_definition(n))
        value = bounds.maurer_moment(n)
        assert type(value) is float
        assert exact <= mpf(value) <= exact * (1 + mpf(10) ** -9)


def test_moment_at_every_small_size_and_far_out() -> None:
    sizes = [*range(1, 3001), *(round(10 ** (power / 4)) for power in range(14, 37))]
    for n in sizes:
        value = bounds.maurer_moment(n)
        # Equality at n = 1, where xi(1) = 2: outward rounding may step over it.
        assert value <= 2.0 * math.sqrt(n) * (1 + 1e-12)
        assert value >= math.sqrt(n)
        exact = oracles.maurer_moment(n)
        assert exact <= mpf(value) <= exact * (1 + mpf(10) ** -9), n


def test_moment_grows_with_the_sample() -> None:
    values = [bounds.maurer_moment(n) for n in range(1, 500)]
    assert all(later >= earlier for earlier, later in itertools.pairwise(values))


# --------------------------------------------------------------------------- four arguments


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_at_chosen_points(call: tuple[float, float, int, float]) -> None:
    assert_upper(bounds.seeger(**keywords(call)), oracles.seeger(*call))
    exact = bounds.seeger(**keywords(call), exact_moment=True)
    assert_upper(exact, oracles.seeger(*call, exact_moment=True))
    assert_upper(bounds.mcallester(**keywords(call)), oracles.mcallester(*call))
    assert_upper(bounds.quadratic(**keywords(call)), oracles.quadratic(*call))
    for rate in (1e-6, 0.5, 1.0, 2.0 - 1e-9):
        value = bounds.thiemann(**keywords(call), trade_off=rate)
        assert_upper(value, oracles.thiemann(*call, rate))
    for rate in (1e-9, 0.1, 2.0, 700.0):
        value = bounds.catoni(**keywords(call), temperature=rate)
        assert_upper(value, oracles.catoni(*call, rate))


@DETERMINISTIC
@same_call
def test_seeger(empirical_risk: float, kl_nats: float, examples: int, failure: float) -> None:
    call = (empirical_risk, kl_nats, examples, failure)
    assert_upper(bounds.seeger(**keywords(call)), oracles.seeger(*call))


@DETERMINISTIC
@given(
    empirical_risk=risks,
    kl_nats=nats,
    examples=st.one_of(st.integers(1, 100), log_uniform(0, 7).map(lambda n: max(1, round(n)))),
    failure=failures,
)
def test_seeger_with_the_exact_moment(
    empirical_risk: float, kl_nats: float, examples: int, failure: float
) -> None:
    call = (empirical_risk, kl_nats, examples, failure)
    value = bounds.seeger(**keywords(call), exact_moment=True)
    assert_upper(value, oracles.seeger(*call, exact_moment=True))
    assert value <= bounds.seeger(**keywords(call)) + 1e-12


@DETERMINISTIC
@same_call
def test_mcallester_and_quadratic(
    empirical_risk: float, kl_nats: float, examples: int, failure: float
) -> None:
    call = (empirical_risk, kl_nats, examples, failure)
    assert_upper(bounds.mcallester(**keywords(call)), oracles.mcallester(*call))
    assert_upper(bounds.quadratic(**keywords(call)), oracles.quadratic(*call))


@DETERMINISTIC
@same_call
def test_seeger_is_the_tightest_of_its_family(
    empirical_risk: float, kl_nats: float, examples: int, failure: float
) -> None:
    call = keywords((empirical_risk, kl_nats, examples, failure))
    seeger = bounds.seeger(**call)
    assert empirical_risk <= seeger <= 1.0
    assert seeger <= bounds.mcallester(**call) + 1e-12
    assert seeger <= bounds.quadratic(**call) + 1e-12
    assert seeger <= bounds.thiemann(**call, trade_off=0.7) + 1e-12


# --------------------------------------------------------------------------- one free parameter


@DETERMINISTIC
@given(empirical_risk=risks, kl_nats=nats, examples=sizes, failure=failures, trade_off=trade_offs)
def test_thiemann(
    empirical_risk: float, kl_nats: float, examples: int, failure: float, trade_off: float
) -> None:
    call = (empirical_risk, kl_nats, examples, failure)
    value = bounds.thiemann(**keywords(call), trade_off=trade_off)
    assert_upper(value, oracles.thiemann(*call, trade_off))


@DETERMINISTIC
@given(
    empirical_risk=risks, kl_nats=nats, examples=sizes, failure=failures, temperature=temperatures
)
@example(empirical_risk=0.0, kl_nats=0.0, examples=10**9, failure=0.999, temperature=1e-300)
@example(empirical_risk=1.0, kl_nats=0.0, examples=10**9, failure=0.999, temperature=1e-9)
@example(empirical_risk=1e-12, kl_nats=0.0, examples=10**9, failure=0.5, temperature=1e4)
def test_catoni(
    empirical_risk: float, kl_nats: float, examples: int, failure: float, temperature: float
) -> None:
    call = (empirical_risk, kl_nats, examples, failure)
    value = bounds.catoni(**keywords(call), temperature=temperature)
    assert_upper(value, oracles.catoni(*call, temperature))


@DETERMINISTIC
@same_call
def test_the_best_trade_off_is_the_quadratic_bound(
    empirical_risk: float, kl_nats: float, examples: int, failure: float
) -> None:
    call = keywords((empirical_risk, kl_nats, examples, failure))
    best = bounds.best_trade_off(**call)
    assert 0.0 < best < 2.0
    value = bounds.thiemann(**call, trade_off=best)
    assert value == pytest.approx(bounds.quadratic(**call), rel=1e-9, abs=1e-12)
    for other in (best * 0.9, best * 0.999, min(best * 1.001, 1.9999), min(best * 1.1, 1.99)):
        assert value <= bounds.thiemann(**call, trade_off=other) + 1e-12


# --------------------------------------------------------------------------- grids that are charged


@DETERMINISTIC
@given(
    empirical_risk=risks,
    kl_nats=nats,
    examples=sizes,
    failure=failures,
    grid=st.lists(temperatures, min_size=1, max_size=8, unique=True),
)
def test_catoni_union_on_a_given_grid(
    empirical_risk: float, kl_nats: float, examples: int, failure: float, grid: list[float]
) -> None:
    call = (empirical_risk, kl_nats, examples, failure)
    value = bounds.catoni_union(**keywords(call), grid=grid)
    assert_upper(value, oracles.catoni_union(*call, grid))


@DETERMINISTIC
@given(
    empirical_risk=risks,
    kl_nats=nats,
    examples=sizes,
    failure=failures,
    grid=st.lists(trade_offs, min_size=1, max_size=8, unique=True),
)
def test_thiemann_union_on_a_given_grid(
    empirical_risk: float, kl_nats: float, examples: int, failure: float, grid: list[float]
) -> None:
    call = (empirical_risk, kl_nats, examples, failure)
    value = bounds.thiemann_union(**keywords(call), grid=grid)
    assert_upper(value, oracles.thiemann_union(*call, grid))


@DETERMINISTIC
@same_call
def test_default_grids_are_charged(
    empirical_risk: float, kl_nats: float, examples: int, failure: float
) -> None:
    """A search over a default grid can never beat the best free parameter at full failure."""
    call = (empirical_risk, kl_nats, examples, failure)
    union = bounds.catoni_union(**keywords(call))
    assert 0.0 <= union <= 1.0
    assert mpf(union) >= oracles.catoni_infimum(*call)
    union = bounds.thiemann_union(**keywords(call))
    assert 0.0 <= union <= 1.0
    assert mpf(union) >= oracles.quadratic(*call)


@pytest.mark.parametrize("call", CALLS[:3], ids=str)
def test_catoni_union_against_a_fine_grid(call: tuple[float, float, int, float]) -> None:
    fine = np.geomspace(1e-3, 50.0, 400).tolist()
    best = min(bounds.catoni(**keywords(call), temperature=rate) for rate in fine)
    union = bounds.catoni_union(**keywords(call))
    assert union >= best * (1 - 1e-3)
    # The default grid is of use: it pays some nats for its length, not a multiple of the bound.
    assert union <= best * 1.15


def test_a_longer_grid_costs_more() -> None:
    call = keywords((0.02, 50.0, 10_000, 0.05))
    alone = bounds.catoni_union(**call, grid=(0.5,))
    assert alone == pytest.approx(bounds.catoni(**call, temperature=0.5), rel=1e-12)
    assert bounds.catoni_union(**call, grid=(0.5, 1e-6)) > alone
    alone = bounds.thiemann_union(**call, grid=(0.5,))
    assert alone == pytest.approx(bounds.thiemann(**call, trade_off=0.5), rel=1e-12)
    assert bounds.thiemann_union(**call, grid=(0.5, 1e-6)) > alone


# --------------------------------------------------------------------------- losses with structure


@st.composite
def ladders(draw: st.DrawFn) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Increasing levels within [0, 1] and falling frequencies of reaching them."""
    steps = draw(st.integers(1, 5))
    levels = draw(st.lists(st.floats(0, 1), min_size=steps + 1, max_size=steps + 1, unique=True))
    tails = draw(st.lists(risks, min_size=steps, max_size=steps))
    return tuple(sorted(levels)), tuple(sorted(tails, reverse=True))


@DETERMINISTIC_FEW
@given(ladder=ladders(), kl_nats=nats, examples=sizes, failure=failures)
def test_split_kl(ladder: tuple, kl_nats: float, examples: int, failure: float) -> None:
    levels, tails = ladder
    value = bounds.split_kl(
        levels=levels, tail_risks=tails, kl_nats=kl_nats, examples=examples, failure=failure
    )
    assert_upper(value, oracles.split_kl(levels, tails, kl_nats, examples, failure))


@DETERMINISTIC
@same_call
def test_split_kl_with_one_step_is_seeger(
    empirical_risk: float, kl_nats: float, examples: int, failure: float
) -> None:
    call = dict(kl_nats=kl_nats, examples=examples, failure=failure)
    split = bounds.split_kl(levels=(0.0, 1.0), tail_risks=(empirical_risk,), **call)
    assert split == pytest.approx(
        bounds.seeger(empirical_risk=empirical_risk, **call), rel=1e-11, abs=1e-12
    )


@DETERMINISTIC
@given(
    empirical_risk=risks,
    fraction=st.floats(0, 1),
    kl_nats=nats,
    examples=sizes,
    failure=failures,
    grid=st.lists(rates, min_size=1, max_size=8, unique=True),
)
def test_empirical_bernstein(
    empirical_risk: float,
    fraction: float,
    kl_nats: float,
    examples: int,
    failure: float,
    grid: list[float],
) -> None:
    # For losses in [0, 1]: risk^2 <= second moment <= risk.
    square = empirical_risk * empirical_risk
    second_moment = min(empirical_risk, square + fraction * (empirical_risk - square))
    call = (empirical_risk, second_moment, kl_nats, examples, failure)
    value = bounds.empirical_bernstein(
        empirical_risk=empirical_risk,
        second_moment=second_moment,
        kl_nats=kl_nats,
        examples=examples,
        failure=failure,
        grid=grid,
    )
    assert_upper(value, oracles.empirical_bernstein(*call, grid))


def test_empirical_bernstein_default_grid_is_charged_and_useful() -> None:
    call = dict(empirical_risk=0.05, second_moment=0.003, kl_nats=100.0, examples=10_000)
    fine = np.geomspace(1e-4, 0.999, 2000).tolist()
    # One rate at a time at full failure: what a search without a charge would claim.
    free = min(bounds.empirical_bernstein(**call, failure=0.05, grid=(rate,)) for rate in fine)
    charged = bounds.empirical_bernstein(**call, failure=0.05)
    assert free < charged <= 1.15 * free
    assert charged < bounds.seeger(
        empirical_risk=0.05, kl_nats=100.0, examples=10_000, failure=0.05
    )


# --------------------------------------------------------------------------- monotonicity

BOUNDS = {
    "seeger": lambda **call: bounds.seeger(**call),
    "seeger, exact moment": lambda **call: bounds.seeger(**call, exact_moment=True),
    "mcallester": lambda **call: bounds.mcallester(**call),
    "quadratic": lambda **call: bounds.quadratic(**call),
    "thiemann": lambda **call: bounds.thiemann(**call, trade_off=0.6),
    "thiemann_union": lambda **call: bounds.thiemann_union(**call),
    "catoni": lambda **call: bounds.catoni(**call, temperature=0.7),
    "catoni_union": lambda **call: bounds.catoni_union(**call),
    "split_kl": lambda empirical_risk, **call: bounds.split_kl(
        levels=(0.0, 0.3, 1.0), tail_risks=(empirical_risk, empirical_risk / 2), **call
    ),
    "empirical_bernstein": lambda empirical_risk, **call: bounds.empirical_bernstein(
        empirical_risk=empirical_risk, second_moment=empirical_risk, **call
    ),
}
pairs_of_risks = st.tuples(risks, risks).map(sorted)
pairs_of_nats = st.tuples(nats, nats).map(sorted)
pairs_of_failures = st.tuples(failures, failures).map(sorted)
# ln(2 sqrt(n))/n falls from n = 1 on when delta <= 1; 10^6 keeps the exact moment quick.
pairs_of_sizes = st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)).map(sorted)


@pytest.mark.parametrize("name", BOUNDS)
@DETERMINISTIC
@given(
    risk=pairs_of_risks, complexity=pairs_of_nats, failure=pairs_of_failures, size=pairs_of_sizes
)
def test_monotone_in_every_argument(
    name: str, risk: list, complexity: list, failure: list, size: list
) -> None:
    bound = BOUNDS[name]
    base = dict(empirical_risk=risk[0], kl_nats=complexity[0], failure=failure[1], examples=size[1])
    best = bound(**base)
    for change in (
        {"empirical_risk": risk[1]},
        {"kl_nats": complexity[1]},
        {"failure": failure[0]},
        {"examples": size[0]},
    ):
        assert best <= bound(**{**base, **change}) + 1e-12
