"""Plain numbers behind certificates for one fixed ReLU network: derandomized PAC-Bayes.

Noise is put on the weights, a loss that forgives the noise is bounded by PAC-Bayes, and the fixed
network inherits the bound. Statements and proofs: ``docs/theory/sparsity.md``, whose names
(escape p, Theorems A, D and E) are used here. Every quantile is rounded up: a larger one makes the
loss larger, never smaller.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from nonvacuous.bounds import checks
from nonvacuous.bounds.binary_kl import kl_inverse_upper
from nonvacuous.bounds.holdout import log_choose
from nonvacuous.bounds.later import integrate, optimize, special
from nonvacuous.bounds.pac_bayes import complexity
from nonvacuous.bounds.rounding import as_risk, down, up
from nonvacuous.bounds.table import FIRST, Input, Reading, theorem
from nonvacuous.errors import BadInput

__all__ = ["derandomized"]

#: How far a quantile is raised, relative: far more than scipy's special functions can be off.
_QUANTILE_SLACK = 1e-9
_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)


@theorem(
    Reading(
        "Derandomized PAC-Bayes-kl",
        "for the network itself, from noise around it",
        "the network itself, from noise",
        FIRST,
        about="noisy",
    ),
    source="Derandomized PAC-Bayes-kl bound for one fixed network, after Nagarajan and Kolter "
    "(2019) and Muthukumar and Sulam (2023): docs/theory/sparsity.md, section 1",
    about=("deterministic",),
    certifies=True,
    loss_upper=Input("the noisy loss on the bound examples", 0.1, push=1, high=1.0),
    escape=Input("chance that noise misses an error", 0.05, push=1, high=1.0 - 2.0**-53),
    grid_nats=Input("price of the setting", 10.0, push=1),
)
def derandomized(
    *,
    loss_upper: float,
    escape: float,
    kl_nats: float,
    grid_nats: float,
    examples: int,
    failure: float,
) -> float:
    """Risk of a fixed network W whose errors are seen by the noisy loss with chance 1 - ``escape``.

    Statement: let P be a prior fixed before the ``examples``, H one of countably many settings with
    shares w_H that sum to at most one, and let the loss of setting H in {0, 1} be such that for
    every example that W gets wrong, noise around W gives loss 1 with probability at least
    1 - ``escape``. With probability at least 1 - ``failure``, for all such W and H at once, the
    risk of W is at most kl_inverse(loss_upper; (KL + ln(2 sqrt(n)/failure) + ln(1/w_H)) / n)
    divided by 1 - escape. ``loss_upper`` is at least the mean loss over noise and examples,
    ``grid_nats`` = ln(1/w_H). A tie counts as an error. Source: docs/theory/sparsity.md, 1.

    >>> round(derandomized(loss_upper=0.1, escape=0.05, kl_nats=20.0, grid_nats=20.0,
    ...                    examples=57_000, failure=0.05), 4)
    0.1189
    """
    exponent = complexity(kl_nats=up(kl_nats + grid_nats), examples=examples, failure=failure)
    return as_risk(up(float(kl_inverse_upper(loss_upper, exponent)) / down(1.0 - escape)))


def integer_nats(value: int) -> float:
    """ln(1/w) of an integer under the weights w(j) = (2/3) / ((|j| + 1) (|j| + 2)), rounded up.

    The weights of all integers sum to exactly one (1/3 at 0, and 2/3 for the others together), so
    that a number written as an integer on an endless grid can be charged for.

    >>> round(integer_nats(0), 4), round(integer_nats(-3), 4)
    (1.0986, 3.4012)
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"value must be an integer, got {value!r} of type {type(value).__name__}.")
    size = abs(value)
    return up(math.log(1.5) + math.log(size + 1.0) + math.log(size + 2.0))


def choice_nats(choices: int) -> float:
    """ln(choices), rounded up: what picking one of equally likely alternatives costs."""
    return up(math.log(checks.count("choices", choices, minimum=1)))


def kink(distance: float) -> float:
    """psi(r) = phi(r) - r Phi(-r): how far standard noise lifts the mean of a ReLU at distance r.

    For n standard normal, E max(0, m + n) - max(0, m) = psi(|m|). Rounded up.

    >>> round(kink(0.0), 6), round(kink(3.0), 6)
    (0.398942, 0.000382)
    """
    r = checks.non_negative("distance", distance)
    tail = float(special.ndtr(-r))
    density = math.exp(-0.5 * r * r) / _ROOT_TWO_PI
    # Where the two nearly cancel, 1e-13 of the density is more than rounding can have lost; it
    # must not rise above psi(0) by more than that either.
    return max(0.0, density - r * tail) + 1e-13 * density


def two_sided_quantile(*, failure: float, events: int) -> float:
    """T with ``events`` * P(|n| > T) <= ``failure`` for standard normal n.

    >>> round(two_sided_quantile(failure=0.05, events=1), 4)
    1.96
    """
    share = checks.failure_probability(failure) / checks.count("events", events, minimum=1)
    return _raised(-float(special.ndtri(share / 2.0)))


def lipschitz_quantile(*, failure: float, events: int) -> float:
    """T with ``events`` * P(|F - E F| > T) <= ``failure`` for every 1-Lipschitz F of normal noise.

    T = t + psi(t) at the Gaussian quantile t (docs/theory/sparsity.md, lemma 3): barely above it.

    >>> round(lipschitz_quantile(failure=0.05, events=1), 4)
    1.9694
    """
    t = two_sided_quantile(failure=failure, events=events)
    return _raised(t + kink(t))


def expected_shortfall(failure: float) -> float:
    """E[n | n > z] with P(n > z) = ``failure``: a tail that convex domination by a normal allows.

    >>> round(expected_shortfall(0.05), 4)
    2.0627
    """
    p = _at_most_half(failure)
    z = -float(special.ndtri(p))
    return _raised(math.exp(-0.5 * z * z) / _ROOT_TWO_PI / p)


@lru_cache(maxsize=512)
def self_normalized_quantile(failure: float) -> float:
    """t(p) of Theorem D: the tail of a Lipschitz part plus independent noise of random size.

    The root of (3/2) Q(t) + integral over [0, pi/2] of phi(t cos a) t sin(a) Q(t sin a) da = p,
    with Q the upper tail of the standard normal. Rounded up.

    >>> [round(self_normalized_quantile(p), 2) for p in (0.05, 0.02, 0.01)]
    [2.06, 2.44, 2.7]
    """
    p = _at_most_half(failure)
    # The quadrature is accurate to 1e-10 relative, so aiming a little below p rounds t up.
    target = p * (1.0 - 1e-7)
    return _raised(float(optimize.brentq(lambda t: _self_normalized_tail(t) - target, 1e-6, 40.0)))


def chi_quantile(*, degrees: int, failure: float) -> float:
    """c with P(|g| > c) <= ``failure`` for a standard normal vector g of ``degrees`` entries.

    >>> round(chi_quantile(degrees=100, failure=0.05), 4)
    11.1509
    """
    n = checks.count("degrees", degrees)
    p = checks.failure_probability(failure)
    return 0.0 if n == 0 else _raised(math.sqrt(float(special.chdtri(n, p))))


def row_noise_quantile(
    *, rows: int, columns: int, active: int, failure: float, block: int = 1
) -> float:
    """t^a of Theorem A: every row of standard noise, on every ``active`` columns, is at most this.

    sqrt(active) + sqrt(2 (ln rows + ln C(columns, active) + ln(1/failure))), or the exact quantile
    of the chi distribution where its argument is not too small, whichever is less. With ``block``
    above 1 columns are counted in blocks of so many, which are active as a whole.

    >>> round(row_noise_quantile(rows=100, columns=784, active=784, failure=0.01), 2)
    30.66
    """
    nats = _log_choose(columns, active) + math.log(rows) - math.log(failure)
    quantile = _raised(math.sqrt(active * block) + math.sqrt(2.0 * nats))
    if nats < 600.0:
        quantile = min(quantile, chi_quantile(degrees=active * block, failure=math.exp(-nats)))
    return quantile


def block_noise_quantile(
    *,
    rows: int,
    active_rows: int,
    columns: int,
    active_columns: int,
    failure: float,
    blocks: tuple[int, int] = (1, 1),
) -> float:
    """t^b of Theorem A: every block of standard noise of this size has spectral norm at most this.

    Rows and columns are counted in blocks of so many.

    >>> round(block_noise_quantile(rows=100, active_rows=100, columns=784, active_columns=784,
    ...                            failure=0.01), 2)
    41.03
    """
    nats = _log_choose(rows, active_rows) + _log_choose(columns, active_columns) - math.log(failure)
    tall, wide = active_rows * blocks[0], active_columns * blocks[1]
    return _raised(math.sqrt(tall) + math.sqrt(wide) + math.sqrt(2.0 * nats))


def _self_normalized_tail(t: float) -> float:
    def integrand(angle: float) -> float:
        cosine, sine = t * math.cos(angle), t * math.sin(angle)
        return math.exp(-0.5 * cosine * cosine) / _ROOT_TWO_PI * sine * float(special.ndtr(-sine))

    integral, _ = integrate.quad(
        integrand, 0.0, math.pi / 2.0, epsabs=1e-14, epsrel=1e-11, limit=200
    )
    return 1.5 * float(special.ndtr(-t)) + float(integral)


def _log_choose(total: int, chosen: int) -> float:
    if not 0 <= chosen <= total:
        raise BadInput(f"at most {total} units can be active, got {chosen}.")
    if chosen in (0, total):
        return 0.0
    return float(log_choose(total, chosen)) + 1e-9


def _at_most_half(failure: Any) -> float:
    p = checks.failure_probability(failure)
    if p > 0.5:
        raise BadInput(f"failure must be at most 1/2, got failure = {failure!r}.")
    return p


def _raised(value: float) -> float:
    return value * (1.0 + _QUANTILE_SLACK) if value > 0.0 else 0.0
