"""Bad input that the conformance suite does not know of: grids, levels, and what is no theorem."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from nonvacuous import bounds
from nonvacuous.bounds.table import THEOREMS
from nonvacuous.errors import BadInput


def valid(name: str) -> dict[str, Any]:
    entry = THEOREMS[name]
    return {argument: entry.inputs[argument].example for argument in entry.required}


def expect_refusal(name: str, argument: str, call: dict[str, Any], shown: object) -> None:
    with pytest.raises(BadInput) as caught:
        getattr(bounds, name)(**call)
    message = str(caught.value)
    assert re.search(rf"\b{argument}\b", message), f"{argument} is not named in: {message}"
    assert str(shown) in message, f"{shown} is not shown in: {message}"


@pytest.mark.parametrize("kind", [np.int32, np.uint64, np.uint8])
def test_every_width_of_whole_number_is_accepted(kind: type) -> None:
    value = bounds.holdout(errors=kind(3), examples=kind(100), failure=0.05)
    assert value == bounds.holdout(errors=3, examples=100, failure=0.05)


@pytest.mark.parametrize("argument", ["empirical_risk", "kl_nats", "failure"])
def test_a_whole_number_beyond_the_floats_is_refused(argument: str) -> None:
    expect_refusal("seeger", argument, {**valid("seeger"), argument: 10**400}, "finite")


@pytest.mark.parametrize("errors", [1, 5])
def test_more_errors_than_examples(errors: int) -> None:
    for name in ("holdout", "holdout_lower", "sampling"):
        size = "trials" if name == "sampling" else "examples"
        call = {"errors": errors + 1, size: errors, "failure": 0.05}
        expect_refusal(name, "errors", call, errors + 1)
    call = {"total": errors + 0.5, "trials": errors, "failure": 0.05}
    expect_refusal("sampling_bounded", "total", call, errors + 0.5)


@pytest.mark.parametrize("wrong", [-1, 10_001, 2.5, True, None])
def test_both_forms_of_sampling_check_alike(wrong: object) -> None:
    call = {**valid("sampling"), "errors": wrong, "identical": False}
    expect_refusal("sampling", "errors", call, wrong)


@pytest.mark.parametrize("name", ["maurer_moment", "best_trade_off"])
@pytest.mark.parametrize("wrong", [0, -3, 2.5, math.nan, True, None], ids=repr)
def test_what_is_no_theorem_checks_its_sizes_too(name: str, wrong: object) -> None:
    call = {} if name == "maurer_moment" else valid("seeger")
    expect_refusal(name, "examples", {**call, "examples": wrong}, wrong)


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
