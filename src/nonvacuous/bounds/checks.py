"""Argument checks shared by every bound: a wrong number must never become a certificate."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from nonvacuous.bounds.rounding import up
from nonvacuous.errors import BadInput

#: Below this, quotients of failure probabilities leave the normal doubles.
SMALLEST_FAILURE = 1e-306
#: Counts beyond this are not exact as doubles.
LARGEST_COUNT = 2**53


def real(name: str, value: Any) -> float:
    """A finite number that is not a boolean."""
    if type(value) is float and -math.inf < value < math.inf:
        return value  # what nearly every call gives; the abstract classes below take longer
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        raise BadInput(f"{name} must be a number, not the boolean {value!r}.")
    if not isinstance(value, numbers.Real):
        raise BadInput(f"{name} must be a number, got {value!r} of type {type(value).__name__}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadInput(f"{name} must be finite, got {name} = {value!r}.")
    return number


def within(name: str, value: Any, low: float, high: float = math.inf, *, open: bool) -> float:
    """A number from ``low`` to ``high``, without these two if ``open``."""
    number = real(name, value)
    if low < number < high or (not open and low <= number <= high):
        return number
    if high < math.inf:
        ends = f"between {low:g} and {high:g}" if open else f"in [{low:g}, {high:.16g}]"
        range_of = f"lie strictly {ends}" if open else f"lie {ends}"
    elif low == 0.0:
        range_of = "be positive" if open else "not be negative"
    else:
        range_of = f"be {'greater than' if open else 'at least'} {low:g}"
    raise BadInput(f"{name} must {range_of}, got {name} = {value!r}.")


def unit_interval(name: str, value: Any) -> float:
    return within(name, value, 0.0, 1.0, open=False)


def failure_probability(value: Any, name: str = "failure") -> float:
    number = real(name, value)
    if not SMALLEST_FAILURE <= number < 1.0:
        raise BadInput(
            f"{name} must lie strictly between 0 and 1 (and be at least {SMALLEST_FAILURE:g}), got "
            f"{name} = {value!r}; it is the probability that the claim is false "
            "(confidence = 1 - failure)."
        )
    return number


def failure_of(confidence: Any) -> float:
    """One minus the confidence, as a decimal: 0.95 leaves 0.05, not 0.050000000000000044.

    >>> failure_of(0.95)
    0.05
    """
    number = real("confidence", confidence)
    if not 0.0 < number < 1.0:
        meant = f"; did you mean {number / 100:g}?" if 50.0 <= number < 100.0 else ";"
        raise BadInput(
            f"confidence must lie strictly between 0 and 1, got confidence = {confidence!r}{meant} "
            "0.95 means that at most one sample in 20 would yield a false claim."
        )
    return failure_probability(float(1 - Decimal(repr(number))))


def non_negative(name: str, value: Any) -> float:
    return within(name, value, 0.0, open=False)


def positive(name: str, value: Any) -> float:
    return within(name, value, 0.0, open=True)


def at_most(name: str, value: float, other: str, limit: float) -> None:
    """Of two numbers that were computed, one may exceed the other by a hair; no count may."""
    if value > (limit if isinstance(limit, int) else up(limit)):
        raise BadInput(
            f"{name} must not exceed {other}: got {name} = {value!r} and {other} = {limit!r}."
        )


def count(name: str, value: Any, *, minimum: int = 0) -> int:
    """An integer, given as an integer: a float that happens to be whole hides a mistake."""
    if type(value) is int and minimum <= value <= LARGEST_COUNT:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise BadInput(
            f"{name} must be an integer count, got {value!r} of type {type(value).__name__}."
        )
    number = int(value)
    if number < minimum:
        raise BadInput(f"{name} must be at least {minimum}, got {name} = {value!r}.")
    if number > LARGEST_COUNT:
        raise BadInput(f"{name} must be at most {LARGEST_COUNT}, got {name} = {value!r}.")
    return number


def counts(name: str, values: Any, *, minimum: int = 0) -> tuple[int, ...]:
    """A sequence of counts, one for each layer or class."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise BadInput(
            f"{name} must be a sequence of counts, one for each layer or class, got {values!r}."
        )
    return tuple(count(name, value, minimum=minimum) for value in values)


def errors_among(errors: Any, examples: Any) -> tuple[int, int]:
    """A pair (errors, examples) with 0 <= errors <= examples and examples >= 1."""
    wrong, total = count("errors", errors), count("examples", examples, minimum=1)
    at_most("errors", wrong, "examples", total)
    return wrong, total


def grid_of(name: str, values: Iterable[Any], *, below: float = math.inf) -> tuple[float, ...]:
    """A non-empty grid of distinct positive numbers, each smaller than ``below``."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise BadInput(f"{name} must be a sequence of numbers, got {values!r}.")
    grid = tuple(positive(name, value) for value in values)
    if not grid:
        raise BadInput(f"{name} must hold at least one value, got {name} = {values!r}.")
    if len(set(grid)) != len(grid):
        raise BadInput(f"{name} must hold distinct values, got {name} = {values!r}.")
    for value in grid:
        if value >= below:
            raise BadInput(f"{name} must hold values below {below:g}, got {value!r}.")
    return grid
