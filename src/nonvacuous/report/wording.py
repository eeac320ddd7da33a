"""Numbers into words, names into text. A promise is rounded up: what is read stays true."""

from __future__ import annotations

import math
import unicodedata
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any

#: How much the rounding up may add before a finer denominator is chosen.
_SLACK = Fraction(11, 10)
_FINEST = 9


def frequency(risk: float) -> str:
    """The risk as a count in a power of ten, in words.

    >>> frequency(0.187), frequency(0.0118), frequency(0.5)
    ('fewer than 19 in 100', 'fewer than 12 in 1,000', 'at most 50 in 100')
    """
    count, out_of = counted(risk)
    return (
        f"{'fewer than' if count > Fraction(risk) * out_of else 'at most'} {count:,} in {out_of:,}"
    )


def counted(risk: float) -> tuple[int, int]:
    """The risk as a count in a power of ten, rounded up by at most a tenth."""
    exact = Fraction(risk)
    for digits in range(2, _FINEST + 1):
        out_of = 10**digits
        count = math.ceil(exact * out_of)
        if count <= exact * out_of * _SLACK and (count < out_of or exact == 1):
            break
    return count, out_of


def percent(value: float) -> str:
    """A measured rate, to the nearest digit shown.

    >>> percent(0.0135), percent(0.9), percent(0.0)
    ('1.35%', '90.0%', '0%')
    """
    return _percent(value, ROUND_HALF_EVEN)


def round_percent(value: float) -> str:
    """A rate that is known exactly, without zeros at its end.

    >>> round_percent(0.9), round_percent(2 / 3)
    ('90%', '66.7%')
    """
    return f"{100 * value:.3g}%"


def declared_percent(value: float) -> str:
    """A threshold as it was written down, to every digit.

    >>> declared_percent(0.05), declared_percent(0.0125)
    ('5%', '1.25%')
    """
    return f"{(Decimal(repr(value)) * 100).normalize():f}%"


def percent_up(value: float, digits: int = 3) -> str:
    """A bound, rounded up.

    >>> percent_up(0.0157501), percent_up(1.0), percent_up(0.18701), percent_up(0.18701, digits=4)
    ('1.58%', '100%', '18.8%', '18.71%')
    """
    return _percent(value, ROUND_CEILING, digits)


def percent_down(value: float, digits: int = 3) -> str:
    """A lower bound, rounded down.

    >>> percent_down(0.0315799)
    '3.15%'
    """
    return _percent(value, ROUND_FLOOR, digits)


def _percent(value: float, rounding: str, digits: int = 3) -> str:
    # A Decimal made from a float is that float exactly, and moving the point loses nothing.
    exact = Decimal(value).scaleb(2)
    if value in (0.0, 1.0):
        return f"{exact:.0f}%"
    # So many digits that count, and one decimal at least.
    decimals = max(1, digits - 1 - exact.adjusted())
    shown = exact.quantize(Decimal(1).scaleb(-decimals), rounding=rounding)
    while shown >= 100 and decimals < 12:
        decimals += 1
        shown = exact.quantize(Decimal(1).scaleb(-decimals), rounding=rounding)
    # Far below one in a million a row of zeros is harder to read than an exponent.
    return f"{shown:f}%" if exact.adjusted() >= -6 else f"{shown:.{digits - 1}e}%"


def confidence_percent(failure: float) -> str:
    """One minus the failure probability, never rounded up.

    >>> confidence_percent(0.05), confidence_percent(0.035), confidence_percent(1e-6)
    ('95%', '96.5%', '99.9999%')
    """
    exact = 100 - Decimal(repr(failure)) * 100
    shown = exact.quantize(Decimal("0.000001"), rounding=ROUND_FLOOR).normalize()
    return f"{shown:f}%"


def odds(failure: float) -> tuple[str, str]:
    """The failure probability as (samples, false claims among them on average).

    >>> odds(0.05), odds(0.035)
    (('20', 'one'), ('200', '7'))
    """
    exact = Fraction(repr(failure))
    if exact.denominator <= 10_000:
        count, out_of = exact.numerator, exact.denominator
    else:
        count, out_of = counted(failure)
    return f"{out_of:,}", "one" if count == 1 else f"{count:,}"


def finite(value: Any) -> float | None:
    """A number in somebody's JSON; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def whole(number: int) -> str:
    """A count with separators; one too long to read as a power of ten.

    >>> whole(60000), whole(40**30)
    ('60,000', 'about 10^48')
    """
    if number < 10**12:
        return f"{number:,}"
    return f"about 10^{math.log10(number):.0f}"


def nats(value: float) -> str:
    """
    >>> nats(812.43), nats(3.14159), nats(123456.7), nats(1.5e19)
    ('812.4', '3.14', '123,457', '1.5e+19')
    """
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def plural(number: int, noun: str) -> str:
    """
    >>> plural(1, "example"), plural(2000, "example")
    ('1 example', '2,000 examples')
    """
    return f"{whole(number)} {noun}{'' if number == 1 else 's'}"


def capital(text: str) -> str:
    """The text with its first letter in upper case, unless that letter is a symbol of its own.

    >>> capital("the split"), capital("a mean"), capital("n = 719")
    ('The split', 'A mean', 'n = 719')
    """
    is_word = text[1:2].isalpha() or text.startswith("a ")
    return text[:1].upper() + text[1:] if is_word else text


def clean(text: str) -> str:
    """Text from data, safe to show: on one line, without characters that steer the display.

    Control characters break files, and direction marks can make a name read as another one.

    >>> clean("conv\\n1") + "|" + clean("a\\u202eb")
    'conv 1|a\ufffdb'
    """
    return visible(" ".join(text.split()))


def visible(text: str) -> str:
    """Like :func:`clean`, but every space is kept: for paths."""
    steering = ("Cc", "Cf", "Cs", "Co", "Cn")
    return "".join("\ufffd" if unicodedata.category(c) in steering else c for c in text)


def printable(text: str) -> str:
    r"""``text`` on one line and without control characters, which could rewrite the screen.

    >>> printable("mnist\x1b[2J\nVALID")
    'mnist?[2J VALID'
    """
    return "".join(
        character if character.isprintable() else " " if character.isspace() else "?"
        for character in text
    )


def shortened(text: str, letters: int) -> str:
    """The text with its middle left out where it is too long: both ends tell names apart.

    >>> shortened("features.stage4.block2.convolution.weight", 20)
    'features.s…on.weight'
    """
    if len(text) <= letters:
        return text
    front = letters // 2
    return f"{text[:front]}…{text[front - letters + 1 :]}"
