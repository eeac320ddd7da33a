"""PAC-Bayes bounds on the risk of a randomized predictor: numbers in, number out.

Common statement. Let P (the prior) be fixed before the ``examples`` independent examples are seen,
and let losses lie in [0, 1]. With probability at least 1 - failure over the sample, *for every*
posterior Q at once, the risk of the predictor that draws its weights from Q afresh for each
prediction is at most the returned value, where ``empirical_risk`` is the mean over Q of the
training error (or an upper bound on it) and ``kl_nats`` = KL(Q || P) (or an upper bound).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from nonvacuous.bounds import checks
from nonvacuous.bounds.binary_kl import kl_inverse_upper, log_moment
from nonvacuous.bounds.rounding import as_risk, down, up
from nonvacuous.bounds.table import FIRST, OWN_EVENT, Input, Reading, guarded, theorem

__all__ = [
    "best_temperature",
    "best_trade_off",
    "catoni",
    "catoni_union",
    "mcallester",
    "quadratic",
    "seeger",
    "thiemann",
    "thiemann_union",
]


@guarded
def complexity(
    *, kl_nats: float, examples: int, failure: float, exact_moment: bool = False
) -> float:
    """(KL + ln(2 sqrt(n) / failure)) / n, rounded up: what PAC-Bayes-kl inverts."""
    moment = log_moment(examples, exact=exact_moment)
    return up((kl_nats + moment - math.log(failure)) / examples)


@theorem(
    Reading(
        "PAC-Bayes-kl, exact moment",
        "with ξ(n) for 2√n (Maurer)",
        "PAC-Bayes-kl, ξ(n)",
        FIRST,
        options={"exact_moment": True},
    ),
    Reading("PAC-Bayes-kl", "with 2√n (Seeger, Langford, Maurer)", "PAC-Bayes-kl, 2√n"),
    Reading(
        "PAC-Bayes-kl, exact moment",
        "with ξ(n), and nothing paid for complexity",
        "PAC-Bayes-kl with KL = 0",
        options={"kl_nats": 0.0, "exact_moment": True},
        about="deterministic",
    ),
    source="PAC-Bayes-kl bound: Seeger (2002), Langford (2005), with the constant of Maurer (2004)",
    certifies=True,
    free=("exact_moment",),
)
def seeger(
    *,
    empirical_risk: float,
    kl_nats: float,
    examples: int,
    failure: float,
    exact_moment: bool = False,
) -> float:
    """PAC-Bayes-kl: kl(empirical risk, risk) <= (KL + ln(2 sqrt(n) / failure)) / n, inverted.

    ``exact_moment`` replaces 2 sqrt(n) by xi(n), which is smaller and just as valid.
    Source: Seeger (2002), Langford (2005), with the constant of Maurer (2004), Theorem 5.

    >>> round(seeger(empirical_risk=0.01, kl_nats=0.0, examples=10_000, failure=0.05), 4)
    0.0146
    """
    exponent = complexity(
        kl_nats=kl_nats, examples=examples, failure=failure, exact_moment=exact_moment
    )
    return as_risk(float(kl_inverse_upper(empirical_risk, exponent)))


@theorem(
    Reading("PAC-Bayes-quadratic", "a relaxation of PAC-Bayes-kl", "kl(q,p) ≥ (p−q)²/2p"),
    source="PAC-Bayes-quadratic bound: Rivasplata et al. (2019), Perez-Ortiz et al. (2021)",
    certifies=True,
)
def quadratic(*, empirical_risk: float, kl_nats: float, examples: int, failure: float) -> float:
    """(sqrt(empirical risk + c) + sqrt(c))^2 with c = (KL + ln(2 sqrt(n) / failure)) / 2n.

    Follows from ``seeger`` by kl(q, p) >= (p - q)^2 / 2p. Source: Rivasplata et al. (2019);
    Perez-Ortiz et al. (2021), equation 5.

    >>> round(quadratic(empirical_risk=0.02, kl_nats=5000.0, examples=60_000, failure=0.05), 4)
    0.205
    """
    half = complexity(kl_nats=kl_nats, examples=examples, failure=failure) / 2.0
    return as_risk(up((math.sqrt(empirical_risk + half) + math.sqrt(half)) ** 2))


@guarded
def best_trade_off(
    *, empirical_risk: float, kl_nats: float, examples: int, failure: float
) -> float:
    """The ``trade_off`` at which :func:`thiemann` is smallest, in closed form.

    >>> call = dict(empirical_risk=0.02, kl_nats=5000.0, examples=60_000, failure=0.05)
    >>> round(best_trade_off(**call), 4)
    0.9024
    """
    exponent = complexity(kl_nats=kl_nats, examples=examples, failure=failure)
    return 2.0 / (math.sqrt(2.0 * empirical_risk / exponent + 1.0) + 1.0)


@theorem(
    Reading(
        "PAC-Bayes-λ",
        "a relaxation of PAC-Bayes-kl, best λ (free of charge)",
        "quadratic, made linear",
        best=("trade_off", best_trade_off),
    ),
    source="PAC-Bayes-lambda bound: Thiemann, Igel, Wintenberger and Seldin (2017), Theorem 3",
    certifies=True,
    free=("trade_off",),
    trade_off=Input("weight of complexity against risk", 0.5, high=2.0, open=True),
)
def thiemann(
    *, empirical_risk: float, kl_nats: float, examples: int, failure: float, trade_off: float
) -> float:
    """empirical risk / (1 - t/2) + (KL + ln(2 sqrt(n) / failure)) / (n t (1 - t/2)), 0 < t < 2.

    A linearization of ``seeger`` (by kl(q, p) >= (p - q)^2 / 2p), so it holds for every
    ``trade_off`` t at once: :func:`best_trade_off` may be used after seeing the data at no charge.

    >>> call = dict(empirical_risk=0.02, kl_nats=5000.0, examples=60_000, failure=0.05)
    >>> round(thiemann(**call, trade_off=0.8), 4)
    0.2073
    """
    exponent = complexity(kl_nats=kl_nats, examples=examples, failure=failure)
    shrink = 1.0 - trade_off / 2.0
    return as_risk(up((empirical_risk + exponent / trade_off) / shrink))


#: Trade-offs of ``thiemann_union``, spread over (0, 2).
TRADE_OFFS: tuple[float, ...] = tuple(2.0 * (j + 0.5) / 64 for j in range(64))


@theorem(
    Reading(
        "PAC-Bayes-λ, grid",
        "a relaxation of PAC-Bayes-kl, grid of λ paid for",
        "thiemann on a grid",
        grid=TRADE_OFFS,
    ),
    source="PAC-Bayes-lambda bound: Thiemann et al. (2017), with a union bound over a fixed grid",
    certifies=True,
    fixed_before=("grid",),
)
def thiemann_union(
    *,
    empirical_risk: float,
    kl_nats: float,
    examples: int,
    failure: float,
    grid: Sequence[float] | None = None,
) -> float:
    """The smallest :func:`thiemann` over a grid of trade-offs, each at failure / len(grid).

    Kept for comparison with published tables that pay for their grid. It pays more than it must:
    :func:`thiemann` holds for all trade-offs at once, so :func:`best_trade_off` is free.

    >>> call = dict(empirical_risk=0.02, kl_nats=5000.0, examples=60_000, failure=0.05)
    >>> round(thiemann_union(**call), 4)
    0.2052
    """
    trade_offs = TRADE_OFFS if grid is None else checks.grid_of("grid", grid, below=2.0)
    bound = partial(thiemann, empirical_risk=empirical_risk, kl_nats=kl_nats, examples=examples)
    return min(bound(failure=failure / len(trade_offs), trade_off=t) for t in trade_offs)


@theorem(
    Reading(
        "McAllester", "a relaxation of PAC-Bayes-kl by Pinsker's inequality", "Pinsker's inequality"
    ),
    source="PAC-Bayes bound of McAllester (1999), with the constant of Maurer (2004)",
    certifies=True,
)
def mcallester(*, empirical_risk: float, kl_nats: float, examples: int, failure: float) -> float:
    """empirical risk + sqrt((KL + ln(2 sqrt(n) / failure)) / 2n): Pinsker applied to ``seeger``.

    >>> round(mcallester(empirical_risk=0.02, kl_nats=5000.0, examples=60_000, failure=0.05), 4)
    0.2243
    """
    exponent = complexity(kl_nats=kl_nats, examples=examples, failure=failure)
    return as_risk(up(empirical_risk + math.sqrt(exponent / 2.0)))


#: Temperatures fixed here, before any data: half-decade-fine would waste nats on large KL, finer
#: ones would pay more than they gain; 128 points cost ln 128 = 4.9 nats.
TEMPERATURES: tuple[float, ...] = tuple(1e-3 * 32_000.0 ** (j / 127) for j in range(128))


@theorem(
    Reading("Catoni", "temperature fixed before the data", "Catoni, one temperature", OWN_EVENT),
    source="PAC-Bayes bound of Catoni (2007), Theorem 1.2.6, at a temperature fixed before the "
    "data",
    certifies=True,
    fixed_before=("temperature",),
    temperature=Input("weight of risk against complexity", 0.5, open=True),
)
def catoni(
    *, empirical_risk: float, kl_nats: float, examples: int, failure: float, temperature: float
) -> float:
    """(1 - exp(-C empirical risk - (KL + ln(1/failure)) / n)) / (1 - exp(-C)), C = ``temperature``.

    Holds for one C > 0 *fixed before the data*; to choose C afterwards use :func:`catoni_union`.

    >>> call = dict(empirical_risk=0.02, kl_nats=5000.0, examples=60_000, failure=0.05)
    >>> round(catoni(**call, temperature=2.0), 4)
    0.1342
    """
    exponent = up(temperature * empirical_risk + (kl_nats - math.log(failure)) / examples)
    normalizer = down(-math.expm1(-temperature))
    if normalizer <= 0.0:
        return 1.0  # a temperature this low says nothing
    return as_risk(up(-math.expm1(-exponent) / normalizer))


@guarded
def best_temperature(
    *, empirical_risk: float, kl_nats: float, examples: int, failure: float
) -> float:
    """The temperature C at which :func:`catoni` is smallest, for a risk and a KL that one expects.

    Not a bound: a plan. It may rest on anything but the bound examples; the bound then holds for
    whatever risk and KL come out. At its minimum over C the bound equals p = kl^-1(q, c) with
    c = (KL + ln(1/failure))/n, and the minimum is at C = logit p - logit q.

    >>> call = dict(empirical_risk=0.01, kl_nats=0.0, examples=30_000, failure=0.05)
    >>> round(catoni(**call, temperature=best_temperature(**call)), 5), round(seeger(**call), 5)
    (0.01147, 0.01261)
    """
    budget = (kl_nats - math.log(failure)) / examples
    q = min(max(empirical_risk, 1e-9), 1.0 - 1e-9)
    p = min(float(kl_inverse_upper(q, budget)), 1.0 - 1e-15)
    return max(1e-6, math.log(p / q) + math.log1p(-q) - math.log1p(-p))


@theorem(
    Reading(
        "Catoni, grid",
        "grid of temperatures paid for by a union bound",
        "Catoni on a grid",
        OWN_EVENT,
        grid=TEMPERATURES,
    ),
    source="PAC-Bayes bound of Catoni (2007), Theorem 1.2.6, with a union bound over a fixed grid",
    certifies=True,
    fixed_before=("grid",),
)
def catoni_union(
    *,
    empirical_risk: float,
    kl_nats: float,
    examples: int,
    failure: float,
    grid: Sequence[float] | None = None,
) -> float:
    """The smallest :func:`catoni` over a grid of temperatures, each at failure / len(grid).

    The grid must be fixed before the data are seen; the default is ``TEMPERATURES``. Valid by a
    union bound over the grid.

    >>> call = dict(empirical_risk=0.02, kl_nats=5000.0, examples=60_000, failure=0.05)
    >>> round(catoni_union(**call), 4)
    0.1343
    """
    temperatures = TEMPERATURES if grid is None else checks.grid_of("grid", grid)
    bound = partial(catoni, empirical_risk=empirical_risk, kl_nats=kl_nats, examples=examples)
    return min(bound(failure=failure / len(temperatures), temperature=c) for c in temperatures)
