"""Intervals, p-values and the chance test, against slow oracles and simulated worlds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.errors import BadInput
from nonvacuous.randomization.intervals import (
    chance_test,
    error_rate,
    exact_rate,
    over_networks,
    ratio_over_networks,
)
from nonvacuous.randomization.results import Permutations


def binomial_tail(errors: int, examples: int, risk: float) -> float:
    """P(at most so many), term by term."""
    return math.fsum(
        math.comb(examples, k) * risk**k * (1 - risk) ** (examples - k) for k in range(errors + 1)
    )


@given(st.integers(0, 40), st.sampled_from([0.5, 0.9, 0.95]))
def test_the_exact_interval_leaves_half_the_failure_on_each_side(errors, confidence):
    interval = exact_rate(errors, 40, confidence=confidence)
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    half = (1 - confidence) / 2
    if errors < 40:
        assert binomial_tail(errors, 40, interval.high) == pytest.approx(half, rel=1e-6)
    if errors > 0:
        above = 1 - binomial_tail(errors - 1, 40, interval.low)
        assert above == pytest.approx(half, rel=1e-6)


def test_students_interval_is_the_textbook_one():
    interval = over_networks([1.0, 2.0, 4.0], confidence=0.95)
    # Mean 7/3, standard deviation 1.5275, t with two degrees of freedom 4.302653.
    assert interval.value == pytest.approx(7 / 3)
    assert interval.high - interval.value == pytest.approx(4.302653 * 1.527525 / 3**0.5, rel=1e-5)
    assert over_networks([0.3], confidence=0.95).low == 0.3
    with pytest.raises(BadInput, match="at least one network"):
        over_networks([], confidence=0.95)


def test_students_interval_covers_the_mean_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        found = over_networks(list(generator.normal(2.0, 1.0, 4)), confidence=0.9)
        covered += found.low <= 2.0 <= found.high
    assert 0.86 <= covered / 400 <= 0.94


def test_an_error_rate_is_never_surer_than_its_parts():
    errors = [3, 9, 6]
    both = error_rate(errors, 100, confidence=0.95)
    exact = exact_rate(6, 100, confidence=0.95)
    seeds = over_networks([0.03, 0.09, 0.06], confidence=0.95)
    assert both.low <= min(exact.low, max(0.0, seeds.low))
    assert both.high >= max(exact.high, seeds.high)
    assert both.value == pytest.approx(0.06)
    one = error_rate([6], 100, confidence=0.95)
    assert (one.low, one.high) == (exact.low, exact.high)


def test_ratios_are_paired_by_seed():
    found = ratio_over_networks([10, 40], [5, 20], confidence=0.95)
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))


def test_a_permutation_p_value_is_valid():
    # Under the null hypothesis all values are alike: P(p <= a) is at most a.
    generator = np.random.default_rng(1)
    values = [
        Permutations(row[0], tuple(row[1:])).p_value for row in generator.normal(size=(4000, 20))
    ]
    for level in (0.05, 0.1, 0.3):
        assert np.mean(np.array(values) <= level) <= level + 3 * math.sqrt(level / 4000)
    assert Permutations(0.0, (0.5,) * 19).p_value == pytest.approx(0.05)
    assert Permutations(0.5, (0.5,) * 19).p_value == 1.0


def test_renaming_classes_against_going_through_all_of_them():
    generator = np.random.default_rng(2)
    tables = generator.integers(0, 9, size=(2, 3, 3))
    observed = sum(np.trace(table) for table in tables)
    counts = [
        sum(
            table[row, names[row]]
            for table, names in zip(tables, each, strict=True)
            for row in range(3)
        )
        for each in itertools.product(itertools.permutations(range(3)), repeat=2)
    ]
    found = chance_test(tables.tolist(), level=0.05, seed=0)
    assert found.relabeling == pytest.approx(np.mean(np.array(counts) >= observed))
    total = int(tables.sum())
    assert found.binomial == pytest.approx(1 - binomial_tail(observed - 1, total, 1 / 3), rel=1e-6)
    assert found.p_value == max(found.binomial, found.relabeling)


def test_drawn_renamings_agree_with_all_of_them():
    generator = np.random.default_rng(3)
    table = generator.integers(0, 6, size=(6, 6)) + 2 * np.eye(6, dtype=int)
    every = [
        sum(table[row, names[row]] for row in range(6))
        for names in itertools.permutations(range(6))
    ]
    exact = np.mean(np.array(every) >= np.trace(table))
    # Two networks, the second without any answers: too many renamings to go through.
    drawn = chance_test([table.tolist(), np.zeros((6, 6), int).tolist()], level=0.001, seed=0)
    assert drawn.relabeling == pytest.approx(exact, abs=0.02)


def test_more_renamings_than_a_float_can_count():
    tables = [np.ones((100, 100), int).tolist()] * 3
    assert chance_test(tables, level=0.001, seed=0).relabeling == 1.0


def clumsy_networks(generator, networks: int, classes: int) -> list[np.ndarray]:
    """Networks without knowledge that answer alike on alike inputs: one random answer per class."""
    tables = []
    for _ in range(networks):
        table = np.zeros((classes, classes), int)
        answers = generator.integers(0, classes, classes)
        for row in range(classes):
            table[row] += generator.multinomial(12, np.full(classes, 1 / classes))
            table[row, answers[row]] += 24
        tables.append(table)
    return tables


@pytest.mark.slow_if("10-3")
@pytest.mark.parametrize(("classes", "networks"), [(10, 3), (3, 4), (2, 4)])
def test_answers_that_hang_together_raise_no_false_alarm(classes, networks):
    generator = np.random.default_rng(classes)
    level, worlds, alarms, naive = 0.02, 150, 0, 0
    for world in range(worlds):
        tables = clumsy_networks(generator, networks, classes)
        found = chance_test([t.tolist() for t in tables], level=level, seed=world)
        alarms += found.p_value <= level
        naive += found.binomial <= level
    assert alarms <= 10, "more than the level allows"
    assert naive > alarms, "the binomial test alone is fooled"


@pytest.mark.parametrize(("classes", "networks"), [(10, 1), (10, 3), (3, 3), (2, 3)])
def test_a_leak_is_seen_with_few_classes_and_few_networks(classes, networks):
    table = (np.full((classes, classes), 1) + 30 * np.eye(classes, dtype=int)).tolist()
    assert chance_test([table] * networks, level=0.001, seed=0).p_value <= 0.001


def test_tables_must_fit_together():
    with pytest.raises(BadInput, match="one row and one column"):
        chance_test([[[1, 2], [3, 4]], [[1]]], level=0.05, seed=0)
