"""The exact binomial tail, from one example to a billion."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nonvacuous import bounds
from nonvacuous.bounds.holdout import tail_end

from . import oracles
from .checks import ABSOLUTE, DETERMINISTIC, RELATIVE, assert_lower, assert_upper, failures
from .oracles import mpf

FAILURES = [1e-12, 1e-6, 0.01, 0.05, 0.5]


def judge_upper(errors: int, examples: int, failure: float) -> None:
    """Safe and tight, by two tails instead of an inversion (for large samples)."""
    quick = bounds.holdout(errors=errors, examples=examples, failure=failure)
    for value in {quick, tail_end(errors, examples, failure)}:
        assert type(value) is float
        assert errors / examples <= value <= 1.0
        if value < 1.0:
            tail = oracles.binomial_cdf(errors, examples, value)
            assert tail <= mpf(failure), f"{value!r} is too small: its tail is {tail}"
        back = (mpf(value) - ABSOLUTE) / (1 + RELATIVE)
        if back * examples > errors and errors < examples:
            tail = oracles.binomial_cdf(errors, examples, back)
            assert tail >= mpf(failure), f"{value!r} is loose"


def judge_lower(errors: int, examples: int, failure: float) -> None:
    value = bounds.holdout_lower(errors=errors, examples=examples, failure=failure)
    assert type(value) is float
    assert 0.0 <= value <= errors / examples
    if value > 0.0:
        tail = oracles.binomial_cdf(examples - errors, examples, 1 - mpf(value))
        assert tail <= mpf(failure), f"{value!r} is too large: its tail is {tail}"
    forth = (mpf(value) + ABSOLUTE) / (1 - RELATIVE)
    if forth * examples < errors:
        tail = oracles.binomial_cdf(examples - errors, examples, 1 - forth)
        assert tail >= mpf(failure), f"{value!r} is loose"


@pytest.mark.slow_unless("0.05")
@pytest.mark.parametrize("failure", [*FAILURES, 0.9])
def test_every_count_of_small_samples(failure: float) -> None:
    for examples in (1, 2, 3, 12):
        for errors in range(examples + 1):
            call = dict(errors=errors, examples=examples, failure=failure)
            # At confidence below one half the tail passes the observed rate; the library stops
            # there, so that an upper end is never below what was seen.
            seen = oracles.real(Fraction(errors, examples))
            upper = max(seen, oracles.holdout(errors, examples, failure))
            assert_upper(bounds.holdout(**call), upper)
            lower = min(seen, oracles.holdout_lower(errors, examples, failure))
            assert_lower(bounds.holdout_lower(**call), lower)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("examples", [100, 10_000, 10**6])
def test_middle_samples(examples: int, failure: float) -> None:
    generator = np.random.default_rng(examples)
    counts = {0, 1, 2, 5, examples // 100, examples // 2, examples - 1, examples}
    counts |= set(generator.integers(0, examples + 1, 4).tolist())
    for errors in sorted(counts):
        judge_upper(errors, examples, failure)
        judge_lower(errors, examples, failure)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(
    "errors", [0, 1, 3, 1000, 10**6, 10**9 - 10**6, 10**9 - 1000, 10**9 - 1, 10**9]
)
def test_a_billion_examples(errors: int, failure: float) -> None:
    judge_upper(errors, 10**9, failure)
    judge_lower(errors, 10**9, failure)


@pytest.mark.parametrize("failure", [1e-12, 0.5])
@pytest.mark.parametrize("errors", [10**8, 5 * 10**8])
def test_a_billion_examples_in_the_middle(errors: int, failure: float) -> None:
    judge_upper(errors, 10**9, failure)
    judge_lower(errors, 10**9, failure)


def test_closed_forms() -> None:
    for examples in (1, 10, 10**5):
        for failure in FAILURES:
            value = bounds.holdout(errors=0, examples=examples, failure=failure)
            assert value == pytest.approx(-math.expm1(math.log(failure) / examples), rel=1e-11)
            value = bounds.holdout_lower(errors=examples, examples=examples, failure=failure)
            assert value == pytest.approx(math.exp(math.log(failure) / examples), rel=1e-11)
            call = dict(examples=examples, failure=failure)
            assert bounds.holdout(errors=examples, **call) == 1.0
            assert bounds.holdout_lower(errors=0, **call) == 0.0


@DETERMINISTIC
@given(
    size=st.tuples(st.integers(1, 10**9), st.floats(0, 1)),
    failure=st.tuples(failures, failures).map(sorted),
)
def test_properties(size: tuple[int, float], failure: list[float]) -> None:
    examples = size[0]
    errors = min(examples, int(size[1] * (examples + 1)))
    call = dict(errors=errors, examples=examples, failure=failure[1])
    upper, lower = bounds.holdout(**call), bounds.holdout_lower(**call)
    assert 0.0 <= lower <= errors / examples <= upper <= 1.0
    # The kl form follows from the same tail by Chernoff, so it is never smaller.
    chernoff = bounds.sampling(errors=errors, trials=examples, failure=failure[1], identical=False)
    assert upper <= chernoff + 1e-12
    stricter = {**call, "failure": failure[0]}
    assert upper <= bounds.holdout(**stricter) + 1e-12
    assert lower >= bounds.holdout_lower(**stricter) - 1e-12
    if errors < examples:
        worse = {**call, "errors": errors + 1}
        assert upper <= bounds.holdout(**worse) + 1e-12
        assert lower <= bounds.holdout_lower(**worse) + 1e-12
    more = {**call, "examples": examples + 1}
    assert bounds.holdout(**more) <= upper + 1e-12
    assert bounds.holdout_lower(**more) <= lower + 1e-12


@pytest.mark.parametrize("failure", [0.01, 0.05, 0.3])
def test_exact_coverage_at_every_risk(failure: float) -> None:
    """Not simulated: the probability of a false claim, summed over all counts, on a risk grid."""
    examples = 60
    counts = np.arange(examples + 1)
    uppers = [bounds.holdout(errors=k, examples=examples, failure=failure) for k in counts]
    lowers = [bounds.holdout_lower(errors=k, examples=examples, failure=failure) for k in counts]
    # Just beyond each bound is where it fails most.
    risks = {*np.linspace(0, 1, 301), *(min(1.0, u + 1e-9) for u in uppers), *lowers}
    for risk in risks:
        probabilities = stats.binom.pmf(counts, examples, risk)
        assert probabilities[np.array(uppers) < risk].sum() <= failure * (1 + 1e-6)
        assert probabilities[np.array(lowers) > risk].sum() <= failure * (1 + 1e-6)
