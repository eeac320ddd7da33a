"""Attack: a promise that is printed smaller than it is."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.bounds.rounding import shown_down, shown_up
from nonvacuous.cli.rescale import _ROWS

SOURCE = Path(__file__).parents[2] / "src"
#: A name that holds a bound, formatted to the nearest digit. Numbers that others published are
#: quoted as they stand.
NEAREST = re.compile(
    r"\{(?![^{}]*published)[\w.]*(risk_upper|\bbound|rescaled|loss_upper):\.\d[fg]\}"
)


@given(st.floats(0.0, 10.0), st.integers(1, 6))
def test_what_is_shown_stays_true(value: float, digits: int) -> None:
    assert Decimal(shown_down(value, digits)) <= Decimal(value) <= Decimal(shown_up(value, digits))


def test_no_bound_is_formatted_to_the_nearest_digit() -> None:
    places = [
        f"{path.name}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if NEAREST.search(line) and "shown." not in line  # `shown`: what a paper printed
    ]
    assert not places


@pytest.mark.parametrize("row", ["bound_naive", "bound_smallest"])
def test_the_rescale_command_rounds_up(row: str) -> None:
    written = next(form for key, _, form in _ROWS if key == row)
    assert written(0.57504) == "0.5751"
