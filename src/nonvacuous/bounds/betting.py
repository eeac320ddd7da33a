"""Bounds on the mean of losses in [0, 1]: by betting against it, and from its variance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nonvacuous.bounds.later import numpy as np
from nonvacuous.bounds.rounding import EPSILON, as_risk, down, up
from nonvacuous.bounds.table import Input, theorem
from nonvacuous.errors import BadInput

__all__ = ["bernstein", "betting", "betting_lower"]

_ORDERED: dict[str, Any] = {
    "source": "Waudby-Smith and Ramdas (2024), predictable plug-in bets",
    "about": ("deterministic", "drawn"),
    "losses": Input("losses in [0, 1], in their order", (0.1, 0.2, 0.15, 0.05) * 9, apart=True),
}
#: No bet risks more than this part of the capital, whatever the candidate mean.
LARGEST_STAKE = 0.9


@theorem(**_ORDERED)
def betting(losses: Sequence[float] | np.ndarray, *, failure: float) -> float:
    """Upper bound on the mean of losses in [0, 1] from independent draws, in the order given.

    For each candidate mean m somebody bets that losses are smaller: the capital is the product of
    1 + b_i (m - X_i), where b_i = min(sqrt(2 ln(1/failure) / (n v_{i-1})), 0.9 / (1 - m)) and the
    variance v_{i-1} is estimated from the losses before the i-th and starts at 1/4. While the mean
    is m or more, the capital is a nonnegative supermartingale: it reaches 1/failure with
    probability at most ``failure`` (Ville), and then m is out. Every factor grows with m, so that
    the means that are out are all those above one number: that number is returned, or the mean of
    the losses where that is larger.
    Assumptions: the losses are independent draws of one distribution (or, more generally, each has
    the same mean given those before), and their order was fixed without looking at them.
    For losses 0 and 1 :func:`holdout` is better.

    >>> losses = [0.1, 0.2, 0.15, 0.05] * 50
    >>> round(betting(losses, failure=0.05), 4)
    0.1412
    """
    values = as_losses(losses)
    n = len(values)
    price = -math.log(failure)
    steps = np.arange(1, n + 1)
    means = (0.5 + np.cumsum(values)) / (steps + 1)
    squares = np.cumsum((values - means) ** 2)
    variances = (0.25 + np.concatenate(([0.0], squares[:-1]))) / steps
    bets = np.sqrt(2.0 * price / (n * variances))

    def surplus(mean: float) -> float:
        """By how much the capital surely passed its goal, rounding errors of the sums included."""
        gains = np.minimum(bets, LARGEST_STAKE / (1.0 - mean))
        gains *= mean - values
        np.log1p(gains, out=gains)
        slack = (n + 64) * EPSILON * float(np.abs(gains).sum())
        return float(np.cumsum(gains, out=gains).max()) - price * (1.0 + 8 * EPSILON) - slack

    low, high = min(float(values.mean()), 1.0 - 2.0**-40), 1.0 - 2.0**-40
    above = surplus(high)
    if above < 0.0:
        return 1.0
    # The surplus grows with the mean: the chord finds where it is zero. An end that stays twice has
    # its value halved, so that the other end comes nearer too (Illinois); every fourth step
    # is a bisection.
    below, steady, turn = surplus(low), 0, 0
    if below >= 0.0:  # losses that begin small may rule out even their own mean
        return as_risk(low)
    while high - low > 1e-9 * high:
        turn = turn + 1 if turn < 3 else 0
        part = below / (below - above) if turn else 0.5
        middle = low + min(max(part, 1e-3), 1.0 - 1e-3) * (high - low)
        value = surplus(middle)
        if value >= 0.0:
            high, above = middle, value
            below, steady = (below / 2, 1) if steady == 1 else (below, 1)
        else:
            low, below = middle, value
            above, steady = (above / 2, -1) if steady == -1 else (above, -1)
    return as_risk(high)


@theorem(**_ORDERED, lower=True)
def betting_lower(losses: Sequence[float] | np.ndarray, *, failure: float) -> float:
    """Lower bound on the mean of losses in [0, 1]: the mirror image of :func:`betting`.

    >>> round(betting_lower([0.1, 0.2, 0.15, 0.05] * 50, failure=0.05), 4)
    0.1145
    """
    return as_risk(down(1.0 - betting(1.0 - as_losses(losses), failure=failure)))


@theorem(
    source="Maurer and Pontil (2009), Theorem 4",
    about=("deterministic", "drawn"),
    examples=Input("independent examples", 10_000, push=-1, low=2, whole=True),
    variance=Input("their variance, over n - 1", 0.02, push=1, high=0.5),
)
def bernstein(*, empirical_risk: float, variance: float, examples: int, failure: float) -> float:
    """Upper bound on the mean of losses in [0, 1] from their mean and variance alone.

    With probability at least 1 - failure the mean is at most
        empirical risk + sqrt(2 variance ln(2 / failure) / n) + 7 ln(2 / failure) / (3 (n - 1)),
    the variance being that of the sample, over n - 1. Betting is tighter, but has to keep every
    loss. Assumptions: the losses are independent draws of one distribution.

    >>> round(bernstein(empirical_risk=0.1, variance=0.02, examples=10_000, failure=0.05), 4)
    0.1047
    """
    nats = math.log(2.0) - math.log(failure)
    slack = math.sqrt(2.0 * variance * nats / examples) + 7.0 * nats / (3.0 * (examples - 1))
    return as_risk(up(empirical_risk + slack, ulps=16))


def as_losses(losses: Any) -> np.ndarray:
    """The losses as doubles; what is not a number in [0, 1] is refused, with its position."""
    try:
        values = np.asarray(losses, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"losses must be numbers in [0, 1], got {type(losses).__name__}.") from error
    if values.ndim != 1 or not len(values):
        raise BadInput(f"losses must be a sequence of numbers, got shape {values.shape}.")
    bad = np.flatnonzero(~((values >= 0.0) & (values <= 1.0)))
    if len(bad):
        raise BadInput(
            f"losses must lie in [0, 1], got {values[bad[0]]!r} at position {bad[0]} "
            f"({len(bad)} of {len(values)} are outside). Declare the range of the loss, so that "
            "it can be clipped and scaled."
        )
    return values
