"""One table of valid calls; every bound in it inherits the whole suite.

A new bound adds one row to ``TABLE``: a valid call and the kind of each argument. The suite then
tries every wrong value of that kind in its place.
"""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import numpy as np
import pytest

from nonvacuous import bounds
from nonvacuous.errors import BadInput

NOT_NUMBERS = ["0.1", "3", None, True, False, np.True_, [0.1], 0.5 + 0.5j]
NOT_FINITE = [math.nan, math.inf, -math.inf, np.float64("nan")]
NOT_WHOLE = [2.5, np.float64(2.5), *NOT_FINITE, *NOT_NUMBERS]

# What is wrong for each kind of argument.
WRONG: dict[str, list[Any]] = {
    "in [0, 1]": [-0.1, -5e-324, 1.1, math.nextafter(1.0, 2.0), 2, *NOT_FINITE, *NOT_NUMBERS],
    "nats": [-0.5, -5e-324, -math.inf, math.nan, *NOT_NUMBERS],
    "signed nats": [math.nan, *NOT_NUMBERS],
    "at least 1": [0, -3, np.int64(0), *NOT_WHOLE],
    "count": [-1, 10_001, np.int64(-1), *NOT_WHOLE],
    "total": [-0.1, 10_000.5, *NOT_FINITE, *NOT_NUMBERS],
    "failure": [0, 0.0, 1, 1.0, -0.05, 1.5, *NOT_FINITE, *NOT_NUMBERS],
    "in (0, 2)": [0.0, 2.0, -0.1, 2.5, *NOT_FINITE, *NOT_NUMBERS],
    "positive": [0.0, -1.0, *NOT_FINITE, *NOT_NUMBERS],
    "above 1": [1.0, 1, 0.5, -2.0, math.nan, -math.inf, *NOT_NUMBERS],
}
FOUR = {
    "empirical_risk": (0.1, "in [0, 1]"),
    "kl_nats": (10.0, "nats"),
    "examples": (10_000, "at least 1"),
    "failure": (0.05, "failure"),
}
THREE = {name: FOUR[name] for name in ("kl_nats", "examples", "failure")}
TABLE: dict[str, dict[str, tuple[Any, str]]] = {
    "maurer_moment": {"examples": (10_000, "at least 1")},
    "seeger": FOUR,
    "mcallester": FOUR,
    "quadratic": FOUR,
    "best_trade_off": FOUR,
    "thiemann": {**FOUR, "trade_off": (0.5, "in (0, 2)")},
    "thiemann_union": FOUR,
    "catoni": {**FOUR, "temperature": (0.5, "positive")},
    "catoni_union": FOUR,
    "split_kl": {"levels": ((0.0, 0.5, 1.0), ""), "tail_risks": ((0.4, 0.1), ""), **THREE},
    "empirical_bernstein": {**FOUR, "second_moment": (0.05, "in [0, 1]")},
    "disintegrated": {
        "empirical_risk": (0.1, "in [0, 1]"),
        "log_density_ratio": (-1.0, "signed nats"),
        "examples": (10_000, "at least 1"),
        "failure": (0.05, "failure"),
    },
    "disintegrated_renyi": {
        "empirical_risk": (0.1, "in [0, 1]"),
        "renyi_nats": (10.0, "nats"),
        "order": (2.0, "above 1"),
        "examples": (10_000, "at least 1"),
        "failure": (0.05, "failure"),
    },
    "holdout": {
        "errors": (100, "count"),
        "examples": (10_000, "at least 1"),
        "failure": (0.05, "failure"),
    },
    "holdout_lower": {
        "errors": (100, "count"),
        "examples": (10_000, "at least 1"),
        "failure": (0.05, "failure"),
    },
    "progressive": {
        "errors": (100, "count"),
        "trials": (10_000, "at least 1"),
        "tilt": (0.3, "positive"),
        "failure": (0.05, "failure"),
    },
    "gate_failure": {
        "errors": (100, "count"),
        "trials": (10_000, "at least 1"),
        "threshold": (0.02, "in [0, 1]"),
    },
    "compression": {
        "kept": (100, "count"),
        "examples": (10_000, "at least 1"),
        "failure": (0.05, "failure"),
    },
    "sampling": {
        "errors": (100, "count"),
        "trials": (10_000, "at least 1"),
        "failure": (0.05, "failure"),
    },
    "sampling_bounded": {
        "total": (100.5, "total"),
        "trials": (10_000, "at least 1"),
        "failure": (0.05, "failure"),
    },
}
# Not bounds of this kind: they have tests of their own.
ELSEWHERE = {"ConfidenceBudget", "Spend", "binary_kl", "kl_inverse_upper", "kl_inverse_lower"}

WRONG_CALLS = [
    pytest.param(name, argument, wrong, id=f"{name}-{argument}={wrong!r}")
    for name, arguments in TABLE.items()
    for argument, (_, kind) in arguments.items()
    if kind
    for wrong in WRONG[kind]
]


def valid(name: str) -> dict[str, Any]:
    return {argument: value for argument, (value, _) in TABLE[name].items()}


def expect_refusal(name: str, argument: str, call: dict[str, Any], shown: object) -> None:
    with pytest.raises(BadInput) as caught:
        getattr(bounds, name)(**call)
    message = str(caught.value)
    assert re.search(rf"\b{argument}\b", message), f"{argument} is not named in: {message}"
    assert str(shown) in message, f"{shown} is not shown in: {message}"


def test_the_table_covers_every_public_function_of_its_modules() -> None:
    """Forgetting the row of a new bound is a failure, not a silence."""
    covered = {inspect.getmodule(getattr(bounds, name)).__name__ for name in TABLE}
    public = {
        name
        for name in bounds.__all__
        if inspect.isfunction(getattr(bounds, name))
        and inspect.getmodule(getattr(bounds, name)).__name__ in covered
    }
    assert public - ELSEWHERE == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_the_valid_call_is_valid(name: str) -> None:
    value = getattr(bounds, name)(**valid(name))
    assert type(value) is float
    assert value > 0.0
    if name not in ("maurer_moment", "best_trade_off"):
        assert value <= 1.0


@pytest.mark.parametrize(("name", "argument", "wrong"), WRONG_CALLS)
def test_wrong_values_are_refused_by_name(name: str, argument: str, wrong: object) -> None:
    expect_refusal(name, argument, {**valid(name), argument: wrong}, wrong)


@pytest.mark.parametrize("name", [name for name in TABLE if name != "maurer_moment"])
def test_arguments_are_keyword_only_and_required(name: str) -> None:
    parameters = inspect.signature(getattr(bounds, name)).parameters.values()
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
    for argument in TABLE[name]:
        call = valid(name)
        del call[argument]
        with pytest.raises(TypeError, match=argument):
            getattr(bounds, name)(**call)


@pytest.mark.parametrize("name", TABLE)
def test_numpy_numbers_are_numbers(name: str) -> None:
    def as_numpy(value: Any) -> Any:
        if isinstance(value, tuple):
            return np.array(value)
        return np.int64(value) if isinstance(value, int) else np.float64(value)

    function = getattr(bounds, name)
    value = function(**{key: as_numpy(entry) for key, entry in valid(name).items()})
    assert type(value) is float
    assert value == function(**valid(name))


@pytest.mark.parametrize("kind", [np.int32, np.uint64, np.uint8])
def test_every_width_of_whole_number_is_accepted(kind: type) -> None:
    value = bounds.holdout(errors=kind(3), examples=kind(100), failure=0.05)
    assert value == bounds.holdout(errors=3, examples=100, failure=0.05)


@pytest.mark.parametrize("name", [name for name in TABLE if "kl_nats" in TABLE[name]])
def test_an_infinite_divergence_promises_nothing(name: str) -> None:
    """KL = inf is what a posterior outside the prior's support has: refused, or vacuous."""
    try:
        value = getattr(bounds, name)(**{**valid(name), "kl_nats": math.inf})
    except BadInput as refusal:
        assert "kl_nats" in str(refusal)
    else:
        assert name != "best_trade_off" and value == 1.0


def test_other_infinities_promise_nothing() -> None:
    for name, argument in (
        ("disintegrated", "log_density_ratio"),
        ("disintegrated_renyi", "renyi_nats"),
        ("disintegrated_renyi", "order"),
    ):
        try:
            value = getattr(bounds, name)(**{**valid(name), argument: math.inf})
        except BadInput as refusal:
            assert argument in str(refusal)
        else:
            # The order may go to infinity: its price (2a-1)/(a-1) goes to 2.
            reference = getattr(bounds, name)(**{**valid(name), argument: 1e12})
            assert value >= reference * (1 - 1e-9)


@pytest.mark.parametrize("errors", [1, 5])
def test_more_errors_than_examples(errors: int) -> None:
    for name in ("holdout", "holdout_lower", "sampling"):
        size = "trials" if name == "sampling" else "examples"
        call = {"errors": errors + 1, size: errors, "failure": 0.05}
        expect_refusal(name, "errors", call, errors + 1)
    call = {"total": errors + 0.5, "trials": errors, "failure": 0.05}
    expect_refusal("sampling_bounded", "total", call, errors + 0.5)


def test_both_forms_of_sampling_check_alike() -> None:
    for wrong in WRONG["count"]:
        call = {**valid("sampling"), "errors": wrong, "identical": False}
        expect_refusal("sampling", "errors", call, wrong)


@pytest.mark.parametrize(
    ("name", "flag"),
    [("seeger", "exact_moment"), ("disintegrated", "exact_moment"), ("sampling", "identical")],
)
@pytest.mark.parametrize("wrong", ["false", "no", 0, 1, None], ids=repr)
def test_flags_are_true_or_false(name: str, flag: str, wrong: object) -> None:
    """identical="false" would be true, and its claim false."""
    expect_refusal(name, flag, {**valid(name), flag: wrong}, wrong)


GRIDS = {
    "thiemann_union": [0.0, 2.0, -1.0, 2.5, math.nan, math.inf, "0.5", True, None],
    "catoni_union": [0.0, -1.0, math.nan, math.inf, "0.5", True, None],
    "empirical_bernstein": [0.0, 1.0, -0.5, 1.5, math.nan, math.inf, "0.5", True, None],
}


@pytest.mark.parametrize("name", GRIDS)
def test_bad_grids(name: str) -> None:
    for wrong in GRIDS[name]:
        expect_refusal(name, "grid", {**valid(name), "grid": (0.25, wrong, 0.5)}, wrong)
    expect_refusal(name, "grid", {**valid(name), "grid": ()}, "")
    for wrong in (0.5, "0.5", 3):
        expect_refusal(name, "grid", {**valid(name), "grid": wrong}, wrong)


@pytest.mark.parametrize("name", GRIDS)
def test_grids_may_be_any_sequence(name: str) -> None:
    values = {
        getattr(bounds, name)(**valid(name), grid=kind([0.25, 0.5]))
        for kind in (tuple, list, np.array)
    }
    assert len(values) == 1


@pytest.mark.parametrize(
    ("levels", "shown"),
    [
        ((0.0, 0.5, 0.5), 0.5),
        ((0.0, 1.0, 0.5), 1.0),
        ((0.0, 0.5, 1.5), 1.5),
        ((-0.5, 0.5, 1.0), -0.5),
        ((0.0, math.nan, 1.0), math.nan),
        ((0.0, "0.5", 1.0), "0.5"),
        ((0.0, True, 1.0), True),
    ],
    ids=str,
)
def test_bad_levels(levels: tuple, shown: object) -> None:
    expect_refusal("split_kl", "levels", {**valid("split_kl"), "levels": levels}, shown)


def test_too_few_levels() -> None:
    for levels in ((), (0.5,)):
        with pytest.raises(BadInput, match="levels"):
            bounds.split_kl(**{**valid("split_kl"), "levels": levels, "tail_risks": ()})


@pytest.mark.parametrize(
    ("tails", "shown"),
    [
        ((0.4, -0.1), -0.1),
        ((1.5, 0.1), 1.5),
        ((0.4, math.nan), math.nan),
        ((0.4, "0.1"), "0.1"),
        ((0.4, True), True),
        ((0.4, None), None),
        ((0.4,), ""),
        ((0.4, 0.1, 0.05), ""),
        ((), ""),
    ],
    ids=str,
)
def test_bad_tail_risks(tails: tuple, shown: object) -> None:
    expect_refusal("split_kl", "tail_risks", {**valid("split_kl"), "tail_risks": tails}, shown)


# --------------------------------------------------------------------------- legal extremes


@pytest.mark.parametrize("name", [name for name in TABLE if "failure" in TABLE[name]])
@pytest.mark.parametrize("failure", [5e-324, 1e-300, math.nextafter(1.0, 0.0)])
def test_every_failure_between_zero_and_one_has_an_answer(name: str, failure: float) -> None:
    try:
        value = getattr(bounds, name)(**{**valid(name), "failure": failure})
    except BadInput as refusal:
        # The smallest float cannot be shared out over a grid; nothing else may be refused.
        assert failure == 5e-324
        assert "failure" in str(refusal)
    else:
        assert type(value) is float
        assert 0.0 <= value <= (2.0 if name == "best_trade_off" else 1.0)


@pytest.mark.parametrize("rate", [5e-324, 1e-308, 1e-300, 1e300, 1.7e308])
def test_every_positive_temperature_has_an_answer(rate: float) -> None:
    # Towards 0 the bound tends to infinity, hence 1; towards infinity to 1 as well.
    assert bounds.catoni(**{**valid("catoni"), "temperature": rate}) == 1.0
    assert bounds.catoni_union(**valid("catoni_union"), grid=(rate,)) == 1.0


@pytest.mark.parametrize("rate", [5e-324, 1e-300, math.nextafter(2.0, 0.0)])
def test_every_trade_off_has_an_answer(rate: float) -> None:
    assert bounds.thiemann(**{**valid("thiemann"), "trade_off": rate}) == 1.0


@pytest.mark.parametrize("rate", [5e-324, 1e-300, math.nextafter(1.0, 0.0)])
def test_every_rate_has_an_answer(rate: float) -> None:
    value = bounds.empirical_bernstein(**valid("empirical_bernstein"), grid=(rate,))
    assert 0.1 <= value <= 1.0


@pytest.mark.parametrize("power", [15, 18, 30, 400])
@pytest.mark.parametrize(
    "name", [name for name in TABLE if name not in ("maurer_moment", "best_trade_off")]
)
def test_absurd_sizes_are_answered_or_refused(name: str, power: int) -> None:
    """A number or a sentence, but no overflow, no endless loop and no gigabytes."""
    (argument,) = TABLE[name].keys() & {"examples", "trials"}
    call = {**valid(name), argument: 10**power}
    try:
        value = getattr(bounds, name)(**call)
    except BadInput as refusal:
        assert argument in str(refusal)
    else:
        assert 0.0 <= value <= 1.0
