"""Text for terminals: numbers that stay bounds when they are shortened, names that stay text."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

#: Below this risk two decimals of a percentage say too little: three digits are shown instead.
_SMALL_PERCENT = Decimal("0.1")


def percent_up(value: float) -> str:
    """A probability in percent, never smaller than ``value``: for upper bounds.

    >>> percent_up(0.13432)
    '13.44 %'
    >>> percent_up(0.000234567)
    '0.0235 %'
    """
    return _percent(value, ROUND_CEILING)


def percent_down(value: float) -> str:
    """A probability in percent, never larger than ``value``: for lower bounds.

    >>> percent_down(0.00849)
    '0.84 %'
    """
    return _percent(value, ROUND_FLOOR)


def _percent(value: float, rounding: str) -> str:
    # A Decimal made from a float is that float exactly, and moving the point loses nothing here.
    exact = Decimal(value).scaleb(2)
    places = Decimal("0.01")
    if 0 < exact < _SMALL_PERCENT:
        places = Decimal(1).scaleb(exact.adjusted() - 2)
    rounded = exact.quantize(places, rounding=rounding)
    # Far below one in a million a row of zeros is harder to read than an exponent.
    return f"{rounded:f} %" if exact.adjusted() >= -6 or exact == 0 else f"{rounded:.2e} %"


def printable(text: str) -> str:
    r"""``text`` on one line and without control characters, which could rewrite the screen.

    >>> printable("mnist\x1b[2J\nVALID")
    'mnist?[2J VALID'
    """
    return "".join(
        character if character.isprintable() else " " if character.isspace() else "?"
        for character in text
    )
