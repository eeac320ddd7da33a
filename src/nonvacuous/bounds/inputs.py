"""What goes into theorems: each number's name, its meaning, its range, and which way it pushes.

The conformance suite reads this: it tries what lies outside the range, and both sides of a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Input:
    """One number that a theorem is given.

    ``push`` is +1 where the bound grows with it, -1 where it shrinks, 0 where neither is said. The
    range is from ``low`` to ``high``, without these two if ``open``; ``at_most`` names another
    input that it must not exceed. What stands ``apart``, such as a sequence, has tests of its own.
    """

    meaning: str
    example: Any
    push: int = 0
    low: float = 0.0
    high: float = math.inf
    open: bool = False
    whole: bool = False
    at_most: str | None = None
    apart: bool = False


def _part(meaning: str, example: float, push: int = 1, **rest: Any) -> Input:
    return Input(meaning, example, push, high=1.0, **rest)


#: Inputs that many theorems share. One that only a single theorem has stands in its own entry.
INPUTS: Mapping[str, Input] = {
    "empirical_risk": _part("the error on the bound examples, or an upper end of it", 0.1),
    "second_moment": _part("the mean squared loss", 0.05, at_most="empirical_risk"),
    "kl_nats": Input("KL(posterior || prior)", 10.0, push=1),
    "examples": Input("independent examples", 10_000, push=-1, low=1, whole=True),
    "trials": Input("independent trials", 10_000, push=-1, low=1, whole=True),
    "errors": Input("errors among them", 100, push=1, whole=True, at_most="examples"),
    "failure": _part("probability that the claim is false", 0.05, push=-1, open=True),
}
