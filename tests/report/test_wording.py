"""What is read must stay true: every promise is rounded up, every confidence down."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nonvacuous.report.wording import (
    capital,
    clean,
    confidence_percent,
    counted,
    frequency,
    nats,
    odds,
    percent,
    percent_up,
    plural,
    shortened,
    visible,
    whole,
)
from tests.report.samples import HOSTILE

RISKS = st.floats(0.0, 1.0, allow_subnormal=False)
FAILURES = st.floats(1e-9, 0.999)


@pytest.mark.parametrize(
    ("risk", "words"),
    [
        (0.0118, "fewer than 12 in 1,000"),
        (0.187, "fewer than 19 in 100"),
        (0.0158, "fewer than 16 in 1,000"),
        (0.0019, "fewer than 2 in 1,000"),
        (0.5, "at most 50 in 100"),
        (1.0, "at most 100 in 100"),
        (0.00003, "fewer than 31 in 1,000,000"),
        (0.9987, "fewer than 999 in 1,000"),
        (0.999_999_999_999, "fewer than 1,000,000,000 in 1,000,000,000"),
        (1e-12, "fewer than 1 in 1,000,000,000"),
        (0.0, "at most 0 in 100"),
    ],
)
def test_frequencies_are_read_as_people_would_say_them(risk: float, words: str) -> None:
    assert frequency(risk) == words


@given(RISKS)
@example(0.19)
@example(0.1 + 0.2)
@example(math.nextafter(1.0, 0.0))
@example(5e-324)
def test_a_frequency_is_never_below_the_risk(risk: float) -> None:
    count, out_of = counted(risk)
    promised = Fraction(count, out_of)
    assert promised >= Fraction(risk)
    assert frequency(risk).startswith("fewer than") == (promised > Fraction(risk))
    assert count <= out_of


@given(st.floats(1e-7, 1.0 - 1e-7))
def test_a_frequency_gives_away_at_most_a_tenth(risk: float) -> None:
    count, out_of = counted(risk)
    assert count / out_of <= risk * 1.1 + 1e-12
    assert count < out_of


@given(RISKS)
@example(0.99999)
@example(0.09999)
def test_a_bound_in_percent_is_never_below_the_bound(value: float) -> None:
    shown = Decimal(percent_up(value).removesuffix("%"))
    assert shown >= Decimal(value) * 100
    if 1e-9 < value < 1.0 - 1e-9:
        assert shown < 100
        assert shown <= Decimal(value) * 100 * Decimal("1.02")


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0158794, "1.59%"), (0.187, "18.7%"), (0.00003, "0.00300%"), (1.0, "100%"), (0.5, "50.0%")],
)
def test_percentages_show_three_digits(value: float, words: str) -> None:
    assert percent(value) == words


@given(FAILURES)
def test_a_confidence_is_never_above_what_was_paid_for(failure: float) -> None:
    shown = Decimal(confidence_percent(failure).removesuffix("%"))
    assert shown <= 100 - Decimal(repr(failure)) * 100


@pytest.mark.parametrize(
    ("failure", "samples", "false_claims"),
    [(0.05, "20", "one"), (0.01, "100", "one"), (0.035, "200", "7"), (0.001, "1,000", "one")],
)
def test_odds_are_told_in_small_numbers(failure: float, samples: str, false_claims: str) -> None:
    assert odds(failure) == (samples, false_claims)


@given(FAILURES)
def test_odds_are_never_too_good(failure: float) -> None:
    samples, false_claims = odds(failure)
    count = 1 if false_claims == "one" else int(false_claims.replace(",", ""))
    promised = Fraction(count, int(samples.replace(",", "")))
    assert promised >= Fraction(repr(failure))


def test_huge_counts_are_told_as_powers_of_ten() -> None:
    assert whole(40**3000) == "about 10^4806"
    assert plural(1, "error") == "1 error"
    assert plural(0, "error") == "0 errors"


def test_nats_keep_the_digits_that_matter() -> None:
    assert [nats(v) for v in (0.0, 0.00935, 61.7, -3.2, 92_140.0)] == [
        "0",
        "0.00935",
        "61.7",
        "-3.2",
        "92,140",
    ]


@given(st.text())
def test_cleaned_text_has_nothing_that_steers_a_display(text: str) -> None:
    for shown in (clean(text), visible(text)):
        assert all(ord(letter) >= 32 for letter in shown)
        assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\x7f")
    assert clean(clean(text)) == clean(text)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_readable(name: str) -> None:
    assert clean(name)
    assert "\n" not in clean(name) and "\x1b" not in clean(name)


@given(st.text(max_size=80), st.integers(4, 40))
def test_shortening_keeps_to_the_length(text: str, letters: int) -> None:
    short = shortened(text, letters)
    assert len(short) <= letters
    assert short == text or (short[0] == text[0] and short[-1] == text[-1])


def test_symbols_keep_their_case() -> None:
    assert capital("n = 719") == "n = 719"
    assert capital("the split") == "The split"
    assert capital("") == ""
