"""The moment that PAC-Bayes-kl bounds pay for: xi(n), and its usual stand-in 2 sqrt(n)."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import accumulate
from operator import mul

from nonvacuous.bounds import checks
from nonvacuous.bounds.rounding import up

__all__ = ["maurer_moment"]

#: Beyond this many examples Ramanujan's expansion of the sum is right to 3e-14, and above it.
_SUMMED = 10**8


@lru_cache(maxsize=256)
def _moment(examples: int) -> float:
    if examples > _SUMMED:
        # sqrt(pi n / 2) + 2/3 + sqrt(pi / 2n) / 12 - 4 / 135n + ...: cut before a negative term.
        half_pi = math.pi / 2.0
        return up(math.sqrt(half_pi * examples) + 2.0 / 3.0 + math.sqrt(half_pi / examples) / 12.0)
    # Terms fall like exp(-j^2 / 2n): after 9 sqrt(n) of them nothing is left but rounding.
    length = min(examples, 16 + 9 * math.isqrt(examples))
    # Each factor may be off by one unit of rounding, and the mean term lies at 0.8 sqrt(n).
    terms = list(accumulate((1.0 - j / examples for j in range(1, length)), mul, initial=1.0))
    # Later terms shrink at least by the factor (1 - length/n) each: a geometric remainder.
    remainder = terms[-1] * (examples - length) / length
    return up(1.0 + math.fsum(terms) + remainder, ulps=4 + length // 8)


def maurer_moment(examples: int) -> float:
    """xi(n) = sum over k of C(n, k) (k/n)^k (1 - k/n)^(n-k), rounded up.

    The largest value that E exp(n kl(empirical risk, risk)) takes for losses in [0, 1] (Maurer,
    2004, Theorem 1). It equals 1 + sum over j >= 1 of n (n-1) ... (n-j+1) / n^j (Ramanujan's sum),
    which has positive terms and needs about 9 sqrt(n) of them. At most 2 sqrt(n).

    >>> round(maurer_moment(1), 6)
    2.0
    >>> round(maurer_moment(60_000) / (2 * 60_000**0.5), 4)
    0.628
    """
    return _moment(checks.count("examples", examples, minimum=1))


def log_moment(examples: int, *, exact: bool) -> float:
    """ln xi(n), or ln(2 sqrt(n)), rounded up."""
    if exact:
        return up(math.log(maurer_moment(examples)))
    return up(math.log(2.0) + 0.5 * math.log(examples))
