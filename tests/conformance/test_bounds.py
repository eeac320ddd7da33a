"""What every theorem of the table must satisfy; an entry inherits all of this.

Its function is compared with the oracle of the same name in ``tests/bounds/oracles.py``, moves with
each input the way its entry says, refuses by name what lies outside an input's range, and is right
often enough in a world with known risks. What stands apart (sequences) has tests of its own.
"""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nonvacuous import bounds
from nonvacuous.bounds.table import THEOREMS, Input, Theorem
from nonvacuous.errors import BadInput
from tests.bounds import oracles
from tests.bounds.checks import assert_lower, assert_upper
from tests.validity.finite_class import FAILURE, FEW_WORLDS, assert_covered, false_claims

NOT_NUMBERS: list[Any] = ["0.1", "3", None, True, False, np.True_, [0.1], 0.5 + 0.5j]
NOT_FINITE = [math.nan, math.inf, -math.inf, np.float64("nan")]
#: Random calls of each function, with sizes up to ``MOST``.
RANDOM_CALLS, MOST = 25, 1000
TESTS_OF_BOUNDS = Path(__file__).parents[1] / "bounds"

#: Theorems whose inputs are all plain numbers, and those with a sequence among them.
PLAIN = [
    name for name, entry in THEOREMS.items() if not any(i.apart for i in entry.inputs.values())
]
APART = [name for name in THEOREMS if name not in PLAIN]
NUMBERS = [
    pytest.param(entry, name, id=f"{entry.name}-{name}")
    for entry in THEOREMS.values()
    for name in entry.required
    if not entry.inputs[name].apart
]


def valid(entry: Theorem) -> dict[str, Any]:
    return {name: entry.inputs[name].example for name in entry.required}


def limit(entry: Theorem, name: str, call: dict[str, Any]) -> float:
    """The most that an input may be beside the others."""
    other = entry.inputs[name].at_most
    if other is None:
        return entry.inputs[name].high
    return call[other if other in call else "trials"]


def wrong_values(entry: Theorem, name: str) -> list[Any]:
    """What is no number, no whole one, or lies outside the range."""
    spec, most = entry.inputs[name], limit(entry, name, valid(entry))
    # An infinite divergence is what a posterior outside the prior's support has: see below.
    wrong = [*NOT_NUMBERS, *(NOT_FINITE if math.isfinite(most) or spec.whole else [math.nan])]
    if spec.whole:
        wrong += [2.5, np.float64(2.5), np.int64(spec.low) - 1]
    if math.isfinite(spec.low):
        wrong += [spec.low - 1, *([spec.low, float(spec.low)] if spec.open else [])]
        wrong += [] if spec.whole else [math.nextafter(spec.low, -math.inf)]
    if math.isfinite(most):
        wrong += [most + 1, *([most, float(most)] if spec.open else [])]
        wrong += [] if spec.at_most else [math.nextafter(most, math.inf)]
    return wrong


def random_call(entry: Theorem, dice: np.random.Generator) -> dict[str, Any]:
    """One call with all inputs somewhere in their ranges, the corners not left out."""
    call: dict[str, Any] = {}
    for name in sorted(entry.required, key=lambda name: entry.inputs[name].at_most is not None):
        call[name] = random_value(entry.inputs[name], limit(entry, name, call), dice)
    # Above one half the exact tails return the rate itself, which is true and not tight.
    return {**call, "failure": call["failure"] / 2.5} if "failure" in call else call


def random_value(spec: Input, most: float, dice: np.random.Generator) -> float | int:
    corners = [] if spec.open else [end for end in (spec.low, most) if math.isfinite(end)]
    if corners and dice.random() < 0.15:
        value = float(dice.choice(corners))
    elif math.isfinite(most) and dice.random() < 0.5:
        low = max(spec.low, 0.0)
        value = low + (most - low) * float(dice.uniform(0.001, 0.999))
    elif math.isfinite(most):
        value = spec.low + (most - spec.low) * 10.0 ** float(dice.uniform(-8, -0.01))
    else:
        value = max(spec.low, 0.0) + 10.0 ** float(dice.uniform(-2, 3))
        value *= -1.0 if spec.low < 0 and dice.random() < 0.5 else 1.0
    return min(int(min(most, MOST)), round(value)) if spec.whole else value


def named(refusal: BadInput, name: str) -> bool:
    return re.search(rf"\b{name}\b", str(refusal)) is not None


@pytest.mark.parametrize("entry", THEOREMS.values(), ids=lambda entry: entry.name)
def test_the_entry_describes_its_function(entry: Theorem) -> None:
    assert entry.function is getattr(bounds, entry.name)
    assert set(entry.required) <= set(entry.inputs), "describe every input by keyword"
    assert entry.source and entry.about and entry.statement
    assert ">>>" in (entry.function.__doc__ or ""), "a doctest with a number"
    assert {*entry.fixed_before, *entry.free} <= set(entry.parameters)
    value = entry.function(**valid(entry))
    assert type(value) is float
    assert (-1.0 if entry.about == ("difference of two",) else 0.0) <= value < 1.0
    for parameter in entry.parameters.values():
        assert parameter.kind is parameter.KEYWORD_ONLY or parameter.name == "losses"


@pytest.mark.parametrize("name", APART)
def test_what_stands_apart_has_tests_of_its_own(name: str) -> None:
    texts = (path.read_text("utf-8") for path in TESTS_OF_BOUNDS.glob("test_*.py"))
    assert any(re.search(rf"\b(bounds|module)\.{name}\(|\"{name}\"", text) for text in texts)


def test_every_public_bound_of_these_modules_is_in_the_table() -> None:
    """Forgetting the entry of a new bound is a failure, not a silence."""
    helpers = {
        "best_temperature",
        "best_trade_off",
        "balanced_tilt",
        "constant_margin",
        "sign_test",
        "allowed_errors",
        "chance_to_promise",
        "examples_needed",
    }
    homes = {entry.function.__module__ for entry in THEOREMS.values()}
    public = {
        name
        for name in bounds.__all__
        if inspect.isfunction(getattr(bounds, name)) and getattr(bounds, name).__module__ in homes
    }
    assert public - helpers == set(THEOREMS)


@pytest.mark.slow_if("compression", "sequence_upper", "sequence_lower")
@pytest.mark.parametrize("name", PLAIN)
def test_it_is_its_oracle_rounded_outward(name: str) -> None:
    entry, dice = THEOREMS[name], np.random.default_rng(list(name.encode()))
    oracle, never_wrong = getattr(oracles, name), assert_lower if entry.lower else assert_upper
    has_grid = "grid" in entry.parameters
    flags = [n for n, p in entry.parameters.items() if isinstance(p.default, bool)]
    for _ in range(RANDOM_CALLS):
        call = random_call(entry, dice)
        if has_grid:
            call["grid"] = tuple(sorted(dice.uniform(0.05, 0.95, 3)))
        for flag in flags:
            call[flag] = bool(dice.integers(2))
        never_wrong(entry.function(**call), min(oracle(**call), oracles.mpf(1)))


@pytest.mark.parametrize(("entry", "name"), NUMBERS)
def test_it_moves_the_way_its_entry_says(entry: Theorem, name: str) -> None:
    spec, dice = entry.inputs[name], np.random.default_rng(7)
    push = -spec.push if name == "failure" and entry.lower else spec.push
    if push == 0 or entry.name in APART:
        return
    moved = 0
    for _ in range(RANDOM_CALLS):
        call = random_call(entry, dice) if dice.random() < 0.5 else valid(entry)
        other = {**call, name: random_value(spec, limit(entry, name, call), dice)}
        if any(other[n] > limit(entry, n, other) for n in other):
            continue
        less, more = sorted((call, other), key=lambda given: given[name])
        change = entry.function(**more) - entry.function(**less)
        assert change * push >= -1e-9, (less, more)
        moved += change != 0
    assert moved, "it does not depend on this input at all"


@pytest.mark.parametrize(("entry", "name"), NUMBERS)
def test_wrong_values_are_refused_by_name(entry: Theorem, name: str) -> None:
    for wrong in wrong_values(entry, name):
        with pytest.raises(BadInput) as caught:
            entry.function(**{**valid(entry), name: wrong})
        assert named(caught.value, name), f"{wrong!r}: {caught.value}"
        assert str(wrong) in str(caught.value), f"{wrong!r} is not shown in: {caught.value}"
    call = valid(entry)
    del call[name]
    with pytest.raises(TypeError, match=name):
        entry.function(**call)


@pytest.mark.parametrize(("entry", "name"), NUMBERS)
def test_infinity_is_refused_or_promises_nothing(entry: Theorem, name: str) -> None:
    if entry.inputs[name].whole or math.isfinite(limit(entry, name, valid(entry))):
        return
    try:
        value = entry.function(**{**valid(entry), name: math.inf})
    except BadInput as refusal:
        assert named(refusal, name)
    else:
        assert value == 1.0


@pytest.mark.parametrize("name", PLAIN)
def test_numpy_numbers_are_numbers(name: str) -> None:
    call = valid(THEOREMS[name])
    as_numpy = {k: np.int64(v) if isinstance(v, int) else np.float64(v) for k, v in call.items()}
    value = THEOREMS[name].function(**as_numpy)
    assert type(value) is float
    assert value == THEOREMS[name].function(**call)


@pytest.mark.parametrize("entry", THEOREMS.values(), ids=lambda entry: entry.name)
@pytest.mark.parametrize("wrong", ["false", "no", 0, 1, None], ids=repr)
def test_flags_are_true_or_false(entry: Theorem, wrong: object) -> None:
    for name, parameter in entry.parameters.items():
        if isinstance(parameter.default, bool):
            with pytest.raises(BadInput, match=name):
                entry.function(**valid(entry), **{name: wrong})


@pytest.mark.parametrize("name", [n for n in PLAIN if "failure" in THEOREMS[n].required])
@pytest.mark.parametrize("failure", [5e-324, 1e-300, math.nextafter(1.0, 0.0)])
def test_every_failure_between_zero_and_one_has_an_answer(name: str, failure: float) -> None:
    try:
        value = THEOREMS[name].function(**{**valid(THEOREMS[name]), "failure": failure})
    except BadInput as refusal:
        # The smallest float cannot be shared out over a grid; nothing else may be refused.
        assert failure == 5e-324
        assert named(refusal, "failure")
    else:
        assert 0.0 <= value <= 1.0


@pytest.mark.parametrize("power", [15, 18, 30, 400])
@pytest.mark.parametrize("name", PLAIN)
def test_absurd_sizes_are_answered_or_refused(name: str, power: int) -> None:
    """A number or a sentence, but no overflow, no endless loop and no gigabytes."""
    entry = THEOREMS[name]
    for size in {"examples", "trials"} & set(entry.required):
        try:
            value = entry.function(**{**valid(entry), size: 10**power})
        except BadInput as refusal:
            assert named(refusal, size)
        else:
            assert 0.0 <= value <= 1.0


@pytest.mark.slow_if("disintegrated")
@pytest.mark.parametrize("name", PLAIN)
def test_it_is_true_in_a_world_with_known_risks(name: str) -> None:
    false = false_claims(THEOREMS[name])
    assert false.shape == (FEW_WORLDS,)
    assert_covered(false, FAILURE)


def test_planted_mistakes_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that forgets its divergence: loose nowhere, and false too often."""

    def seeger(*, empirical_risk: float, kl_nats: float, examples: int, failure: float) -> float:
        return bounds.seeger(
            empirical_risk=empirical_risk, kl_nats=0.0, examples=examples, failure=failure
        )

    planted = replace(THEOREMS["seeger"], function=seeger)
    monkeypatch.setitem(THEOREMS, "seeger", planted)
    with pytest.raises(AssertionError, match="claims were false"):
        test_it_is_true_in_a_world_with_known_risks("seeger")
    with pytest.raises(AssertionError, match="below the true bound"):
        test_it_is_its_oracle_rounded_outward("seeger")
    with pytest.raises(AssertionError, match="does not depend"):
        test_it_moves_the_way_its_entry_says(planted, "kl_nats")
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_wrong_values_are_refused_by_name(planted, "kl_nats")
