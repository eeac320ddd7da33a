"""Bounds that hold at every time at once: look as often as you like, stop when you like."""

from __future__ import annotations

import math
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.bounds.later import numpy as np
from nonvacuous.bounds.rounding import EPSILON, as_risk, down
from nonvacuous.bounds.table import Input, theorem
from nonvacuous.errors import BadInput

__all__ = ["sequence_lower", "sequence_upper"]

#: Tilts of the confidence sequence, fixed before any data: from a handful of trials to 10^9.
TILTS: tuple[float, ...] = tuple(2.0 ** (2.0 - j) for j in range(16))
#: Stakes of the capital, as multiples of 1 / (1 - promise): for risks from 1.1 to 9 times it.
STAKES: tuple[float, ...] = (0.1, 0.3, 0.9, 2.7, 8.1)
#: Steps of a capital that are multiplied without logarithms.
BLOCK = 64


_SO_FAR: dict[str, Any] = {
    "source": "the method of mixtures (Robbins 1970), over fixed tilts: valid at all times at once",
    "about": ("mean of trials",),
    "errors": Input("the sum of losses so far", 100, push=1, at_most="trials"),
}


@theorem(**_SO_FAR, lower=True)
def sequence_lower(*, errors: float, trials: int, failure: float) -> float:
    """Lower bound on the mean risk so far, valid at every number of trials at once.

    With S the sum of errors in [0, 1] among t trials and p_i their risks given the past, the
    product of exp(h e_i) / (1 + p_i (exp(h) - 1)) is a supermartingale for every tilt h, and by
    Jensen at least exp(h S) / (1 + p (exp(h) - 1))^t, p the mean of the p_i. So the mean of the
    latter over 16 fixed tilts reaches 1/failure, ever, with probability at most ``failure``. The
    bound is where it does. It speaks of the average so far, never of today, and needs no
    assumption on how the risk changes.
    Assumptions: labels arrive in their order; none is late or missing because of the error.

    >>> round(sequence_lower(errors=100, trials=1000, failure=0.05), 4)
    0.0711
    """
    return _end(errors, trials, failure, sign=1.0)


@theorem(**_SO_FAR)
def sequence_upper(*, errors: float, trials: int, failure: float) -> float:
    """Upper bound on the mean risk so far, valid at every number of trials at once.

    The mirror image of :func:`sequence_lower`.

    >>> round(sequence_upper(errors=100, trials=1000, failure=0.05), 4)
    0.1346
    """
    return _end(errors, trials, failure, sign=-1.0)


def waiting_weight(time: int | np.ndarray) -> np.ndarray:
    """The part of a unit of money not yet at stake after ``time`` steps: 1 / (1 + ln(1 + time)).

    The rest was put in step by step, so that a change is noticed soon whenever it happens.
    """
    return np.asarray(1.0 / (1.0 + np.log1p(time)))


def stakes(promise: float) -> np.ndarray:
    """The bets of the capital against "every risk is at most ``promise``": fixed beforehand."""
    risk = checks.unit_interval("promise", promise)
    if not 0.0 < risk < 1.0:
        raise BadInput(f"a promise of {promise!r} cannot be watched: it must lie between 0 and 1.")
    return np.minimum(np.array(STAKES) / (1.0 - risk), 0.98 / risk)


def advance(
    logs: np.ndarray, time: int, losses: np.ndarray, promise: float
) -> tuple[np.ndarray, np.ndarray]:
    """ln of the whole capital after each further loss, and of what is then at stake in each bet.

    ``logs`` is what is at stake before. Money enters before each loss:
    K_t = (K_{t-1} + w_t) (1 + stake (e_t - promise)), w_t the fall of :func:`waiting_weight`. With
    what waits, the mean over the stakes is a supermartingale that starts at 1 as long as every
    loss has mean at most ``promise`` given the past. What rounding can have added is taken off.

    Products of one block fit into doubles (a factor lies between 0.02 and 9.1), so that only the
    blocks, not the steps, are joined by logarithms.
    """
    size = -(-len(losses) // BLOCK) * BLOCK
    rest = size - len(losses)
    gaps = np.pad(losses - promise, (0, rest)).reshape(-1, BLOCK)  # a gap of 0 changes nothing
    waiting = waiting_weight(np.arange(time, time + len(losses) + 1))
    entering = np.pad(waiting[:-1] - waiting[1:], (0, rest)).reshape(-1, BLOCK)
    growth = np.cumprod(1.0 + stakes(promise)[:, None, None] * gaps, axis=-1)
    entered = entering / np.concatenate([np.ones_like(growth[..., :1]), growth[..., :-1]], axis=-1)
    np.cumsum(entered, axis=-1, out=entered)
    with np.errstate(divide="ignore"):
        grown = np.cumsum(np.log(growth[..., -1]), axis=-1)
        ends = np.logaddexp.accumulate(
            np.concatenate(
                [logs[:, None], np.log(entered[..., -1]) - grown + np.log(growth[..., -1])], axis=-1
            ),
            axis=-1,
        )
    starts = ends + np.concatenate([np.zeros_like(grown[:, :1]), grown], axis=-1)
    shift = np.maximum(starts[:, :-1].max(axis=0), -50.0)
    before, unit = np.exp(starts[:, :-1] - shift), np.exp(-shift)[:, None]
    growth *= before[..., None] + entered * unit
    whole = growth.mean(axis=0) + np.pad(waiting[1:], (0, rest)).reshape(-1, BLOCK) * unit
    capital = (np.log(whole) + shift[:, None]).ravel()[: len(losses)]
    return capital - rounding(time + len(losses)), starts[:, -1]


def rounding(time: int) -> float:
    """More than what rounding adds to the logarithm of the capital in so many steps."""
    return 1e-9 + 16.0 * EPSILON * time


def _end(errors: float, trials: int, failure: float, *, sign: float) -> float:
    tilts = sign * np.array(TILTS)
    slopes = np.expm1(tilts)
    goal = -math.log(failure) + math.log(len(tilts))

    def is_out(mean: float) -> bool:
        logs = tilts * errors - trials * np.log1p(mean * slopes)
        top = float(logs.max())
        slack = 16.0 * EPSILON * (float(np.abs(tilts).max()) * (errors + trials) + abs(top) + 64.0)
        return top + math.log(float(np.exp(logs - top).sum())) >= goal + slack

    inside, outside = errors / trials, (0.0 if sign > 0 else 1.0)
    if not is_out(outside):
        return outside
    for _ in range(200):
        middle = 0.5 * (inside + outside)
        if abs(outside - inside) <= 1e-12 * max(middle, 1e-300):
            break
        inside, outside = (inside, middle) if is_out(middle) else (middle, outside)
    return as_risk(down(outside, ulps=1) if sign > 0 else outside)
