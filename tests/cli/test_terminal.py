"""Printed numbers: shortened outward, whatever the float."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.report import wording
from nonvacuous.report.wording import printable

percent_up, percent_down = (
    partial(function, digits=4) for function in (wording.percent_up, wording.percent_down)
)

probability = st.floats(0.0, 1.0)


def number(text: str) -> Decimal:
    return Decimal(text.removesuffix("%")) / 100


@given(probability)
def test_printed_bounds_stay_bounds_and_stay_close(value):
    above, below = number(percent_up(value)), number(percent_down(value))
    assert below <= Decimal(value) <= above
    if value >= 0.001:
        assert above - below <= Decimal("0.0001")
    elif value > 0:
        assert above - below <= Decimal(value) / 90


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (0.13432, "13.44%", "13.43%"),
        (0.0, "0%", "0%"),
        (1.0, "100%", "100%"),
        (0.5, "50.00%", "50.00%"),
        (0.1, "10.01%", "10.00%"),  # the float 0.1 is larger than one tenth
        (0.99999, "99.9991%", "99.99%"),  # what is less than everything is not shown as it
        (0.00012345, "0.01235%", "0.01234%"),
        (1e-12, "1.000e-10%", "9.999e-11%"),
    ],
)
def test_examples(value, up, down):
    assert percent_up(value) == up
    assert percent_down(value) == down


@given(st.text())
def test_printable_text_is_one_harmless_line(text):
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert all(character.isprintable() for character in shown)
