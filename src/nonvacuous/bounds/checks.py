"""Argument checks shared by every bound: a wrong number must never become a certificate."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

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
    number = float(value)
    if not math.isfinite(number):
        raise BadInput(f"{name} must be finite, got {name} = {value!r}.")
    return number


def unit_interval(name: str, value: Any) -> float:
    number = real(name, value)
    if not 0.0 <= number <= 1.0:
        raise BadInput(f"{name} must lie in [0, 1], got {name} = {value!r}.")
    return number


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
    number = real(name, value)
    if number < 0.0:
        raise BadInput(f"{name} must not be negative, got {name} = {value!r}.")
    return number


def positive(name: str, value: Any) -> float:
    number = real(name, value)
    if number <= 0.0:
        raise BadInput(f"{name} must be positive, got {name} = {value!r}.")
    return number


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
    """A sequence of counts, one per layer."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise BadInput(f"{name} must be a sequence of counts, one per layer, got {values!r}.")
    return tuple(count(name, value, minimum=minimum) for value in values)


def errors_among(
    errors: Any, total_name: str, total: Any, *, name: str = "errors"
) -> tuple[int, int]:
    """A pair (errors, total) with 0 <= errors <= total and total >= 1."""
    total_count = count(total_name, total, minimum=1)
    error_count = count(name, errors)
    if error_count > total_count:
        raise BadInput(
            f"{name} must not exceed {total_name}: "
            f"got {name} = {errors!r} and {total_name} = {total!r}."
        )
    return error_count, total_count


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
