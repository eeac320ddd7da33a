"""Exact bounds from counts of errors on examples that trained nothing (Clopper and Pearson, 1934).

And how many examples are enough for one, before anybody looks at an example.

The upper end is the p at which ``errors`` or fewer errors among ``examples`` would happen with
probability exactly ``failure``. The tail P(Bin(n, p) <= k) is the k-th point probability, in
Loader's form  exp(-n kl(k/n, p)) times Stirling corrections, times a short sum of ratios: relative
error below 1e-11 up to n = 10^9, where library inverses of the incomplete beta function are off by
a few parts in 10^9, on either side.
"""

from __future__ import annotations

import math
from bisect import bisect
from typing import Any

from nonvacuous.bounds.binary_kl import binary_kl, kl_inverse_upper
from nonvacuous.bounds.later import numpy as np
from nonvacuous.bounds.later import special
from nonvacuous.bounds.rounding import as_risk, down, up
from nonvacuous.bounds.table import FIRST, Input, Reading, guarded, theorem
from nonvacuous.errors import BadInput

__all__ = [
    "allowed_errors",
    "chance_to_promise",
    "constant_lower",
    "examples_needed",
    "holdout",
    "holdout_lower",
    "sampling",
    "sampling_bounded",
]

#: The computed tail may be off by this much, relative; the result is pushed past it.
_TAIL_ERROR = 1e-10
#: Beyond some 10^11 examples the exact tail is not worth its sum: Chernoff's is as good there.
_LONGEST_SUM = 2_000_000
#: A sum longer than this is worth the import of numpy.
_LONGEST_LOOP = 20_000
#: Beyond this many errors the number of examples is not searched for any more.
_MOST_ERRORS = 2_000_000


@theorem(
    Reading("Exact binomial tail", "Clopper and Pearson", "exact binomial tail", FIRST),
    source="Exact binomial tail: Clopper and Pearson (1934), Langford (2005), Theorem 3.3",
    about=("deterministic", "drawn"),
    certifies=True,
)
def holdout(*, errors: int, examples: int, failure: float) -> float:
    """Upper bound on the risk of one fixed predictor from its errors on held-out examples.

    Statement: with probability at least 1 - failure over the draw of ``examples`` independent,
    identically distributed examples, the risk is at most the returned value.
    Assumptions: the predictor was fixed before it met these examples; losses are 0 or 1.

    >>> round(holdout(errors=100, examples=10_000, failure=0.05), 4)
    0.0118
    """
    quick = _quick_end(errors, examples, failure) if 0 < errors < examples else None
    return tail_end(errors, examples, failure) if quick is None else quick


@theorem(
    source="Exact binomial tail: Clopper and Pearson (1934)",
    about=("deterministic", "drawn"),
    lower=True,
)
def holdout_lower(*, errors: int, examples: int, failure: float) -> float:
    """Lower bound on the risk of one fixed predictor: the mirror image of :func:`holdout`.

    >>> round(holdout_lower(errors=100, examples=10_000, failure=0.05), 4)
    0.0084
    """
    if errors == 0:
        return 0.0
    right = holdout(errors=examples - errors, examples=examples, failure=failure)
    return as_risk(down(1.0 - right, ulps=1))


@theorem(
    source="Clopper and Pearson (1934); Berger (1982) for the intersection-union",
    about=("best constant answer",),
    lower=True,
    most_frequent=Input(
        "examples of the most frequent class", 100, push=-1, whole=True, at_most="examples"
    ),
    examples=Input("independent examples", 10_000, push=1, low=1, whole=True),
)
def constant_lower(*, most_frequent: int, examples: int, failure: float) -> float:
    """Lower bound on the risk of the best constant answer, from the class counts of a sample.

    Statement: ``most_frequent`` is the count of the most frequent class among ``examples``. With
    probability at least 1 - failure over the draw of the examples, no constant answer has a risk
    below the returned value.
    Assumptions: the examples are independent and identically distributed. They may have trained
    anything: no constant depends on them.

    Proof: let c be the class that is most frequent in the distribution, which no sample decides.
    Always answering c is a fixed predictor and errs on n - n_c of the n examples, so its
    Clopper-Pearson lower end L_c fails with probability at most ``failure``. That end grows with
    the number of errors, hence the returned value, the end for the class most frequent in the
    sample, is at most L_c; and every other constant errs at least as often as c. No share is paid
    for the classes (intersection-union).

    Beside a promise: if U bounds the risk of a predictor with failure δ, both this bound and U hold
    with failure at most δ + ``failure``, whatever their dependence; where U is below this bound the
    predictor is better than every constant answer.

    >>> round(constant_lower(most_frequent=953, examples=1000, failure=0.005), 4)
    0.0315
    """
    return holdout_lower(errors=examples - most_frequent, examples=examples, failure=failure)


# The price of Monte Carlo: upper ends for a mean that was only sampled.


@theorem(
    Reading(
        "Chernoff",
        "the binomial tail bounded by its kl form",
        "Chernoff's bound",
        options={"identical": False},
        name="chernoff",
        about="deterministic",
    ),
    source="Clopper and Pearson (1934); Hoeffding (1963), Theorem 1, where trials differ",
    about=("mean of trials",),
)
def sampling(*, errors: int, trials: int, failure: float, identical: bool = True) -> float:
    """Upper end for the mean of independent trials in {0, 1}.

    Statement: with probability at least 1 - failure over the trials, their mean success
    probability is at most the returned value.
    Assumptions: trials are independent. ``identical=True`` (each trial draws its example afresh,
    with replacement) allows the exact binomial tail; for independent trials of *different*
    probabilities that tail can be too small, and ``identical=False`` uses the kl form instead
    (Chernoff; Hoeffding 1963, Theorem 1), which holds for both.

    >>> round(sampling(errors=1_000, trials=100_000, failure=0.01), 5)
    0.01076
    """
    if identical:
        return holdout(errors=errors, examples=trials, failure=failure)
    return sampling_bounded(total=float(errors), trials=trials, failure=failure)


@theorem(
    source="Hoeffding (1963), Theorem 1, in its kl form",
    about=("mean of trials",),
    total=Input("the sum of the trials", 100.5, push=1, at_most="trials"),
)
def sampling_bounded(*, total: float, trials: int, failure: float) -> float:
    """Upper end for the mean of independent trials in [0, 1], from the ``total`` of their values.

    Statement: with probability at least 1 - failure the average expectation of the trials is at
    most the returned value. Assumptions: independence and the range [0, 1]; the trials need not
    be identically distributed.

    >>> round(sampling_bounded(total=1_000.0, trials=100_000, failure=0.01), 5)
    0.01099
    """
    exponent = up(-math.log(failure) / trials)
    mean = min(1.0, up(total / trials, ulps=1))
    return as_risk(float(kl_inverse_upper(mean, exponent)))


def tail_end(errors: int, examples: int, failure: float) -> float:
    """The upper end from the tail itself, in plain ``math`` unless the sum is long."""
    if errors == examples:
        return 1.0
    if errors == 0:
        return as_risk(up(-math.expm1(math.log(failure) / examples)))
    rate = errors / examples
    # Chernoff's bound is never below the exact end: a bracket, and a result of last resort.
    chernoff = float(kl_inverse_upper(rate, up(-math.log(failure) / examples)))
    floor = up(rate)
    if floor >= 1.0 or _terms(errors, examples, rate) > _LONGEST_SUM:
        return as_risk(chernoff)
    target = math.log(failure) - _TAIL_ERROR
    if _log_tail(errors, examples, floor) <= target:
        return floor  # only for failure of about one half and more
    risk = chernoff
    # The log tail is concave in the risk: from the right Newton's steps never pass the end.
    for _ in range(12):
        if risk >= 1.0:
            return 1.0
        log_tail = _log_tail(errors, examples, risk)
        log_ratio = _log_point(errors, examples, risk) - log_tail
        slope = (examples - errors) / (1.0 - risk) * math.exp(log_ratio)
        before, risk = risk, min(max(risk + (log_tail - target) / slope, floor), chernoff)
        if before - risk <= 1e-15 * risk:
            break
    for widening in (4, 64, 1024, 2**14, 2**18):
        widened = up(risk, ulps=widening)
        if widened < min(chernoff, 1.0) and _log_tail(errors, examples, widened) <= target:
            return widened
    return as_risk(chernoff)


def _quick_end(errors: int, examples: int, failure: float) -> float | None:
    """The upper end in some ten microseconds, or None where the library's tail is not trusted.

    The inverse is only a first guess: what is returned has been pushed up until the tail itself
    lies below ``failure`` by thirty times the tail's error, which is below 3e-14 up to 10^6.
    """
    if examples > 1_000_000 or not 1e-100 < failure < 0.4:
        return None
    a, b = errors + 1.0, float(examples - errors)
    risk = float(special.betainccinv(a, b, failure))
    target = failure * (1.0 - 1e-12)
    for push in (1e-13, 1e-12, 1e-11, 1e-10):
        end = risk + risk * push
        if errors < end * examples and end < 1.0 and special.betaincc(a, b, end) <= target:
            return end
    return None


def _log_tail(errors: int, examples: int, risk: float) -> float:
    """ln P(Bin(examples, risk) <= errors), for 0 < errors < examples and risk >= errors/examples.

    The sum runs from the largest term down and stops where the rest is below 1e-16 of it.
    """
    terms, odds, rest = _terms(errors, examples, risk), (1.0 - risk) / risk, examples - errors + 1.0
    if terms > _LONGEST_LOOP:
        steps = np.arange(terms, dtype=np.float64)
        total = float(np.cumprod(odds * ((errors - steps) / (rest + steps))).sum())
    else:
        total, term = 0.0, 1.0
        for step in range(terms):
            term *= odds * (errors - step) / (rest + step)
            total += term
            if term < 1e-17:
                break
    return _log_point(errors, examples, risk) + math.log1p(total)


def _terms(errors: int, examples: int, risk: float) -> int:
    """How many terms of the tail matter: twelve standard deviations of them."""
    return min(errors, 64 + int(12.0 * math.sqrt(examples * risk * (1.0 - risk))))


def _log_point(errors: int, examples: int, risk: float) -> float:
    """ln P(Bin(examples, risk) = errors) for 0 < errors < examples."""
    rest = examples - errors
    corrections = _stirling(examples) - _stirling(errors) - _stirling(rest)
    spread = 0.5 * math.log(examples / (2.0 * math.pi * errors * rest))
    return spread + corrections - examples * float(binary_kl(errors / examples, risk))


def log_choose(total: Any, chosen: Any) -> Any:
    """ln of the number of ways to choose so many of so many; of numbers or arrays."""
    return (
        special.gammaln(total + 1.0)
        - special.gammaln(chosen + 1.0)
        - special.gammaln(total - chosen + 1.0)
    )


def _stirling(n: int) -> float:
    """ln n! - (n ln n - n + ln(2 pi n) / 2)."""
    if n < 16:
        return math.lgamma(n + 1) - (n * math.log(n) - n + 0.5 * math.log(2.0 * math.pi * n))
    square = float(n) * n
    return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * square)) / square) / square) / n


# How many examples are enough?


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
    while (short := special.bdtr(errors, high, goal) > failure).any():
        high[short] *= 2
    while (high - low).max() > 1:
        middle = (low + high) // 2
        enough = special.bdtr(errors, np.maximum(middle, errors), goal) <= failure
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)
