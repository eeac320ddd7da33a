"""PAC-Bayes bounds that look at more than the mean of the loss, or at one network alone.

Bounds for *one* network drawn once from the posterior, instead of the randomized predictor: the
confidence is over the sample and the draw together. With probability at least 1 - failure over the
examples S and one hypothesis h drawn from the posterior Q (which may depend on S), the risk of that
h is at most the returned value. The prior is fixed before the examples; losses lie in [0, 1].
Drawing again until the number pleases is a search and must be charged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from nonvacuous.bounds import checks
from nonvacuous.bounds.binary_kl import kl_inverse_upper, log_moment
from nonvacuous.bounds.pac_bayes import complexity
from nonvacuous.bounds.rounding import as_risk, up
from nonvacuous.bounds.table import FIRST, OWN_EVENT, Input, Reading, theorem
from nonvacuous.errors import BadInput

__all__ = ["disintegrated", "disintegrated_renyi", "empirical_bernstein", "split_kl"]

#: Rates of ``empirical_bernstein``, fixed before any data; 64 points cost ln 64 = 4.2 nats.
RATES: tuple[float, ...] = tuple(1e-3 * 990.0 ** (j / 63) for j in range(64))


@theorem(
    source="Wu and Seldin (2022), Theorem 7",
    levels=Input("the values of the loss, increasing", (0.0, 0.5, 1.0), apart=True),
    tail_risks=Input("how often it is at least each", (0.4, 0.1), apart=True),
)
def split_kl(
    *,
    levels: Sequence[float],
    tail_risks: Sequence[float],
    kl_nats: float,
    examples: int,
    failure: float,
) -> float:
    """Bound for a loss with few values b_0 < b_1 < ... < b_K, one kl-inverse per step.

    ``levels`` are the K + 1 values, within [0, 1]; ``tail_risks[j]`` is the posterior mean of the
    frequency of {loss >= levels[j + 1]}. Since loss = b_0 + sum of (b_j - b_{j-1}) 1{loss >= b_j},
    the risk is at most the same sum with each 1{...} replaced by the kl-inverse of its frequency at
    (KL + ln(2 K sqrt(n) / failure)) / n.
    Tighter than ``seeger`` when much of the loss sits between its extremes.

    >>> call = dict(kl_nats=100.0, examples=10_000, failure=0.05)
    >>> round(split_kl(levels=(0.0, 0.5, 1.0), tail_risks=(0.4, 0.01), **call), 4)
    0.2529
    """
    values = [checks.unit_interval("levels", value) for value in levels]
    if len(values) < 2 or any(b <= a for a, b in pairwise(values)):
        raise BadInput(
            f"levels must be at least two increasing values in [0, 1], got levels = {levels!r}."
        )
    tails = [checks.unit_interval("tail_risks", value) for value in tail_risks]
    if len(tails) != len(values) - 1:
        raise BadInput(
            f"tail_risks must hold one frequency per level after the first: got {len(tails)} for "
            f"{len(values)} levels, tail_risks = {tail_risks!r}."
        )
    if any(b > a for a, b in pairwise(tails)):
        raise BadInput(f"tail_risks must not increase, got tail_risks = {tail_risks!r}.")
    exponent = complexity(kl_nats=kl_nats, examples=examples, failure=failure / len(tails))
    steps = (b - a for a, b in pairwise(values))
    ends = (float(kl_inverse_upper(tail, exponent)) for tail in tails)
    return as_risk(up(values[0] + math.fsum(s * e for s, e in zip(steps, ends, strict=True))))


@theorem(
    Reading(
        "Empirical Bernstein",
        "un-expected Bernstein, grid of rates paid for",
        "un-expected Bernstein",
        OWN_EVENT,
        grid=RATES,
    ),
    source="Mhammedi, Grunwald and Guedj (2019), with a union bound over a fixed grid",
    fixed_before=("grid",),
)
def empirical_bernstein(
    *,
    empirical_risk: float,
    second_moment: float,
    kl_nats: float,
    examples: int,
    failure: float,
    grid: Sequence[float] | None = None,
) -> float:
    """Bound for losses in [0, 1] whose squares are small: pays for the mean square, not the range.

    The smallest over rates r of

        empirical risk + r theta(r) second moment + (KL + ln(G / failure)) / (n r),

    theta(r) = (-ln(1 - r) - r) / r^2, where ``second_moment`` is the posterior mean of the average
    squared loss and the G rates in (0, 1) are fixed before the data.

    Proof. (ln(1 - x) + x) / x^2 decreases on x < 1, so for 0 <= loss <= 1 and x = r loss:
    exp(-x - theta(r) x^2) <= 1 - x, hence E exp(r (risk - loss) - theta(r) r^2 loss^2) <= 1.
    Multiply over the sample, change measure from the prior, Markov, and a union over the grid.
    Source: Mhammedi, Grunwald and Guedj (2019), "un-expected Bernstein".

    >>> call = dict(kl_nats=100.0, examples=10_000, failure=0.05)
    >>> round(empirical_bernstein(empirical_risk=0.05, second_moment=0.003, **call), 4)
    0.0665
    """
    rates = RATES if grid is None else checks.grid_of("grid", grid, below=1.0)
    nats = kl_nats - math.log(failure / len(rates))

    def at(rate: float) -> float:
        squares = (-math.log1p(-rate) - rate) / rate * second_moment
        return up(empirical_risk + squares + nats / (examples * rate), ulps=64)

    return as_risk(min(map(at, rates)))


@theorem(
    Reading(
        "Disintegrated, exact moment",
        "for the one drawn network, with ξ(n)",
        "one draw, ξ(n)",
        FIRST,
        options={"exact_moment": True},
    ),
    Reading("Disintegrated", "for the one drawn network, with 2√n", "one draw, 2√n"),
    source="Bound for one drawn network: Rivasplata, Kuzborskij, Szepesvari and Shawe-Taylor "
    "(2020), Theorem 1 (i)",
    about=("drawn",),
    certifies=True,
    free=("exact_moment",),
    # With a negative ratio, few examples may promise more than many: the moment grows with n.
    examples=Input("independent examples", 10_000, low=1, whole=True),
    log_density_ratio=Input("ln dQ/dP at the drawn weights", -1.0, push=1, low=-math.inf),
)
def disintegrated(
    *,
    empirical_risk: float,
    log_density_ratio: float,
    examples: int,
    failure: float,
    exact_moment: bool = False,
) -> float:
    """kl(empirical risk, risk) <= (ln dQ/dP(h) + ln(2 sqrt(n) / failure)) / n, for the drawn h.

    ``empirical_risk`` is that of h itself, ``log_density_ratio`` = ln dQ/dP at h, in nats; it may
    be negative. Assumption: Q is absolutely continuous with respect to P.
    Proof: E over S, h ~ Q of exp(n kl) dP/dQ(h) is at most E over S, h ~ P of exp(n kl) <= xi(n);
    Markov.

    >>> call = dict(empirical_risk=0.02, examples=60_000, failure=0.05)
    >>> round(disintegrated(**call, log_density_ratio=5000.0), 4)
    0.1343
    """
    nats = log_density_ratio + log_moment(examples, exact=exact_moment) - math.log(failure)
    # A negative exponent is an event of probability below failure: the trivial reading is 0.
    exponent = up(max(nats + 8e-16 * abs(log_density_ratio), 0.0) / examples)
    return as_risk(float(kl_inverse_upper(empirical_risk, exponent)))


@theorem(
    Reading(
        "Disintegrated, Rényi", "for the one drawn network", "one draw, Rényi divergence", OWN_EVENT
    ),
    source="Bound for one drawn network: Viallard, Germain, Habrard and Morvant (2024), Theorem 2",
    about=("drawn",),
    certifies=True,
    fixed_before=("order",),
    renyi_nats=Input("Renyi divergence of the posterior from the prior", 10.0, push=1),
    order=Input("order of the divergence", 2.0, low=1.0, open=True),
)
def disintegrated_renyi(
    *, empirical_risk: float, renyi_nats: float, order: float, examples: int, failure: float
) -> float:
    """kl(empirical risk, risk) <= (D_a(Q||P) + (2a-1)/(a-1) ln(2/failure) + ln 2 sqrt(n)) / n.

    ``renyi_nats`` = D_a(Q || P), the Renyi divergence of order a = ``order`` > 1: the same for
    every h, where :func:`disintegrated` pays the density ratio at the h that was drawn. The order
    is fixed before the data. Proof: Markov over h ~ Q, Hoelder, Markov over S.

    >>> call = dict(empirical_risk=0.02, examples=60_000, failure=0.05, order=2.0)
    >>> round(disintegrated_renyi(**call, renyi_nats=5000.0), 4)
    0.1345
    """
    tails = (2.0 * order - 1.0) / (order - 1.0) * math.log(2.0 / failure)
    exponent = up((renyi_nats + tails + log_moment(examples, exact=False)) / examples, ulps=16)
    return as_risk(float(kl_inverse_upper(empirical_risk, exponent)))
