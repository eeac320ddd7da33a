"""The ledger of failure probability."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.bounds import ConfidenceBudget
from nonvacuous.errors import BadInput, Overspent

from .checks import DETERMINISTIC


def test_spends_are_named_and_add_up() -> None:
    budget = ConfidenceBudget(failure=0.05)
    assert budget.remaining == 0.05
    assert budget.spent == 0.0
    assert budget.spend(name="bound", failure=0.04, reason="PAC-Bayes-kl") == 0.04
    assert budget.remaining == pytest.approx(0.01, rel=1e-12)
    assert budget.spend(name="sampling", failure=0.01, reason="Monte Carlo") == 0.01
    assert budget.spent == 0.05
    assert budget.remaining == 0.0
    assert [entry.name for entry in budget.entries] == ["bound", "sampling"]
    assert [entry.failure for entry in budget.entries] == [0.04, 0.01]
    assert [entry.reason for entry in budget.entries] == ["PAC-Bayes-kl", "Monte Carlo"]


@pytest.mark.parametrize(
    ("total", "parts"),
    [
        (0.05, [0.04, 0.01]),
        (0.05, [0.01, 0.04]),
        (0.05, [0.025, 0.015, 0.01]),
        (0.3, [0.1, 0.2]),  # as floats 0.1 + 0.2 > 0.3
        (0.05, [0.005] * 10),
        (0.1, [0.01] * 10),  # as floats the sum is below 0.1
        (0.01, [0.001] * 10),
        (0.7, [0.1] * 7),
    ],
)
def test_decimal_parts_of_a_decimal_budget_fit_exactly(total: float, parts: list[float]) -> None:
    budget = ConfidenceBudget(failure=total)
    for number, part in enumerate(parts):
        budget.spend(name=f"part {number}", failure=part, reason="a share")
    assert budget.remaining == 0.0
    assert budget.spent == total
    with pytest.raises(Overspent):
        budget.spend(name="one more", failure=1e-9, reason="nothing is left")


def test_overspending_is_refused_and_leaves_no_trace() -> None:
    budget = ConfidenceBudget(failure=0.05)
    budget.spend(name="bound", failure=0.04, reason="PAC-Bayes-kl")
    with pytest.raises(Overspent) as caught:
        budget.spend(name="sampling", failure=0.02, reason="Monte Carlo")
    assert isinstance(caught.value, BadInput)
    assert isinstance(caught.value, ValueError)
    for part in ("sampling", "0.02", "0.01"):  # who asked, for how much, and what was left
        assert part in str(caught.value)
    assert len(budget.entries) == 1
    assert budget.remaining == pytest.approx(0.01, rel=1e-12)
    budget.spend(name="sampling", failure=0.01, reason="Monte Carlo")


@pytest.mark.parametrize("excess", [1e-9, 1e-6, 0.5])
def test_a_little_too_much_is_too_much(excess: float) -> None:
    budget = ConfidenceBudget(failure=0.05)
    with pytest.raises(Overspent):
        budget.spend(name="bound", failure=0.05 + excess, reason="too much")


def test_many_tiny_excesses_do_not_add_up() -> None:
    """Whatever grace there is for rounding is granted once, not at every spend."""
    budget = ConfidenceBudget(failure=0.5)
    budget.spend(name="all", failure=0.5, reason="everything")
    granted = 0.0
    for number in range(1000):
        try:
            granted += budget.spend(name=f"crumb {number}", failure=1e-13, reason="rounding")
        except Overspent:
            break
    assert granted <= 1e-12


def test_spend_rest() -> None:
    budget = ConfidenceBudget(failure=0.05)
    budget.spend(name="sampling", failure=0.01, reason="Monte Carlo")
    rest = budget.spend_rest(name="bound", reason="what is left")
    assert rest == pytest.approx(0.04, rel=1e-12)
    assert Fraction(rest) + Fraction(0.01) <= Fraction(0.05) * (1 + Fraction(1, 10**15))
    assert budget.remaining == 0.0
    assert budget.entries[-1].name == "bound"
    with pytest.raises(Overspent):
        budget.spend_rest(name="again", reason="nothing is left")


def test_a_union_is_one_entry() -> None:
    budget = ConfidenceBudget(failure=0.05)
    shares = budget.union(name="prior scales", failure=0.04, choices=8, reason="grid of scales")
    assert shares == (0.04 / 8,) * 8
    assert len(budget.entries) == 1
    entry = budget.entries[0]
    assert (entry.name, entry.failure, entry.reason, entry.choices) == (
        "prior scales",
        0.04,
        "grid of scales",
        8,
    )
    assert budget.remaining == pytest.approx(0.01, rel=1e-12)


def test_a_weighted_union() -> None:
    budget = ConfidenceBudget(failure=0.05)
    shares = budget.union(
        name="architectures", failure=0.02, weights=(0.5, 0.25, 0.25), reason="preferred first"
    )
    assert shares == pytest.approx((0.01, 0.005, 0.005), rel=1e-12)
    assert budget.spent == 0.02
    assert len(budget.entries) == 1
    # Weights may leave something unused, but it is spent all the same.
    shares = budget.union(
        name="tails", failure=0.02, weights=[2.0**-k for k in range(1, 6)], reason="falling"
    )
    assert math.fsum(shares) < 0.02
    assert budget.spent == 0.04


@DETERMINISTIC
@given(failure=st.floats(1e-12, 0.999), choices=st.integers(1, 500))
def test_shares_never_exceed_what_was_spent(failure: float, choices: int) -> None:
    shares = ConfidenceBudget(failure=failure).union(
        name="grid", failure=failure, choices=choices, reason="a grid"
    )
    assert len(shares) == choices
    assert all(type(share) is float and share > 0 for share in shares)
    assert sum(map(Fraction, shares)) <= Fraction(failure) * (1 + Fraction(1, 10**12))
    assert math.fsum(shares) == pytest.approx(failure, rel=1e-9)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"choices": 2, "weights": (0.5, 0.5)},
        {"choices": 0},
        {"choices": -1},
        {"choices": 2.5},
        {"choices": "3"},
        {"choices": True},
        {"weights": ()},
        {"weights": (0.6, 0.6)},
        {"weights": (0.5, -0.1)},
        {"weights": (0.5, 0.0)},
        {"weights": (0.5, math.nan)},
        {"weights": (math.inf,)},
        {"weights": ("0.5",)},
    ],
    ids=str,
)
def test_bad_unions(arguments: dict) -> None:
    budget = ConfidenceBudget(failure=0.05)
    with pytest.raises(BadInput):
        budget.union(name="grid", failure=0.02, reason="a grid", **arguments)
    assert budget.entries == type(budget.entries)()
    assert budget.remaining == 0.05


def test_a_union_can_overspend() -> None:
    budget = ConfidenceBudget(failure=0.05)
    with pytest.raises(Overspent):
        budget.union(name="grid", failure=0.06, choices=3, reason="too much")
    assert budget.remaining == 0.05


BAD_FAILURES = [0.0, 1.0, -0.01, 1.5, math.nan, math.inf, -math.inf, "0.05", True, None]


@pytest.mark.parametrize("bad", BAD_FAILURES, ids=repr)
def test_bad_failures(bad: object) -> None:
    with pytest.raises(BadInput) as caught:
        ConfidenceBudget(failure=bad)
    assert "failure" in str(caught.value)
    assert str(bad) in str(caught.value)
    budget = ConfidenceBudget(failure=0.05)
    with pytest.raises(BadInput) as caught:
        budget.spend(name="bound", failure=bad, reason="a reason")
    assert str(bad) in str(caught.value)
    with pytest.raises(BadInput):
        budget.union(name="bound", failure=bad, choices=2, reason="a reason")
    assert budget.remaining == 0.05


@pytest.mark.parametrize("bad", ["", "   ", None, 3, True], ids=repr)
def test_names_and_reasons_are_required(bad: object) -> None:
    budget = ConfidenceBudget(failure=0.05)
    with pytest.raises(BadInput, match="name"):
        budget.spend(name=bad, failure=0.01, reason="a reason")
    with pytest.raises(BadInput, match="reason"):
        budget.spend(name="bound", failure=0.01, reason=bad)
    with pytest.raises(BadInput, match="reason"):
        budget.union(name="grid", failure=0.01, choices=2, reason=bad)
    with pytest.raises(BadInput, match="reason"):
        budget.spend_rest(name="rest", reason=bad)
    assert budget.remaining == 0.05


def test_reason_cannot_be_left_out() -> None:
    budget = ConfidenceBudget(failure=0.05)
    with pytest.raises((TypeError, BadInput)):
        budget.spend("bound", 0.01)
    assert budget.remaining == 0.05


def test_names_are_unique() -> None:
    budget = ConfidenceBudget(failure=0.05)
    budget.spend(name="bound", failure=0.01, reason="first")
    for again in (
        lambda: budget.spend(name="bound", failure=0.01, reason="second"),
        lambda: budget.union(name="bound", failure=0.01, choices=2, reason="second"),
        lambda: budget.spend_rest(name="bound", reason="second"),
    ):
        with pytest.raises(BadInput, match="bound"):
            again()
    assert len(budget.entries) == 1
    assert budget.remaining == pytest.approx(0.04, rel=1e-12)


def test_numpy_numbers_are_numbers() -> None:
    budget = ConfidenceBudget(failure=np.float64(0.05))
    spent = budget.spend(name="bound", failure=np.float64(0.01), reason="numpy")
    assert type(spent) is float
    shares = budget.union(
        name="grid",
        failure=np.float64(0.02),
        choices=np.int64(4),
        reason="numpy",
    )
    assert shares == (0.005,) * 4
    budget.union(name="weights", failure=0.01, weights=np.array([0.5, 0.5]), reason="numpy")
    json.dumps(budget.to_dict())


def filled() -> ConfidenceBudget:
    budget = ConfidenceBudget(failure=0.05)
    budget.spend(name="sampling", failure=0.01, reason="Monte Carlo, 100,000 trials")
    budget.union(name="scales", failure=0.02, choices=20, reason="grid of prior scales")
    budget.union(name="architectures", failure=0.01, weights=(0.75, 0.25), reason="two of them")
    return budget


def test_round_trip_through_json() -> None:
    budget = filled()
    copy = ConfidenceBudget.from_dict(json.loads(json.dumps(budget.to_dict())))
    assert copy.entries == budget.entries
    assert copy.remaining == budget.remaining
    assert copy.spent == budget.spent
    assert copy.to_dict() == budget.to_dict()
    # The copy is a ledger, not a picture of one.
    with pytest.raises(BadInput):
        copy.spend(name="scales", failure=0.001, reason="same name")
    with pytest.raises(Overspent):
        copy.spend(name="more", failure=0.02, reason="too much")
    copy.spend_rest(name="bound", reason="what is left")
    assert copy.remaining == 0.0
    assert budget.remaining == pytest.approx(0.01, rel=1e-12)


def test_a_full_ledger_survives_the_round_trip() -> None:
    budget = ConfidenceBudget(failure=0.3)
    budget.spend(name="a", failure=0.1, reason="first")
    budget.spend(name="b", failure=0.2, reason="second")
    copy = ConfidenceBudget.from_dict(json.loads(json.dumps(budget.to_dict())))
    assert copy.remaining == 0.0


def test_a_doctored_record_is_refused() -> None:
    def entries(record: dict) -> list[dict]:
        (found,) = [value for value in record.values() if isinstance(value, list | tuple)]
        return found

    def doctored(**changes: object) -> dict:
        record = json.loads(json.dumps(filled().to_dict()))
        entries(record)[0].update(changes)
        return record

    assert ConfidenceBudget.from_dict(doctored())
    for changes in (
        {"failure": 0.045},
        {"failure": -0.01},
        {"failure": "0.01"},
        {"name": "scales"},
        {"name": ""},
        {"reason": ""},
    ):
        with pytest.raises(BadInput):
            ConfidenceBudget.from_dict(doctored(**changes))
    record = doctored()
    record["failure"] = 0.03
    with pytest.raises(BadInput):
        ConfidenceBudget.from_dict(record)
    for record in ({}, {"failure": 0.05, "entries": 3}, {"failure": 0.05, "entries": [{}]}):
        with pytest.raises(BadInput):
            ConfidenceBudget.from_dict(record)


def test_entries_cannot_be_rewritten() -> None:
    budget = filled()
    before = budget.to_dict()
    assert isinstance(budget.entries, tuple)
    with pytest.raises(AttributeError):
        budget.entries[0].failure = 0.0
    with pytest.raises(AttributeError):
        budget.remaining = 0.05
    record = budget.to_dict()
    record.clear()
    assert budget.to_dict() == before


@DETERMINISTIC
@given(
    failure=st.floats(1e-6, 0.999),
    parts=st.lists(st.floats(1e-9, 0.5), min_size=1, max_size=12),
)
def test_the_ledger_never_promises_more_than_it_has(failure: float, parts: list[float]) -> None:
    budget = ConfidenceBudget(failure=failure)
    granted: list[float] = []
    for number, part in enumerate(parts):
        try:
            granted.append(budget.spend(name=str(number), failure=part, reason="a share"))
        except Overspent:
            # Refused only if it really does not fit.
            assert sum(map(Fraction, [*granted, part])) > Fraction(failure)
    total = sum(map(Fraction, granted))
    assert total <= Fraction(failure) * (1 + Fraction(1, 10**12))
    assert budget.spent == pytest.approx(float(total), rel=1e-9, abs=1e-15)
    assert 0.0 <= budget.remaining <= failure
