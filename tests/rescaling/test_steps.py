"""Steps of single channels: the closed form against numeric minimization, and never upward."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from nonvacuous.rescaling.steps import (
    ChannelSums,
    change,
    channel_steps,
    majorized_step,
    moved,
    positive_root,
)
from nonvacuous.rescaling.sweeps import minimize_exponentials

sums = st.floats(-60, 60).map(math.exp)
counts = st.integers(-5000, 5000)


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


@given(c=counts, incoming=sums, outgoing=sums)
def test_the_root_balances_a_channel(c: int, incoming: float, outgoing: float) -> None:
    root = positive_root(array(c), array(incoming), array(outgoing)).item()
    with mpmath.workdps(150):
        i, o = mpmath.mpf(incoming), mpmath.mpf(outgoing)
        exact = (c + mpmath.sqrt(mpmath.mpf(c) ** 2 + 4 * i * o)) / (2 * i)
        assert abs(root - exact) <= 1e-14 * exact


@given(
    c=st.integers(-200, 200),
    incoming=st.floats(-6, 6).map(math.exp),
    outgoing=st.floats(-6, 6).map(math.exp),
)
def test_the_closed_form_is_the_numeric_minimum(c: int, incoming: float, outgoing: float) -> None:
    channel = ChannelSums({1.0: array(incoming), -1.0: array(outgoing)}, {}, array(c))
    step = channel_steps(channel, coupled=False).item()

    def value(d: float) -> float:
        return incoming * math.exp(2 * d) / 2 + outgoing * math.exp(-2 * d) / 2 - c * d

    numeric = minimize_scalar(value, bracket=(-1.0, 1.0), tol=1e-12)
    assert value(step) <= value(float(numeric.x)) + 1e-12 * (abs(value(step)) + 1)
    assert step == pytest.approx(float(numeric.x), abs=1e-5)


def test_a_channel_with_one_side_only_and_one_with_none() -> None:
    root = positive_root(array(3, -4, 0), array(6, 0, 0), array(0, 2, 0))
    assert root.tolist() == [0.5, 0.5, 1.0]


def random_sums(generator: np.random.Generator, *, size: int = 50) -> ChannelSums:
    """Sums of many magnitudes and both signs; a fifth of them extreme."""
    powers = [1.0, -1.0] if generator.random() < 0.5 else [1.0, -2.0, -1.0, 3.0, 0.5]
    spread = 3.0 if generator.random() < 0.8 else 25.0

    def draw() -> np.ndarray:
        return np.exp(generator.normal(size=size) * spread)

    def signed() -> np.ndarray:
        return draw() * generator.choice([-1.0, 1.0], size)

    weights = generator.integers(-300, 300, size).astype(np.float64)
    return ChannelSums(
        squares={p: draw() for p in powers},
        products={p: signed() for p in powers},
        counts=weights,
        reach=max(abs(p) for p in powers),
    )


def assert_no_rise(channel: ChannelSums, step: np.ndarray) -> None:
    difference = change(channel, step)
    size = channel.magnitude() + np.abs(channel.counts * step)
    assert bool((difference <= 1e-13 * size).all()), float((difference / size).max())


@pytest.mark.parametrize("seed", range(10))
def test_thousands_of_majorized_steps_never_go_up(seed: int) -> None:
    generator = np.random.default_rng(seed)
    for _ in range(20):
        channel = random_sums(generator)
        for _ in range(5):
            step = majorized_step(channel)
            assert_no_rise(channel, step)
            channel = moved(channel, step.clip(-20, 20))


@pytest.mark.parametrize("seed", range(10))
def test_refined_steps_are_no_worse_than_majorized_ones(seed: int) -> None:
    generator = np.random.default_rng(100 + seed)
    for _ in range(20):
        channel = random_sums(generator)
        step = channel_steps(channel, coupled=False)
        assert_no_rise(channel, step)
        safe = majorized_step(channel)
        size = channel.magnitude() + np.abs(channel.counts) * (np.abs(step) + np.abs(safe))
        assert bool((change(channel, step) <= change(channel, safe) + 1e-12 * size).all())


@given(
    c=st.integers(-50, 50),
    parts=st.lists(st.floats(-3, 3).map(math.exp), min_size=3, max_size=3),
)
def test_other_powers_reach_the_numeric_minimum(c: int, parts: list[float]) -> None:
    powers = (1.0, -2.0, -3.0)
    squares = {p: array(v) for p, v in zip(powers, parts, strict=True)}
    channel = ChannelSums(squares, {}, array(c), reach=3.0)
    total = 0.0
    for _ in range(12):
        step = channel_steps(channel, coupled=False)
        total += step.item()
        channel = moved(channel, step)

    def value(d: float) -> float:
        terms = zip(powers, parts, strict=True)
        return sum(v * math.exp(2 * p * d) / 2 for p, v in terms) - c * d

    numeric = minimize_scalar(value, bracket=(-0.5, 0.5), tol=1e-12)
    assert value(total) <= value(float(numeric.x)) + 1e-11 * (abs(value(total)) + 1)


def test_channels_that_share_weights_never_go_up_together() -> None:
    """Jensen's inequality: all channels of x + relu(W x) may move at once."""
    generator = np.random.default_rng(5)
    for trial in range(300):
        size = int(generator.integers(2, 6))
        scale = 1.0 if trial % 2 else 6.0
        squares = np.exp(scale * generator.normal(size=(size, size)))
        products = generator.normal(size=(size, size)) * np.exp(scale * generator.normal())
        np.fill_diagonal(squares, 0.0)
        np.fill_diagonal(products, 0.0)
        counts = generator.integers(-20, 20, size).astype(float)
        negative = np.maximum(-products, 0.0)
        channel = ChannelSums(
            squares={1.0: squares.sum(1), -1.0: squares.sum(0)},
            products={
                1.0: products.sum(1),
                -1.0: products.sum(0),
            },
            counts=counts,
            reach=2.0,
            negative={
                1.0: negative.sum(1),
                -1.0: negative.sum(0),
            },
        )
        step = channel_steps(channel, coupled=True)
        y = step[:, None] - step[None, :]
        parts = squares * np.expm1(2 * y) / 2 - products * np.expm1(y)
        size_of_parts = np.abs(parts).sum() + np.abs(counts * step).sum()
        assert parts.sum() - counts @ step <= 1e-12 * size_of_parts


@pytest.mark.parametrize("offset", [0.0, 5.0, -30.0, 30.0])
def test_group_scalars_reach_the_minimum_from_afar(offset: float) -> None:
    generator = np.random.default_rng(8)
    exponents = generator.choice([-2.0, 0.0, 2.0], size=(30, 4))
    coefficients = np.exp(generator.normal(size=30) + exponents @ np.full(4, offset / 2))
    linear = exponents.T @ np.ones(30)
    for _ in range(3):
        found = minimize_exponentials(coefficients, exponents, linear)
        coefficients = coefficients * np.exp(exponents @ found)
    gradient = exponents.T @ coefficients - linear
    assert np.abs(gradient).max() < 1e-4
    assert np.abs(found).max() < 1e-3


@pytest.mark.parametrize("seed", range(30))
def test_group_scalars_never_go_up_where_the_problem_is_not_convex(seed: int) -> None:
    generator = np.random.default_rng(seed)
    exponents = generator.choice([-1.0, 0.0, 1.0], size=(20, 3))
    exponents = np.concatenate([2 * exponents, exponents])
    coefficients = np.exp(4 * generator.normal(size=40))
    coefficients[20:] *= generator.choice([-1.0, 1.0], size=20)
    linear = generator.integers(-9, 9, 3).astype(float)
    found = minimize_exponentials(coefficients, exponents, linear)
    change_in_value = coefficients @ np.expm1(exponents @ found) - linear @ found
    assert change_in_value <= 0


def test_a_direction_without_any_effect_is_left_alone() -> None:
    exponents = np.array([[2.0, 0.0], [-2.0, 0.0]])
    found = minimize_exponentials(np.array([4.0, 1.0]), exponents, np.zeros(2))
    assert found == pytest.approx([-math.log(4) / 4, 0.0], abs=1e-3)
    assert found[1] == 0
