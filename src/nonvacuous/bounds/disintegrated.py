"""Bounds for *one* network drawn once from the posterior, instead of the randomized predictor.

The confidence is over the sample and the draw together: with probability at least 1 - failure
over the examples S and one hypothesis h drawn from the posterior Q (which may depend on S), the
risk of that h is at most the returned value. The prior is fixed before the examples; losses lie
in [0, 1]. Drawing again until the number pleases is a search and must be charged.
"""

from __future__ import annotations

import math

from nonvacuous.bounds.binary_kl import kl_inverse_upper, log_moment
from nonvacuous.bounds.rounding import as_risk, up
from nonvacuous.bounds.table import FIRST, OWN_EVENT, Input, Reading, theorem

__all__ = ["disintegrated", "disintegrated_renyi"]


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
