"""Bounds for one hypothesis drawn from the posterior."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nonvacuous import bounds

from . import oracles
from .checks import (
    DETERMINISTIC,
    assert_upper,
    failures,
    log_uniform,
    nats,
    risks,
    signed_nats,
    sizes,
)

orders = st.one_of(
    st.floats(1.01, 50.0), log_uniform(-9, 0).map(lambda gap: 1.0 + gap), log_uniform(0.1, 9)
)


@DETERMINISTIC
@given(empirical_risk=risks, log_density_ratio=signed_nats, examples=sizes, failure=failures)
@example(empirical_risk=0.3, log_density_ratio=-5.0, examples=100, failure=0.05)
@example(empirical_risk=0.3, log_density_ratio=-1e6, examples=1, failure=0.999)
@example(empirical_risk=0.0, log_density_ratio=0.0, examples=10**9, failure=1e-12)
def test_disintegrated(
    empirical_risk: float, log_density_ratio: float, examples: int, failure: float
) -> None:
    value = bounds.disintegrated(
        empirical_risk=empirical_risk,
        log_density_ratio=log_density_ratio,
        examples=examples,
        failure=failure,
    )
    true = oracles.disintegrated(empirical_risk, log_density_ratio, examples, failure)
    assert_upper(value, true)


@DETERMINISTIC
@given(
    empirical_risk=risks,
    log_density_ratio=signed_nats,
    examples=st.integers(1, 10**6),
    failure=failures,
)
def test_disintegrated_with_the_exact_moment(
    empirical_risk: float, log_density_ratio: float, examples: int, failure: float
) -> None:
    call = dict(
        empirical_risk=empirical_risk,
        log_density_ratio=log_density_ratio,
        examples=examples,
        failure=failure,
    )
    value = bounds.disintegrated(**call, exact_moment=True)
    assert_upper(value, oracles.disintegrated(*call.values(), exact_moment=True))
    assert value <= bounds.disintegrated(**call) + 1e-12


def test_a_negative_ratio_helps_but_never_below_the_empirical_risk() -> None:
    call = dict(empirical_risk=0.1, examples=1000, failure=0.05)
    values = [
        bounds.disintegrated(**call, log_density_ratio=ratio) for ratio in (0.0, -3.0, -6.0, -100.0)
    ]
    assert values == sorted(values, reverse=True)
    assert values[1] < values[0]
    assert values[2] < values[1]
    # ln(2 sqrt(1000)/0.05) = 7.14 nats are all that a negative ratio can win back.
    assert values[3] == pytest.approx(0.1, rel=1e-11)
    assert values[3] >= 0.1


def test_equals_seeger_where_the_ratio_equals_the_divergence() -> None:
    call = dict(empirical_risk=0.1, examples=1000, failure=0.05)
    one = bounds.disintegrated(**call, log_density_ratio=30.0)
    assert one == pytest.approx(bounds.seeger(**call, kl_nats=30.0), rel=1e-12)


@DETERMINISTIC
@given(empirical_risk=risks, renyi_nats=nats, order=orders, examples=sizes, failure=failures)
def test_disintegrated_renyi(
    empirical_risk: float, renyi_nats: float, order: float, examples: int, failure: float
) -> None:
    call = dict(
        empirical_risk=empirical_risk,
        renyi_nats=renyi_nats,
        order=order,
        examples=examples,
        failure=failure,
    )
    value = bounds.disintegrated_renyi(**call)
    assert_upper(value, oracles.disintegrated_renyi(*call.values()))


@DETERMINISTIC
@given(
    risk=st.tuples(risks, risks).map(sorted),
    ratio=st.tuples(signed_nats, signed_nats).map(sorted),
    order=st.tuples(orders, orders).map(sorted),
    size=st.tuples(sizes, sizes).map(sorted),
    failure=st.tuples(failures, failures).map(sorted),
)
def test_monotone_in_every_argument(
    risk: list, ratio: list, order: list, size: list, failure: list
) -> None:
    shared = [
        {"empirical_risk": risk[1]},
        {"examples": size[0]},
        {"failure": failure[0]},
    ]
    base = dict(empirical_risk=risk[0], examples=size[1], failure=failure[1])
    first = dict(base, log_density_ratio=ratio[0])
    for change in [*shared, {"log_density_ratio": ratio[1]}]:
        if "examples" in change and ratio[0] < 0:
            # With a negative exponent, dividing by more examples is not a gain.
            continue
        low, high = bounds.disintegrated(**first), bounds.disintegrated(**{**first, **change})
        assert low <= high + 1e-12
    divergence = sorted(abs(value) for value in ratio)
    # The price (2a-1)/(a-1) = 2 + 1/(a-1) falls with the order while the divergence is held.
    second = dict(base, renyi_nats=divergence[0], order=order[1])
    for change in [*shared, {"renyi_nats": divergence[1]}, {"order": order[0]}]:
        low = bounds.disintegrated_renyi(**second)
        assert low <= bounds.disintegrated_renyi(**{**second, **change}) + 1e-12
