"""The price of estimating a risk by Monte Carlo."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nonvacuous import bounds

from . import oracles
from .checks import DETERMINISTIC, DETERMINISTIC_FEW, assert_upper, failures, sizes
from .oracles import mp


@st.composite
def counted(draw: st.DrawFn) -> tuple[int, int]:
    trials = draw(sizes)
    kind = draw(st.sampled_from(["any", "few", "nearly all"]))
    errors = draw(st.integers(0, trials if kind == "any" else min(trials, 50)))
    return (trials - errors if kind == "nearly all" else errors), trials


@DETERMINISTIC_FEW
@given(trials=st.integers(1, 3000), share=st.floats(0, 1), failure=st.floats(1e-12, 0.5))
def test_identical_trials_have_the_exact_tail(trials: int, share: float, failure: float) -> None:
    errors = min(trials, int(share * (trials + 1)))
    value = bounds.sampling(errors=errors, trials=trials, failure=failure)
    assert_upper(value, oracles.sampling(errors, trials, failure))
    assert value == bounds.holdout(errors=errors, examples=trials, failure=failure)


@DETERMINISTIC
@given(counts=counted(), failure=failures)
@example(counts=(1, 3), failure=0.01)
@example(counts=(0, 1), failure=0.5)
def test_other_trials_have_the_kl_form(counts: tuple[int, int], failure: float) -> None:
    errors, trials = counts
    value = bounds.sampling(errors=errors, trials=trials, failure=failure, identical=False)
    # The oracle divides exactly: a quotient rounded down must not make the bound too small.
    assert_upper(value, oracles.sampling(errors, trials, failure, identical=False))


@DETERMINISTIC
@given(counts=counted(), part=st.floats(0, 1), failure=failures)
def test_bounded_trials(counts: tuple[int, int], part: float, failure: float) -> None:
    errors, trials = counts
    total = min(float(trials), errors * part)
    value = bounds.sampling_bounded(total=total, trials=trials, failure=failure)
    assert_upper(value, oracles.sampling_bounded(total, trials, failure))
    # For zeros and ones it is the kl form.
    value = bounds.sampling_bounded(total=float(errors), trials=trials, failure=failure)
    other = bounds.sampling(errors=errors, trials=trials, failure=failure, identical=False)
    assert value == pytest.approx(other, rel=1e-12, abs=1e-15)


@DETERMINISTIC
@given(counts=counted(), failure=st.tuples(failures, failures).map(sorted))
def test_properties(counts: tuple[int, int], failure: list[float]) -> None:
    errors, trials = counts
    for bound in (
        lambda k, n, delta: bounds.sampling(errors=k, trials=n, failure=delta),
        lambda k, n, delta: bounds.sampling(errors=k, trials=n, failure=delta, identical=False),
        lambda k, n, delta: bounds.sampling_bounded(total=float(k), trials=n, failure=delta),
    ):
        value = bound(errors, trials, failure[1])
        assert errors / trials <= value <= 1.0
        assert value <= bound(errors, trials, failure[0]) + 1e-12
        assert bound(errors, trials + 1, failure[1]) <= value + 1e-12
        if errors < trials:
            assert value <= bound(errors + 1, trials, failure[1]) + 1e-12


def test_the_price_falls_with_trials() -> None:
    prices = [
        bounds.sampling(errors=trials // 100, trials=trials, failure=0.01) - 0.01
        for trials in (1000, 10_000, 100_000, 1_000_000)
    ]
    assert prices == sorted(prices, reverse=True)
    # Ten times as many trials: about sqrt(10) times closer.
    assert prices[2] / prices[3] == pytest.approx(math.sqrt(10), rel=0.05)


def test_one_sided_chernoff_needs_no_factor_two() -> None:
    value = bounds.sampling_bounded(total=10.0, trials=1000, failure=0.01)
    true = oracles.kl_inverse_upper(Fraction(1, 100), -mp.log(mp.mpf(0.01)) / 1000)
    assert_upper(value, true)
