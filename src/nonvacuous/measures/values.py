"""What a measure gives: a number, also one beyond the range of floats, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: exp of more than this leaves the range of float64.
_LARGEST = math.log(1.7e308)


@dataclass(frozen=True)
class Value:
    """A number together with its natural logarithm.

    number   infinite where the value leaves the range of float64; the logarithm never does
    log      None where the number is negative; minus infinity for 0
    """

    number: float
    log: float | None

    @classmethod
    def of(cls, number: float) -> Value:
        if math.isnan(number) or math.isinf(number):
            raise ValueError(f"a measure must not be {number!r}; return Undefined with a reason")
        log = None if number < 0 else (math.log(number) if number > 0 else -math.inf)
        return cls(float(number), log)

    @classmethod
    def of_log(cls, log: float) -> Value:
        """A positive number given by its natural logarithm, however large.

        >>> Value.of_log(2000.0).number, Value.of_log(2000.0).decades
        (inf, 868.5889638065036)
        """
        if math.isnan(log) or log == math.inf:
            raise ValueError(f"the logarithm of a measure must not be {log!r}")
        return cls(math.inf if log > _LARGEST else math.exp(log), log)

    @property
    def decades(self) -> float | None:
        """The logarithm to base ten; None for a negative number."""
        return None if self.log is None else self.log / math.log(10.0)

    def __str__(self) -> str:
        """Four digits for a person.

        >>> print(Value.of(1234567.0), Value.of(0.25), Value.of_log(2000.0), Value.of(12.0))
        1.235e+06 0.25 3.881e+868 12
        """
        if math.isfinite(self.number):
            return f"{self.number:.4g}"
        assert self.log is not None
        exponent = math.floor(self.log / math.log(10.0))
        return f"{math.exp(self.log - exponent * math.log(10.0)):.3f}e+{exponent}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which knows no infinity."""
        finite = math.isfinite(self.number)
        decades = self.decades
        known = decades is not None and math.isfinite(decades)
        return {"number": self.number if finite else None, "log10": decades if known else None}


@dataclass(frozen=True)
class Undefined:
    """Why a measure says nothing about this network."""

    reason: str

    def __str__(self) -> str:
        return "undefined"

    def to_dict(self) -> dict[str, Any]:
        return {"undefined": self.reason}


Result = Value | Undefined


def relative_difference(one: Result, other: Result) -> float:
    """By which part of themselves two results differ; infinite where only one of them exists.

    >>> relative_difference(Value.of(2.0), Value.of(2.002)) < 1e-3
    True
    >>> relative_difference(Value.of_log(5000.0), Value.of_log(5000.0 + 1e-6)) < 2e-6
    True
    """
    if isinstance(one, Undefined) or isinstance(other, Undefined):
        return 0.0 if isinstance(one, Undefined) and isinstance(other, Undefined) else math.inf
    if one.number == other.number and math.isfinite(one.number):
        return 0.0
    if one.log is not None and other.log is not None:
        if math.isinf(one.log) or math.isinf(other.log):
            return 0.0 if one.log == other.log else math.inf
        return -math.expm1(-abs(one.log - other.log))
    return abs(one.number - other.number) / max(abs(one.number), abs(other.number))


def log_sum(logs: Iterable[float]) -> float:
    """ln of a sum of exponentials; minus infinity for no summand.

    >>> round(log_sum([1000.0, 1000.0]) - 1000.0, 12) == round(math.log(2), 12)
    True
    """
    listed = [log for log in logs if log != -math.inf]
    if not listed:
        return -math.inf
    largest = max(listed)
    return largest + math.log(math.fsum(math.exp(log - largest) for log in listed))
