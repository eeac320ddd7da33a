"""How many examples are enough? Exact answers, before anybody looks at one."""

from __future__ import annotations

import math
from bisect import bisect

from nonvacuous.bounds.holdout import holdout
from nonvacuous.bounds.later import numpy as np
from nonvacuous.bounds.later import special
from nonvacuous.bounds.table import guarded
from nonvacuous.errors import BadInput

__all__ = ["allowed_errors", "chance_to_promise", "examples_needed"]

#: Beyond this many errors the answer is not searched for any more.
_MOST_ERRORS = 2_000_000


@guarded
def allowed_errors(*, examples: int, target: float, failure: float) -> int:
    """The most errors with which :func:`holdout` still promises ``target``; -1 if none will do.

    >>> allowed_errors(examples=694, target=0.05, failure=0.05)
    25
    """
    if target >= 1.0:
        return examples
    # The k-th tail is at most failure up to the answer and above it beyond.
    most = bisect(range(examples), failure, key=lambda k: special.bdtr(k, examples, target)) - 1
    while most >= 0 and holdout(errors=most, examples=examples, failure=failure) > target:
        most -= 1
    return most


@guarded
def chance_to_promise(*, examples: int, target: float, risk: float, failure: float) -> float:
    """The chance that a test of ``examples`` promises ``target`` if the true risk is ``risk``.

    >>> round(chance_to_promise(examples=694, target=0.05, risk=0.03, failure=0.05), 3)
    0.851
    """
    most = allowed_errors(examples=examples, target=target, failure=failure)
    return float(special.bdtr(most, examples, risk)) if most >= 0 else 0.0


@guarded
def examples_needed(
    *, target: float, risk: float, chance: float, failure: float
) -> tuple[int, int]:
    """How many examples promise ``target`` with the given chance if the true risk is ``risk``.

    Two numbers: the first n that has the chance, and the least n from which on it is never lost.
    The chance is a saw-tooth in n: it falls while the number of allowed errors stays, and jumps
    when one more is allowed. So one tooth for each number of errors is enough to look at; teeth are
    searched to four times the errors of the first answer.

    >>> examples_needed(target=0.05, risk=0.03, chance=0.8, failure=0.05)
    (601, 694)
    """
    if not (risk < target < 1.0 and chance < 1.0):
        raise BadInput(
            f"a risk of {risk!r} cannot be promised to be at most {target!r} with chance "
            f"{chance!r}: the target must lie above the true risk, and the chance below 1."
        )
    most = 64
    while True:
        starts = _tooth_starts(most, target, failure)
        errors = np.arange(most)
        best = special.bdtr(errors, starts[:-1], risk)
        worst = special.bdtr(errors, starts[1:] - 1, risk)
        reached = np.flatnonzero(best >= chance)
        if len(reached) and most >= 4 * (reached[0] + 8):
            lost = np.flatnonzero(worst < chance)
            return int(starts[reached[0]]), int(starts[lost[-1] + 1 if len(lost) else 0])
        if most > _MOST_ERRORS:
            raise BadInput(
                f"more than {_MOST_ERRORS:,} errors would be needed to tell a risk of {risk!r} "
                f"from {target!r}: name a target further away."
            )
        most *= 4


def _tooth_starts(most: int, goal: float, failure: float) -> np.ndarray:
    """For k = 0 .. most: the least n with P(Bin(n, goal) <= k) <= failure."""
    errors = np.arange(most + 1)
    low = errors.astype(np.int64)  # surely too few: all of them may be errors
    high = np.ceil((errors + 8.0 * np.sqrt(errors + 1.0) - 2.0 * math.log(failure)) / goal) + 8
    high = high.astype(np.int64)
    while True:
        short = special.bdtr(errors, high, goal) > failure
        if not short.any():
            break
        high[short] *= 2
    while (high - low).max() > 1:
        middle = (low + high) // 2
        enough = special.bdtr(errors, np.maximum(middle, errors), goal) <= failure
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)
