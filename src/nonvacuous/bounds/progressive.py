"""Test, then train on the same examples: bounds on the mean risk of the checkpoints."""

from __future__ import annotations

import math

from nonvacuous.bounds import checks
from nonvacuous.bounds.later import numpy as np
from nonvacuous.bounds.later import special
from nonvacuous.bounds.rounding import EPSILON, as_risk, down, up
from nonvacuous.bounds.table import OWN_EVENT, Input, Reading, theorem

__all__ = ["gate", "gate_failure", "progressive"]


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
