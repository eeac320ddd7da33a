"""Slow, independent versions of every bound, in 60-digit arithmetic.

Nothing here imports the library. Each function is written from the statement of its theorem,
takes its inputs as the exact real numbers that the given floats stand for, and prefers a formula
that differs from the obvious one, so that a mistake in the library is unlikely to be made twice.
Results are ``mpf`` numbers, correct to far more digits than any tolerance used in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import mpmath

# A context of our own: whoever changes the digits of mpmath's global one does not change ours.
mp = mpmath.MPContext()
mp.dps = 60
mpf = mp.mpf

Real = float | int | Fraction | mpf


def real(value: Real) -> mpf:
    """The number itself, without a detour through a decimal or a float."""
    if isinstance(value, Fraction):
        return mpf(value.numerator) / mpf(value.denominator)
    return mpf(value)


# --------------------------------------------------------------------------- binary kl


def binary_kl(q: Real, p: Real) -> mpf:
    """kl(q, p) = q ln(q/p) + (1-q) ln((1-q)/(1-p)) in nats.

    The second logarithm is taken as log1p((p-q)/(1-p)), which does not lose a tiny q or p. The
    two terms nearly cancel when p is near q: 60 digits minus the 16 digits by which two different
    doubles may agree leaves 44.
    """
    q, p = real(q), real(p)
    if q == p:
        return mpf(0)
    if (p == 0 and q > 0) or (p == 1 and q < 1):
        return mp.inf
    first = q * mp.log(q / p) if q > 0 else mpf(0)
    second = (1 - q) * mp.log1p((p - q) / (1 - p)) if q < 1 else mpf(0)
    return first + second


def _kl_of_tilt(q: mpf, tilt: mpf) -> mpf:
    """kl(q, p) where logit(p) = logit(q) + tilt: ln(1 - q + q e^tilt) - q tilt."""
    # Both terms are about q*tilt while the result is about q(1-q)tilt^2/2, so a tilt of 10^-k
    # costs k digits; q within 10^-16 of 1 costs another 16.
    extra = max(0, -int(mp.floor(mp.log10(abs(tilt))))) if tilt != 0 else 0
    with mp.workdps(mp.dps + extra + 20):
        return mp.log1p(q * mp.expm1(tilt)) - q * tilt


def _increasing_root(function: Callable[[mpf], mpf], low: mpf, high: mpf) -> mpf:
    """The zero of an increasing function between low and high: bisection and false position."""
    at_low, at_high = function(low), function(high)
    if at_low >= 0:
        return low
    if at_high <= 0:
        return high
    tolerance = mpf(10) ** (-(mp.dps - 8))
    for step in range(2000):
        if high - low <= tolerance * max(abs(low), abs(high), tolerance):
            break
        # Two steps of false position (with the Illinois halving below), then one bisection:
        # fast near the root, and the bracket is sure to shrink.
        if step % 3 == 2:
            middle = (low + high) / 2
        else:
            middle = high - at_high * (high - low) / (at_high - at_low)
            if not low < middle < high:
                middle = (low + high) / 2
        value = function(middle)
        if value == 0:
            return middle
        if value < 0:
            low, at_low, at_high = middle, value, at_high / 2
        else:
            high, at_high, at_low = middle, value, at_low / 2
    return (low + high) / 2


def _inverse_tilt(q: mpf, c: mpf, sign: int) -> mpf:
    """The size of the tilt for which kl equals c, found on the logarithms of both."""
    mass = 1 - q if sign > 0 else q
    other = q if sign > 0 else 1 - q
    # kl <= tilt^2/8 because a Bernoulli variance is at most 1/4; and kl >= mass*|tilt| + ln other.
    low = mp.sqrt(8 * c)
    high = max((c - mp.log(other)) / mass + 1, low * 2)
    root = _increasing_root(
        lambda y: mp.log(_kl_of_tilt(q, sign * mp.exp(y))) - mp.log(c), mp.log(low), mp.log(high)
    )
    return mp.exp(root)


def kl_inverse_upper(q: Real, c: Real) -> mpf:
    """The largest p with kl(q, p) <= c."""
    q, c = real(q), real(c)
    if c == 0:
        return q
    if q == 1 or c == mp.inf:
        return mpf(1)
    if q == 0:
        return -mp.expm1(-c)
    tilt = _inverse_tilt(q, c, +1)
    return q + q * (1 - q) * mp.expm1(tilt) / (1 + q * mp.expm1(tilt))


def kl_inverse_lower(q: Real, c: Real) -> mpf:
    """The smallest p with kl(q, p) <= c."""
    q, c = real(q), real(c)
    if c == 0:
        return q
    if q == 0 or c == mp.inf:
        return mpf(0)
    if q == 1:
        return mp.exp(-c)
    tilt = _inverse_tilt(q, c, -1)
    return q * mp.exp(-tilt) / (1 + q * mp.expm1(-tilt))


# --------------------------------------------------------------------------- Maurer's moment


def maurer_moment_by_definition(examples: int) -> Fraction:
    """xi(n) = sum over k of C(n,k) (k/n)^k (1-k/n)^(n-k), as an exact fraction (small n)."""
    n = examples
    total = sum(math.comb(n, k) * k**k * (n - k) ** (n - k) for k in range(n + 1))
    return Fraction(total, n**n)


def maurer_moment(examples: int) -> mpf:
    """xi(n) = sum over j of n!/((n-j)! n^j): the same number, by Abel's identity.

    sum_k C(n,k) k^k (n-k)^(n-k) = n! sum_j n^j/j!. The terms fall like exp(-j^2/2n), so about
    20 sqrt(n) of them are enough; whole numbers scaled by 2^256 stand for the terms.
    """
    scale = 256
    term = total = 1 << scale
    for j in range(1, examples + 1):
        term = term * (examples - j + 1) // examples
        if term == 0:
            break
        total += term
    return mpf(total) / mpf(1 << scale)


def maurer_moment_by_expansion(examples: int) -> mpf:
    """The first terms of the expansion of Ramanujan's Q-function plus one (large n)."""
    n = mpf(examples)
    root = mp.sqrt(mp.pi / (2 * n))
    return n * root + mpf(2) / 3 + root / 12 - 4 / (135 * n) + root / (288 * n) + 8 / (2835 * n**2)


# --------------------------------------------------------------------------- PAC-Bayes


def _capped(value: mpf) -> mpf:
    return min(mpf(1), value)


def _moment(examples: int, exact_moment: bool) -> mpf:
    return maurer_moment(examples) if exact_moment else 2 * mp.sqrt(examples)


def seeger(
    empirical_risk: Real,
    kl_nats: Real,
    examples: int,
    failure: Real,
    exact_moment: bool = False,
) -> mpf:
    moment = _moment(examples, exact_moment)
    exponent = (real(kl_nats) + mp.log(moment / real(failure))) / examples
    return kl_inverse_upper(empirical_risk, exponent)


def mcallester(empirical_risk: Real, kl_nats: Real, examples: int, failure: Real) -> mpf:
    complexity = real(kl_nats) + mp.log(2 * mp.sqrt(examples) / real(failure))
    return _capped(real(empirical_risk) + mp.sqrt(complexity / (2 * examples)))


def quadratic(empirical_risk: Real, kl_nats: Real, examples: int, failure: Real) -> mpf:
    """Solves p - r = sqrt(2 p B), B = (KL + ln(2 sqrt(n)/delta))/n, as a quadratic in sqrt(p)."""
    complexity = (real(kl_nats) + mp.log(2 * mp.sqrt(examples) / real(failure))) / examples
    half = mp.sqrt(2 * complexity)
    root = (half + mp.sqrt(half**2 + 4 * real(empirical_risk))) / 2
    return _capped(root**2)


def thiemann(
    empirical_risk: Real, kl_nats: Real, examples: int, failure: Real, trade_off: Real
) -> mpf:
    complexity = (real(kl_nats) + mp.log(2 * mp.sqrt(examples) / real(failure))) / examples
    rate = real(trade_off)
    return _capped((rate * real(empirical_risk) + complexity) / (rate * (1 - rate / 2)))


def thiemann_union(
    empirical_risk: Real, kl_nats: Real, examples: int, failure: Real, grid: Sequence[Real]
) -> mpf:
    share = real(failure) / len(grid)
    return min(thiemann(empirical_risk, kl_nats, examples, share, rate) for rate in grid)


def catoni(
    empirical_risk: Real, kl_nats: Real, examples: int, failure: Real, temperature: Real
) -> mpf:
    rate = real(temperature)
    exponent = rate * real(empirical_risk) + (real(kl_nats) - mp.log(real(failure))) / examples
    return _capped(mp.expm1(-exponent) / mp.expm1(-rate))


def catoni_union(
    empirical_risk: Real, kl_nats: Real, examples: int, failure: Real, grid: Sequence[Real]
) -> mpf:
    share = real(failure) / len(grid)
    return min(catoni(empirical_risk, kl_nats, examples, share, rate) for rate in grid)


def catoni_infimum(empirical_risk: Real, kl_nats: Real, examples: int, failure: Real) -> mpf:
    """What no temperature can beat: the kl inverse without any moment term."""
    exponent = (real(kl_nats) - mp.log(real(failure))) / examples
    return kl_inverse_upper(empirical_risk, exponent)


def split_kl(
    levels: Sequence[Real],
    tail_risks: Sequence[Real],
    kl_nats: Real,
    examples: int,
    failure: Real,
) -> mpf:
    parts = len(levels) - 1
    assert len(tail_risks) == parts
    exponent = (real(kl_nats) + mp.log(2 * parts * mp.sqrt(examples) / real(failure))) / examples
    total = real(levels[0])
    for j, tail in enumerate(tail_risks):
        total += (real(levels[j + 1]) - real(levels[j])) * kl_inverse_upper(tail, exponent)
    return _capped(total)


def empirical_bernstein(
    empirical_risk: Real,
    second_moment: Real,
    kl_nats: Real,
    examples: int,
    failure: Real,
    grid: Sequence[Real],
) -> mpf:
    """eta*theta(eta) = (-ln(1-eta) - eta)/eta = eta/2 + eta^2/3 + eta^3/4 + ..."""
    complexity = (real(kl_nats) + mp.log(len(grid) / real(failure))) / examples
    values = []
    for rate in map(real, grid):
        with mp.workdps(2 * mp.dps):
            price = (-mp.log(1 - rate) - rate) / rate
        values.append(real(empirical_risk) + price * real(second_moment) + complexity / rate)
    return _capped(min(values))


# --------------------------------------------------------------------------- one drawn hypothesis


def disintegrated(
    empirical_risk: Real,
    log_density_ratio: Real,
    examples: int,
    failure: Real,
    exact_moment: bool = False,
) -> mpf:
    moment = _moment(examples, exact_moment)
    exponent = (real(log_density_ratio) + mp.log(moment / real(failure))) / examples
    return kl_inverse_upper(empirical_risk, max(mpf(0), exponent))


def disintegrated_renyi(
    empirical_risk: Real, renyi_nats: Real, order: Real, examples: int, failure: Real
) -> mpf:
    order = real(order)
    price = (2 * order - 1) / (order - 1) * mp.log(2 / real(failure))
    exponent = (real(renyi_nats) + price + mp.log(2 * mp.sqrt(examples))) / examples
    return kl_inverse_upper(empirical_risk, exponent)


# --------------------------------------------------------------------------- binomial tails


def binomial_cdf(errors: int, examples: int, p: Real) -> mpf:
    """P(Bin(n, p) <= k), relative accuracy about 10^-30, for n up to 10^9 and beyond.

    The terms from k downwards, each from the one before by its exact ratio, as whole numbers
    scaled by 2^160; they fall off within some fifteen standard deviations. Meant for p >= k/n.
    """
    k, n, p = errors, examples, real(p)
    if k >= n or p == 0:
        return mpf(1)
    if p == 1:
        return mpf(0)
    with mp.workdps(mp.dps + 30):
        log_choose = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
        top = mp.exp(log_choose + k * mp.log(p) + (n - k) * mp.log1p(-p))
        odds = (1 - p) / p
        shift = 200 + max(0, -int(mp.floor(mp.log(odds, 2))))
        ratio = int(mp.floor(odds * mpf(2) ** shift))
    term = total = 1 << 160
    for j in range(k, 0, -1):
        term = ((term * ratio) >> shift) * j // (n - j + 1)
        if term == 0:
            break
        total += term
    return top * mpf(total) / mpf(1 << 160)


def holdout(errors: int, examples: int, failure: Real) -> mpf:
    """The largest p with P(Bin(n, p) <= k) >= delta (Clopper and Pearson, one side)."""
    k, n, delta = errors, examples, real(failure)
    if k == n:
        return mpf(1)
    if k == 0:
        return -mp.expm1(mp.log(delta) / n)
    # Chernoff's bound is above the answer; k/n is below it when delta <= 1/2, because the median
    # of a binomial with whole mean is that mean.
    high = kl_inverse_upper(Fraction(k, n), -mp.log(delta) / n)
    low = mpf(k) / n if delta <= 0.5 else mpf(k) / (n * 10**6)
    return _increasing_root(
        lambda p: mp.log(delta) - mp.log(binomial_cdf(k, n, p)), low, high + (1 - high) / 10**6
    )


def holdout_lower(errors: int, examples: int, failure: Real) -> mpf:
    """The smallest p with P(Bin(n, p) >= k) >= delta: the upper one, right and wrong swapped."""
    return 1 - holdout(examples - errors, examples, failure)


def sampling(errors: int, trials: int, failure: Real, identical: bool = True) -> mpf:
    if identical:
        return holdout(errors, trials, failure)
    return kl_inverse_upper(Fraction(errors, trials), -mp.log(real(failure)) / trials)


def sampling_bounded(total: Real, trials: int, failure: Real) -> mpf:
    return kl_inverse_upper(real(total) / trials, -mp.log(real(failure)) / trials)


def bernstein(empirical_risk: Real, variance: Real, examples: int, failure: Real) -> mpf:
    nats = mp.log(2 / real(failure))
    slack = mp.sqrt(2 * real(variance) * nats / examples) + 7 * nats / (3 * mpf(examples - 1))
    return _capped(real(empirical_risk) + slack)


def bernstein_world(dice, worlds):  # type: ignore[no-untyped-def]
    """Losses of small variance, so that 60 of them promise something."""
    losses = dice.binomial(3, 0.05, (worlds, 60)) / 20
    columns = {"empirical_risk": losses.mean(axis=1), "variance": losses.var(axis=1, ddof=1)}
    return columns, 0.0075


def jaccard_lower(hits: int, relevant: int, failure: Real) -> mpf:
    return holdout_lower(hits, relevant, failure) if relevant else mpf(0)


def jaccard_lower_world(dice, worlds):  # type: ignore[no-untyped-def]
    return {"hits": dice.binomial(60, 0.8, worlds), "relevant": [60] * worlds}, 0.8


def f1_lower(hits: int, relevant: int, failure: Real) -> mpf:
    """2 hits / (hits + relevant), at the rate where the tail of the hits is as likely as delta."""
    rate = jaccard_lower(hits, relevant, failure)
    return 2 - 2 / (1 + rate)


def f1_lower_world(dice, worlds):  # type: ignore[no-untyped-def]
    return {"hits": dice.binomial(60, 0.8, worlds), "relevant": [60] * worlds}, 2 * 0.8 / 1.8


def constant_lower(most_frequent: int, examples: int, failure: Real) -> mpf:
    return 1 - holdout(most_frequent, examples, failure)


def constant_lower_world(dice, worlds):  # type: ignore[no-untyped-def]
    """Two classes, the rarer one with a share of 0.4."""
    rare = dice.binomial(60, 0.4, worlds)
    return {"most_frequent": [max(k, 60 - k) for k in rare]}, 0.4


# --------------------------------------------------------------------------- one fixed network


def derandomized(
    loss_upper: Real, escape: Real, kl_nats: Real, grid_nats: Real, examples: int, failure: Real
) -> mpf:
    seen = seeger(loss_upper, real(kl_nats) + real(grid_nats), examples, failure)
    return mpf(1) if escape == 1 else _capped(seen / (1 - real(escape)))


def derandomized_world(dice, worlds):  # type: ignore[no-untyped-def]
    """One network with a risk of 0.2; noise sees nine of ten of its errors, and nothing else."""
    seen = 0.9 * dice.binomial(60, 0.2, worlds) / 60
    zeros = [0.0] * worlds
    return {"loss_upper": seen, "escape": [0.1] * worlds, "kl_nats": zeros, "grid_nats": zeros}, 0.2


def compression(kept: int, examples: int, failure: Real) -> mpf:
    """The root of the statement's sum, term by term from binomial coefficients."""
    k, n = kept, examples
    if k == n:
        return mpf(1)
    shares = [mp.exp(_log_choose(m, k) - _log_choose(n, k)) for m in range(k, n)]

    def log_sum(risk: mpf) -> mpf:
        total, power = mpf(0), mpf(1)
        for share in reversed(shares):
            power /= 1 - risk
            total += share * power
        return mp.log(real(failure) / n * total)

    return _increasing_root(log_sum, mpf(k) / n, 1 - mpf(10) ** -30)


def _log_choose(n: int, k: int) -> mpf:
    return mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)


def compression_world(dice, worlds):  # type: ignore[no-untyped-def]
    """Points of [0, 1], all of one class; who remembers the largest errs only beyond it."""
    return {"kept": [1] * worlds}, 1 - dice.random((worlds, 60)).max(axis=1)


# --------------------------------------------------------------------------- over time


def progressive(errors: int, trials: int, tilt: Real, failure: Real) -> mpf:
    exponent = (real(tilt) * errors - mp.log(real(failure))) / trials
    return _capped((1 - mp.exp(-exponent)) / (1 - mp.exp(-real(tilt))))


def gate_failure(errors: int, trials: int, threshold: Real) -> mpf:
    mass, k = trials * real(threshold), errors
    rest = mass - k
    if rest <= 0:
        return mpf(1)
    return mp.fsum(
        rest * (rest + j) ** (j - 1) * mp.exp(-(rest + j)) / mp.factorial(j) for j in range(k + 1)
    )


def gate_failure_world(dice, worlds):  # type: ignore[no-untyped-def]
    """A risk at the threshold: the gate may open in a tenth of the worlds."""
    return {"errors": dice.binomial(60, 0.02, worlds)}, 0.1


def gate(errors: int, trials: int, threshold: Real, failure: Real) -> mpf:
    passed = gate_failure(errors, trials, threshold) <= real(failure)
    return real(threshold) if passed else mpf(1)


TILTS = tuple(mpf(2) ** (2 - j) for j in range(16))


def _sequence(errors: Real, trials: int, failure: Real, sign: int) -> mpf:
    """Where the mean over the tilts of exp(hS) / (1 + p(exp(h) - 1))^t is 1/delta."""
    amount, rate = real(errors), real(errors) / trials

    def log_capital(mean: mpf) -> mpf:
        capitals = (
            mp.exp(sign * h * amount - trials * mp.log1p(mean * mp.expm1(sign * h))) for h in TILTS
        )
        return mp.log(mp.fsum(capitals) / len(TILTS) * real(failure))

    end = mpf(0) if sign > 0 else 1 - mpf(10) ** -50
    if log_capital(end) < 0:
        return mpf(0) if sign > 0 else mpf(1)
    if sign > 0:
        return 1 - _increasing_root(lambda safe: log_capital(1 - safe), 1 - rate, mpf(1))
    return _increasing_root(log_capital, rate, end)


def sequence_lower(errors: Real, trials: int, failure: Real) -> mpf:
    return _sequence(errors, trials, failure, 1)


def sequence_upper(errors: Real, trials: int, failure: Real) -> mpf:
    return _sequence(errors, trials, failure, -1)
