"""Losses: values, ties, broken outputs, ranges."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nonvacuous.errors import BadInput
from nonvacuous.risk.losses import (
    MADE_FROM_A_NUMBER,
    Loss,
    bounded_cross_entropy,
    class_margins,
    loss_named,
    margin_loss,
    zero_one,
)
from tests.examples import some

scores = st.lists(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3), min_size=1, max_size=8
)


def test_losses_of_errors_travel_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(zero_one)) == zero_one
    outputs, labels = torch.tensor([[1.0, 0.8]]), torch.tensor([0])
    carried = pickle.loads(pickle.dumps(margin_loss(0.5)))
    assert carried(outputs, labels).tolist() == [1.0] and zero_one(outputs, labels).tolist() == [0]


def test_zero_one_counts_ties_and_broken_rows_as_errors() -> None:
    nan, inf = math.nan, math.inf
    outputs = torch.tensor(
        [
            [2.0, 1.0, 0.0],
            [1.0, 2.0, 0.0],
            [1.0, 1.0, 0.0],
            [nan, 0.0, 0.0],
            [5.0, nan, 0.0],
            [inf, 0.0, 0.0],
            [5.0, -inf, 0.0],
        ]
    )
    labels = torch.zeros(7, dtype=torch.int64)
    assert zero_one(outputs, labels).tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]


@settings(max_examples=some(200))
@given(scores, st.floats(0, 10))
def test_margin_loss_is_never_below_zero_one(rows: list[list[float]], margin: float) -> None:
    outputs, labels = torch.tensor(rows), torch.arange(len(rows)) % 3
    at_margin = margin_loss(margin)(outputs, labels)
    assert bool((at_margin >= zero_one(outputs, labels)).all())
    assert torch.equal(margin_loss(0.0)(outputs, labels), zero_one(outputs, labels))


@settings(max_examples=some(200))
@given(scores, st.floats(1e-6, 0.9))
def test_bounded_cross_entropy_lies_in_its_range(rows: list[list[float]], least: float) -> None:
    outputs, labels = torch.tensor(rows), torch.arange(len(rows)) % 3
    values = bounded_cross_entropy(least)(outputs, labels)
    probability = outputs.double().softmax(1).gather(1, labels[:, None])[:, 0].clamp_min(least)
    expected = probability.log() / math.log(least)
    assert torch.allclose(values.double(), expected, atol=1e-5)


@pytest.mark.parametrize("words", MADE_FROM_A_NUMBER)
@pytest.mark.parametrize("number", [0.5, 1e-5, 0.1234567, 1 / 3])
def test_a_loss_made_from_a_number_is_found_by_its_name(words: str, number: float) -> None:
    """The very same one, to the last digit; what enters the table inherits this."""
    made = MADE_FROM_A_NUMBER[words](number)
    again = loss_named(made.name)
    assert again is not None and again.name == made.name
    assert made.name.startswith(words) and float(made.name.removeprefix(words)) == number
    assert (again.lower, again.upper, again.binary) == (made.lower, made.upper, made.binary)


def test_broken_rows_get_the_worst_bounded_loss() -> None:
    outputs = torch.tensor([[math.nan, 0.0], [0.0, 0.0]])
    values = bounded_cross_entropy(0.25)(outputs, torch.zeros(2, dtype=torch.int64))
    assert values.tolist() == pytest.approx([1.0, 0.5])


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_a_value_outside_the_range_raises(bad: float) -> None:
    loss = Loss(name="bad", lower=0.0, upper=1.0, function=lambda o, y: torch.full((2,), bad))
    with pytest.raises(BadInput, match="outside its declared range"):
        loss(torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64))


def test_a_binary_loss_takes_two_values_only() -> None:
    loss = Loss(
        name="half", lower=0.0, upper=1.0, binary=True, function=lambda o, y: torch.full((2,), 0.5)
    )
    with pytest.raises(BadInput, match="outside its declared range"):
        loss(torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64))


def test_refuses_bad_declarations_and_shapes() -> None:
    with pytest.raises(BadInput, match="finite range"):
        Loss(name="x", lower=0.0, upper=math.inf, function=lambda o, y: o)
    with pytest.raises(BadInput, match="lower < upper"):
        Loss(name="x", lower=1.0, upper=1.0, function=lambda o, y: o)
    labels = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(BadInput, match="one value for each"):
        Loss(name="x", lower=0.0, upper=1.0, function=lambda o, y: o)(torch.zeros(3, 2), labels)
    with pytest.raises(BadInput, match="2 rows for 3"):
        zero_one(torch.zeros(2, 2), labels)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(BadInput, match="margin"):
            margin_loss(bad)
    for bad in (0.0, 1.0, -1.0):
        with pytest.raises(BadInput, match="minimum_probability"):
            bounded_cross_entropy(bad)


def test_boolean_losses_are_counted() -> None:
    loss = Loss(name="b", lower=0.0, upper=1.0, binary=True, function=lambda o, y: o.argmax(1) != y)
    values = loss(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(2, dtype=torch.int64))
    assert loss.unit_sum(values) == 1.0


def test_margins_are_leads_over_the_best_other_class() -> None:
    torch.manual_seed(0)
    outputs, labels = torch.randn(50, 3), torch.arange(50) % 3
    margins = class_margins(outputs, labels)
    for row, label, margin in zip(outputs, labels, margins, strict=True):
        others = [float(row[k]) for k in range(3) if k != int(label)]
        assert float(margin) == pytest.approx(float(row[label]) - max(others), abs=1e-6)
    assert zero_one.unit_sum(zero_one(outputs, labels)) == int((margins <= 0).sum())
