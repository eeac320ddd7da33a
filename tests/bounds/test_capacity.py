from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nonvacuous.bounds import (
    hoeffding_radius,
    memorization_sizes,
    memorization_verdict,
    rademacher_gap,
    vc_lower,
    vc_upper,
)
from nonvacuous.errors import BadInput
from tests.bounds import capacity_oracles as oracles
from tests.examples import some

EXAMPLES = st.integers(1, 10**12)
FAILURE = st.floats(1e-300, 1, exclude_max=True)
WIDTHS = st.lists(st.integers(1, 9), min_size=1, max_size=3)


# ------------------------------------------------------------------ Hoeffding, Rademacher


@given(EXAMPLES, FAILURE)
def test_radius_is_the_oracle_rounded_up(examples: int, failure: float) -> None:
    exact = oracles.hoeffding_radius(examples, failure)
    radius = hoeffding_radius(examples=examples, failure=failure)
    assert radius == 1.0 if exact >= 1 else exact <= radius <= exact * (1 + 1e-14)


@given(st.floats(0, 1), EXAMPLES, FAILURE)
def test_gap_is_the_oracle_rounded_up(rademacher: float, examples: int, failure: float) -> None:
    exact = oracles.rademacher_gap(rademacher, examples, failure)
    gap = rademacher_gap(rademacher=rademacher, examples=examples, failure=failure)
    assert gap == 1.0 if exact >= 1 else exact <= gap <= exact * (1 + 1e-14)


@pytest.mark.parametrize("examples", [1, 7, 50, 1000])
@pytest.mark.parametrize("failure", [0.01, 0.05, 0.5])
def test_radius_holds_exactly_for_coins(examples: int, failure: float) -> None:
    """C1: no coin leaves the radius with more than the promised probability, summed exactly."""
    radius = hoeffding_radius(examples=examples, failure=failure)
    heads = np.arange(examples + 1)
    for risk in np.linspace(0.01, 0.99, 25):
        outside = np.abs(heads / examples - risk) > radius
        assert stats.binom.pmf(heads, examples, risk)[outside].sum() <= failure


def test_gap_holds_for_threshold_classifiers() -> None:
    """A class whose supremum can be computed: the promise is kept in a world with known risks."""
    generator = np.random.default_rng(0)
    examples, failures, worlds = 40, 0, 300
    for _ in range(worlds):
        order = np.sort(generator.random(examples))
        flipped = generator.random(examples) < 0.3
        labels = np.where((order > 0.5) ^ flipped, 1, -1)
        predictions = np.array([np.where(np.arange(examples) >= cut, 1, -1)
                                for cut in range(examples + 1)])  # fmt: skip
        predictions = np.concatenate([predictions, -predictions])
        signs = generator.choice([-1, 1], (200, examples))
        rademacher = float((signs @ predictions.T / examples).max(1).mean())
        cuts = np.concatenate([[0.0], (order[1:] + order[:-1]) / 2, [1.0]])
        risks = 0.3 + 0.4 * np.abs(cuts - 0.5)
        risks = np.concatenate([risks, 1 - risks])
        empirical = (predictions != labels).mean(1)
        gap = rademacher_gap(rademacher=rademacher, examples=examples, failure=0.05)
        failures += bool((risks - empirical > gap).any())
    assert failures <= 0.05 * worlds


def test_a_class_that_fits_everything_gets_a_vacuous_bound_whatever_the_labels() -> None:
    assert rademacher_gap(rademacher=1.0, examples=10**15, failure=0.9) == 1.0


# ------------------------------------------------------------------ VC dimension


def layers_of(inputs: int, widths: list[int]) -> tuple[list[int], list[int]]:
    sizes = [inputs, *widths, 1]
    parameters = [(a + 1) * b for a, b in itertools.pairwise(sizes)]
    return parameters, [*widths, 1]


@settings(deadline=None, max_examples=some(50))
@given(st.integers(1, 4), st.lists(st.integers(1, 4), min_size=1, max_size=2))
def test_vc_upper_is_the_first_m_that_fails(inputs: int, widths: list[int]) -> None:
    parameters, comparisons = layers_of(inputs, widths)
    assert vc_upper(parameters=parameters, comparisons=comparisons) == oracles.vc_upper(
        parameters, comparisons
    )


@given(st.integers(1, 3000), st.lists(st.integers(2, 2000), min_size=1, max_size=6))
def test_vc_upper_is_below_the_published_closed_form(inputs: int, widths: list[int]) -> None:
    parameters, comparisons = layers_of(inputs, widths)
    upper = vc_upper(parameters=parameters, comparisons=comparisons)
    assert upper <= oracles.published_closed_form(parameters, comparisons)
    assert vc_lower(inputs=inputs, widths=widths) <= upper
    assert upper >= sum(parameters) / 2  # the order of growth is W L log W, not less than W


@given(st.integers(1, 50), WIDTHS, st.data())
def test_vc_bounds_grow_with_the_network(inputs: int, widths: list[int], data) -> None:
    layer = data.draw(st.integers(0, len(widths) - 1))
    wider = [width + (i == layer) for i, width in enumerate(widths)]
    for small, large in [
        ((inputs, widths), (inputs, wider)),
        ((inputs, widths), (inputs + 1, widths)),
    ]:
        assert vc_lower(inputs=small[0], widths=small[1]) <= vc_lower(
            inputs=large[0], widths=large[1]
        )
        one, two = layers_of(*small), layers_of(*large)
        assert vc_upper(parameters=one[0], comparisons=one[1]) <= vc_upper(
            parameters=two[0], comparisons=two[1]
        )


def test_vc_of_affine_classifiers_is_exact() -> None:
    assert vc_upper(parameters=[21], comparisons=[1]) == 21
    assert vc_lower(inputs=20, widths=[]) == 21


def test_pooling_before_any_parameter_costs_nothing_and_after_it_costs() -> None:
    plain = vc_upper(parameters=[50, 11], comparisons=[10, 1])
    assert vc_upper(parameters=[0, 50, 11], comparisons=[360, 10, 1]) == plain
    assert vc_upper(parameters=[50, 0, 11], comparisons=[10, 36, 1]) > plain
    assert vc_upper(parameters=[50, 0, 11], comparisons=[10, 0, 1]) == plain


def test_sampled_labelings_stay_below_the_growth_function() -> None:
    """Random weights reach only some labelings of m points: never more than G(m)."""
    generator = np.random.default_rng(1)
    points = np.linspace(-1, 1, 12)
    found = set()
    for _ in range(40):
        first = generator.normal(size=(2000, 2, 2))
        last = generator.normal(size=(2000, 3))
        hidden = np.maximum(first[:, :, :1] * points + first[:, :, 1:], 0)
        scores = np.einsum("tu,tup->tp", last[:, :2], hidden) + last[:, 2:]
        found |= {row.tobytes() for row in scores > 0}
    assert 100 < len(found) <= oracles.labelings(12, [4, 3], [2, 1])
    assert len(found) < 2**12  # two units on a line do not shatter twelve points


def labelings_of(count: int) -> list[list[Fraction]]:
    """All sign vectors of few points, a hundred random ones of more."""
    signs = (Fraction(1), Fraction(-1))
    if count <= 7:
        return [list(row) for row in itertools.product(signs, repeat=count)]
    chance = random.Random(0)
    return [[chance.choice(signs) for _ in range(count)] for _ in range(100)]


@pytest.mark.parametrize("width", [1, 2, 6, 20])
def test_width_plus_one_points_on_a_line_are_shattered(width: int) -> None:
    count = vc_lower(inputs=1, widths=[width])
    assert count == width + 1
    points = [[Fraction(i)] for i in range(count)]
    for values in labelings_of(count):
        network = oracles.knots(values)
        assert len(network[0][0]) == width
        assert [oracles.evaluate(network, point) for point in points] == values


@pytest.mark.parametrize(("inputs", "width"), [(2, 4), (3, 8), (5, 8), (4, 13), (9, 4)])
def test_four_units_shatter_as_many_points_as_there_are_inputs(inputs: int, width: int) -> None:
    count = inputs * (width // 4)
    assert vc_lower(inputs=inputs, widths=[width]) >= count
    points = oracles.moment_curve(count, inputs)
    for values in labelings_of(count)[:128]:
        network = oracles.four_units_per_group(points, values)
        assert len(network[0][0]) <= width
        assert [oracles.evaluate(network, point) for point in points] == values


def test_layers_before_and_after_carry() -> None:
    """Inputs 5, widths 3, 8, 1: three coordinates pass the first layer, the result the third."""
    assert vc_lower(inputs=5, widths=[3, 8, 1]) == max(5 + 1, 8 + 1, 5 * 0, 3 * 2)
    points = [[*point, Fraction(0), Fraction(7)] for point in oracles.moment_curve(6, 3)]
    carried = [point[:3] for point in points]
    for values in labelings_of(6):
        first = oracles.carrying(5, 3, points)
        hidden, output = oracles.four_units_per_group(carried, values)
        shift = first[1][0]
        moved = [b - shift * sum(row) for row, b in zip(*hidden, strict=True)]
        raised = (output[0], [output[1][0] + 2])
        last = ([[Fraction(1)]], [Fraction(-2)])
        network = [first, (hidden[0], moved), raised, last]
        assert [oracles.evaluate(network, point) for point in points] == values


# ------------------------------------------------------------------ memorization


@given(st.integers(1, 10**9), st.integers(1, 10**6))
def test_sizes_suffice_and_one_less_does_not(examples: int, inputs: int) -> None:
    sizes = memorization_sizes(examples=examples, inputs=inputs)
    assert sizes.projection_weights == 2 * examples + inputs
    groups = sizes.general_position_units // 4
    assert (groups - 1) * inputs < examples <= groups * inputs
    quarter = sizes.two_layer_width // 4
    assert 4 * (quarter - 1) ** 2 < examples <= 4 * quarter**2
    verdict = memorization_verdict(
        examples=examples, inputs=inputs, widths=[sizes.two_layer_width] * 2
    )
    assert verdict.verdict == "memorizes any distinct inputs"
    one = memorization_verdict(
        examples=examples, inputs=inputs, widths=[sizes.general_position_units]
    )
    assert one.general_position
    assert not one.impossible


def test_weights_are_those_of_the_networks() -> None:
    sizes = memorization_sizes(examples=1000, inputs=7)
    width, units = sizes.two_layer_width, sizes.general_position_units
    assert sum(layers_of(7, [width, width])[0]) == sizes.two_layer_weights
    assert sum(layers_of(7, [units])[0]) == sizes.general_position_weights


@pytest.mark.parametrize(
    ("examples", "inputs", "widths", "verdict"),
    [
        (50_000, 2352, [512], "memorizes inputs in general position"),
        (50_000, 2352, [512, 512, 512], "memorizes any distinct inputs"),
        (50_000, 2352, [50_000], "memorizes any distinct inputs"),
        (50_000, 2352, [], "cannot memorize every labeling"),
        (50_000, 2, [3], "cannot memorize every labeling"),
        (100, 5, [10, 3], "no theorem decides"),
        (2353, 2352, [], "memorizes inputs in general position"),
        (2354, 2352, [], "cannot memorize every labeling"),
    ],
)
def test_verdicts(examples: int, inputs: int, widths: list[int], verdict: str) -> None:
    found = memorization_verdict(examples=examples, inputs=inputs, widths=widths)
    assert found.verdict == verdict
    assert found.impossible == (found.vc_upper < examples)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hoeffding_radius(examples=0, failure=0.05), "examples must be at least 1"),
        (lambda: hoeffding_radius(examples=10, failure=1.0), "strictly between 0 and 1"),
        (lambda: rademacher_gap(rademacher=-0.1, examples=1, failure=0.1), "rademacher must lie"),
        (lambda: rademacher_gap(rademacher=1.1, examples=1, failure=0.1), "rademacher must lie"),
        (lambda: vc_upper(parameters=[], comparisons=[]), "one count per layer each"),
        (lambda: vc_upper(parameters=[3], comparisons=[2, 1]), "one count per layer each"),
        (lambda: vc_upper(parameters=[3, 4], comparisons=[2, 10]), "must end with 1"),
        (lambda: vc_upper(parameters=[0], comparisons=[1]), "nothing to train"),
        (lambda: vc_upper(parameters=[3.0], comparisons=[1]), "integer count"),
        (lambda: vc_upper(parameters=5, comparisons=[1]), "sequence of counts"),
        (lambda: vc_upper(parameters=[2**52, 5], comparisons=[2**52, 1]), r"exceeds 2\^53"),
        (lambda: vc_lower(inputs=0, widths=[3]), "inputs must be at least 1"),
        (lambda: vc_lower(inputs=2, widths=[0]), "widths must be at least 1"),
        (lambda: vc_lower(inputs=2, widths="34"), "sequence of counts"),
        (lambda: memorization_sizes(examples=0, inputs=1), "examples must be at least 1"),
        (lambda: memorization_sizes(examples=5, inputs=2.0), "integer count"),
        (lambda: memorization_verdict(examples=5, inputs=2, widths=[-1]), "at least 1"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        call()
