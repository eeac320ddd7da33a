"""Printed numbers: shortened outward, whatever the float."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.report.terminal import percent_down, percent_up, printable

probability = st.floats(0.0, 1.0)


def number(text: str) -> Decimal:
    assert text.endswith(" %")
    return Decimal(text[:-2]) / 100


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
        (0.13432, "13.44 %", "13.43 %"),
        (0.0, "0.00 %", "0.00 %"),
        (1.0, "100.00 %", "100.00 %"),
        (0.5, "50.00 %", "50.00 %"),
        (0.1, "10.01 %", "10.00 %"),  # the float 0.1 is larger than one tenth
        (0.99999, "100.00 %", "99.99 %"),
        (0.00012345, "0.0124 %", "0.0123 %"),
        (1e-12, "1.00e-10 %", "9.99e-11 %"),
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
