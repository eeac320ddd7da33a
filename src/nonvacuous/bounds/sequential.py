"""Tests one after another: look as often as you like, or train on the examples after each test.

Bounds that hold at every time at once, and bounds on the mean risk of the checkpoints tested.
"""

from __future__ import annotations

import math
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.bounds.later import numpy as np
from nonvacuous.bounds.later import special
from nonvacuous.bounds.rounding import EPSILON, as_risk, down, up
from nonvacuous.bounds.table import OWN_EVENT, Input, Reading, theorem
from nonvacuous.errors import BadInput

__all__ = ["gate", "gate_failure", "progressive", "sequence_lower", "sequence_upper"]

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


@theorem(
    Reading(
        "Progressive validation", "tilt fixed before the tests", "progressive validation", OWN_EVENT
    ),
    source="Progressive validation, Blum, Kalai and Langford (1999), with a fixed tilt: "
    "docs/theory/progressive.md, section 1",
    about=("mixture",),
    certifies=True,
    fixed_before=("tilt",),
    tilt=Input("weight of an error", 0.3, open=True),
)
def progressive(*, errors: int, trials: int, tilt: float, failure: float) -> float:
    """Upper bound on the mean risk of checkpoints, each tested on examples before training on them.

    With S errors in T tests: (1 - exp(-(tilt S + ln(1/failure)) / T)) / (1 - exp(-tilt)).
    Proof. Given the past, E exp(-tilt e_t) = 1 - p_t (1 - exp(-tilt)); the product of
    exp(-tilt e_t) / (1 - p_t (1 - exp(-tilt))) is a martingale of mean 1; Markov; -ln(1 - a p) is
    convex in p (Jensen).
    Assumptions: examples are independent draws, and every checkpoint was fixed before it met the
    examples that tested it; ``tilt`` and the number of tests were fixed before the first test. The
    mean risk is that of a predictor which draws a checkpoint for each input, with the share of the
    tests that the checkpoint took; not that of the last one. The exact binomial tail is not valid
    here: a learner can stop improving when it is lucky.

    >>> round(progressive(errors=100, trials=10_000, tilt=0.25, failure=0.05), 5)
    0.01264
    """
    nats = up(tilt * errors - math.log(failure))
    return as_risk(up(-math.expm1(-up(nats / trials)) / -math.expm1(-tilt)))


_BATCHES = Input("into how many batches the tests were divided beforehand", None, apart=True)


@theorem(
    source="Kendall's first-passage formula, and Hoeffding (1956) for two batches: "
    "docs/theory/progressive.md, section 3",
    about=("mixture",),
    fixed_before=("threshold", "batches"),
    threshold=Input("the risk to stay below", 0.02, push=-1, high=1.0),
    batches=_BATCHES,
)
def gate_failure(
    *, errors: int, trials: int, threshold: float, batches: int | None = None
) -> float:
    """The chance that so few errors are seen although the mean risk is at or above a threshold.

    For every learner that may adapt to what it has seen, every number of tests T and M = T
    threshold, the probability of at most k errors while the risks sum to M or more is at most
    H(M, k) = sum over j <= k of (M-k) (M-k+j)^(j-1) exp(-(M-k+j)) / j!  (1 where k >= M),
    the chance that q - N(q) reaches M - k before q = M, for a unit Poisson process N; sharp as the
    steps shrink. So k errors certify a mean risk below the threshold with this failure.
    With one or two ``batches``, each tested by one checkpoint, a learner has nothing left to adapt:
    where k <= M - 1 the exact binomial tail P(Bin(T, threshold) <= k) bounds the chance too.
    Assumptions: as for :func:`progressive`; the threshold and the sizes of the batches were fixed
    before the first test. Never look for the smallest threshold that passes: the mean risk is
    itself random.
    Source: Kendall's first-passage formula; Hoeffding (1956), Theorem 4, for two batches; proofs in
    docs/theory/progressive.md.

    >>> call = dict(errors=12, trials=200, threshold=0.1)
    >>> round(gate_failure(**call), 4), round(gate_failure(**call, batches=2), 4)
    (0.0571, 0.032)
    """
    rest = down(trials * threshold) - errors
    if rest <= 0.0:
        return 1.0
    # Rounded down once more, since the chance falls with the mass.
    rest = down(rest, ulps=1)
    j = np.arange(errors + 1, dtype=np.float64)
    sizes = rest + j
    parts = (j - 1.0) * np.log(sizes) - sizes - special.gammaln(j + 1.0) + math.log(rest)
    largest = float(np.abs((j + 1.0) * np.log(sizes + 1.0)).max() + sizes.max())
    error = 16.0 * EPSILON * largest + (errors + 4) * EPSILON
    chance = up(float(np.exp(parts).sum()) * math.exp(error))
    if batches is not None and checks.count("batches", batches, minimum=1) <= 2 and rest >= 1.0:
        chance = min(chance, up(float(special.bdtr(errors, trials, threshold)), ulps=2**20))
    # It may be too small for a double, but it is not nothing.
    return as_risk(max(chance, 5e-324))


@theorem(
    Reading(
        "Gate",
        "threshold declared before the training",
        "gate for progressive validation",
        OWN_EVENT,
    ),
    source="Gate for progressive validation, sharp against every adaptive learner: "
    "docs/theory/progressive.md, section 3",
    about=("mixture",),
    certifies=True,
    fixed_before=("threshold", "batches"),
    threshold=Input("the risk to stay below", 0.02, high=1.0),
    batches=_BATCHES,
)
def gate(
    *, errors: int, trials: int, threshold: float, failure: float, batches: int | None = None
) -> float:
    """The threshold where the tests certify a mean risk below it, and 1 where they do not.

    Passed where :func:`gate_failure` is at most ``failure``. Assumptions and source are its own.

    >>> call = dict(trials=2000, threshold=0.05, failure=0.05)
    >>> gate(errors=80, **call), gate(errors=81, **call), gate(errors=83, batches=2, **call)
    (0.05, 1.0, 0.05)
    """
    chance = gate_failure(errors=errors, trials=trials, threshold=threshold, batches=batches)
    return threshold if chance <= failure else 1.0
