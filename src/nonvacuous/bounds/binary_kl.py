"""The binary relative entropy kl(q, p), its two inverses and its moment, always on the safe side.

    kl(q, p) = q ln(q/p) + (1 - q) ln((1 - q)/(1 - p))                            (nats)

**Accuracy of kl.** With d = p - q the linear parts of the two logarithms cancel exactly, and

    kl(q, p) = q phi(d / q) + (1 - q) phi(-d / (1 - q)),      phi(x) = x - ln(1 + x) >= 0,

a sum of two non-negative terms: no cancellation, a few units of rounding error relative.

**The inverses.** Write (a, b) = (1 - q, q) for the upper inverse and (q, 1 - q) for the lower one.
Both ask for the t >= 0 with

    F(t) = a t - b ln(1 + a (1 - e^-t) / b) = c,

and give p = 1 - (1 - q) e^-t (upper) or p = q e^-t (lower). F is increasing and convex, quadratic
near 0 and linear far away, so Halley's iteration from t0 = c/a + sqrt(2 b c / a) settles in a
fixed number of steps. Rounding in F moves p by a few units in the last place only, because
dF/dt = (p - q)/p is large where F itself is; the result is widened by many times that, and then
*checked* with the accurate kl: a value that failed the check would be replaced by the trivial
bound, so convergence is a matter of tightness and never of validity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from math import expm1, log, log1p, sqrt
from operator import mul
from typing import TYPE_CHECKING, Any

from nonvacuous.bounds import checks
from nonvacuous.bounds.later import numpy as np
from nonvacuous.bounds.rounding import EPSILON, up
from nonvacuous.errors import BadInput

if TYPE_CHECKING:
    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]

__all__ = ["binary_kl", "kl_inverse_lower", "kl_inverse_upper", "maurer_moment"]

#: Halley steps. Three reach full precision from the starting point; one is spare.
STEPS = 4
#: Stand-in for smaller positive numbers. The upper inverse grows with q and with c and the lower
#: one shrinks with c, so raising a tiny argument to this floor keeps the bound a bound, and moves
#: it by less than 1e-140; in return no quotient overflows.
FLOOR = 1e-290
#: Beyond this t the distance e^-t to the end of the interval is below the smallest double.
LARGEST_T = 800.0
#: How far a result is widened, relative: 32 units of rounding, where at most 6 were ever lost.
WIDENING = 32 * EPSILON
#: What the check of a result allows for rounding inside the accurate kl.
CHECK_SLACK = 8 * EPSILON
#: A step this short, relative, leaves an error of its cube: below rounding.
_SETTLED = 1e-6
#: Arrays are worked through in pieces that stay in the processor's cache.
_CHUNK = 4096


def binary_kl(q: npt.ArrayLike, p: npt.ArrayLike) -> Any:
    """Relative entropy, in nats, from a coin of bias ``p`` to a coin of bias ``q``.

    Floats give a float, arrays (broadcast together) give an array. Infinite where p is 0 or 1 and
    q is not.

    >>> round(binary_kl(0.1, 0.2), 6)
    0.03669
    """
    return _apply(_kl, _scalar_kl, q, p, "p", most=1.0)


def kl_inverse_upper(q: npt.ArrayLike, c: npt.ArrayLike) -> Any:
    """The largest p with ``binary_kl(q, p) <= c``, rounded up.

    Never below the true value; above it by at most 1e-12 relative. Floats or arrays.

    >>> round(kl_inverse_upper(0.01, 0.002), 6)
    0.017654
    """
    return _apply(_upper, _scalar_upper, q, c, "c")


def kl_inverse_lower(q: npt.ArrayLike, c: npt.ArrayLike) -> Any:
    """The smallest p with ``binary_kl(q, p) <= c``, rounded down. Floats or arrays.

    >>> round(kl_inverse_lower(0.01, 0.002), 6)
    0.004945
    """
    return _apply(_lower, _scalar_lower, q, c, "c")


def _kl(q: FloatArray, p: FloatArray) -> FloatArray:
    difference = p - q
    return _side(q, p, difference) + _side(1.0 - q, 1.0 - p, -difference)


def _side(mass: FloatArray, other: FloatArray, difference: FloatArray) -> FloatArray:
    """mass * phi(difference / mass), where other = mass + difference; ``difference`` at mass 0."""
    x = difference / mass
    # x - ln(1 + x) = x z - 2 z^3 (1/3 + z^2/5 + ...) with z = x / (2 + x): exact where it is small.
    z = x / (2.0 + x)
    square = z * z
    tail = np.full_like(square, 1.0 / 19.0)
    for odd in (17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
        tail = tail * square + 1.0 / odd
    small = mass * (z * (x - 2.0 * square * tail))
    # A quotient that overflows or is subnormal loses digits; a difference of logarithms does not.
    ratio = other / mass
    ordinary = (ratio > 1e-300) & (ratio < 1e300)
    logarithm = np.where(ordinary, np.log(ratio), np.log(other) - np.log(mass))
    large = difference - mass * logarithm
    return np.where(mass == 0.0, difference, np.where(np.abs(x) < 0.2, small, large))


def _upper(q: FloatArray, c: FloatArray) -> FloatArray:
    a = 1.0 - q
    t = _solve(a, np.maximum(q, FLOOR), np.maximum(c, FLOOR))
    p = (q - a * np.expm1(-t)) * (1.0 + WIDENING)
    # One step more where p is within rounding of q, so that p > q whenever c > 0.
    p = np.minimum(np.nextafter(p, 2.0), 1.0)
    checked = (p == 1.0) | (_kl(q, p) >= c * (1.0 + CHECK_SLACK))
    p = np.where(checked, p, 1.0)
    return np.where(c == 0.0, q, np.where(q == 1.0, 1.0, p))


def _lower(q: FloatArray, c: FloatArray) -> FloatArray:
    t = _solve(q, np.maximum(1.0 - q, FLOOR), np.maximum(c, FLOOR))
    # Here the error of t is relative to t, so the widening grows with it.
    p = q * np.exp(-t) * (1.0 - WIDENING * (1.0 + t))
    p = np.maximum(np.nextafter(p, -1.0), 0.0)
    checked = (p == 0.0) | (_kl(q, p) >= c * (1.0 + CHECK_SLACK))
    p = np.where(checked, p, 0.0)
    # Below the floor the quotients above would overflow; zero is a bound within 1e-290.
    p = np.where(q < FLOOR, 0.0, p)
    return np.where(c == 0.0, q, p)


def _solve(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    """The t of the module's text, for 0 <= a <= 1, b and c at least the floor."""
    # F(t) <= a t and F(t) <= a t^2 / (2 b) put the root above both; it lies below their sum. Where
    # c is tiny F drowns in rounding, and this bracket alone keeps p right to the last place.
    linear = c / a
    quadratic = np.sqrt(2.0 * b) * np.sqrt(linear)
    least = np.minimum(np.maximum(linear, quadratic), LARGEST_T)
    most = np.minimum(linear + quadratic, LARGEST_T)
    t: FloatArray = most
    for _ in range(STEPS):
        shift = -a * np.expm1(-t)  # |p - q|
        weight = b + shift  # p (upper) or 1 - p (lower)
        excess = a * t - b * np.log1p(shift / b) - c
        slope = shift / weight
        curvature = (b / weight) * ((a - shift) / weight)
        newton = excess / slope
        step = newton / (1.0 - np.minimum(0.5 * newton * curvature / slope, 0.5))
        t = np.minimum(np.maximum(t - step, least), most)
    return t


# One number at a time, in plain ``math``: a few microseconds, and neither numpy nor its import. The
# formulas are those above. An inverse is checked here too; where the check fails, or a quotient
# leaves the floats, the answer is None and the arrays decide.


def _scalar_kl(q: float, p: float) -> float:
    difference = p - q
    return _scalar_side(q, p, difference) + _scalar_side(1.0 - q, 1.0 - p, -difference)


def _scalar_upper(q: float, c: float) -> float | None:
    """The largest p with kl(q, p) <= c, rounded up."""
    if c == 0.0 or q == 1.0:
        return q
    a = 1.0 - q
    try:
        t = _scalar_solve(a, q if q > FLOOR else FLOOR, c if c > FLOOR else FLOOR)
        p = math.nextafter((q - a * expm1(-t)) * (1.0 + WIDENING), 2.0)
        if p >= 1.0:
            return 1.0
        return p if _scalar_kl(q, p) >= c * (1.0 + CHECK_SLACK) else None
    except ArithmeticError:
        return None


def _scalar_lower(q: float, c: float) -> float | None:
    """The smallest p with kl(q, p) <= c, rounded down."""
    if c == 0.0:
        return q
    if q < FLOOR:
        return 0.0
    try:
        t = _scalar_solve(q, max(1.0 - q, FLOOR), c if c > FLOOR else FLOOR)
        p = math.nextafter(q * math.exp(-t) * (1.0 - WIDENING * (1.0 + t)), -1.0)
        if p <= 0.0:
            return 0.0
        return p if _scalar_kl(q, p) >= c * (1.0 + CHECK_SLACK) else None
    except ArithmeticError:
        return None


def _scalar_side(mass: float, other: float, difference: float) -> float:
    if mass == 0.0:
        return difference
    x = difference / mass
    if -0.2 < x < 0.2:
        z = x / (2.0 + x)
        s = z * z
        tail = s * (1 / 11 + s * (1 / 13 + s * (1 / 15 + s * (1 / 17 + s / 19))))
        tail = 1 / 3 + s * (1 / 5 + s * (1 / 7 + s * (1 / 9 + tail)))
        return mass * (z * (x - 2.0 * s * tail))
    if other == 0.0:
        return math.inf
    ratio = other / mass
    return difference - mass * (log(ratio) if 1e-300 < ratio < 1e300 else log(other) - log(mass))


def _scalar_solve(a: float, b: float, c: float) -> float:
    linear = c / a
    quadratic = sqrt(2.0 * b) * sqrt(linear)
    least = min(linear if linear > quadratic else quadratic, LARGEST_T)
    t = most = min(linear + quadratic, LARGEST_T)
    for _ in range(STEPS):
        shift = -a * expm1(-t)  # |p - q|
        weight = b + shift  # p (upper) or 1 - p (lower)
        slope = shift / weight
        newton = (a * t - b * log1p(shift / b) - c) / slope
        curvature = (b / weight) * ((a - shift) / weight)
        step = newton / (1.0 - min(0.5 * newton * curvature / slope, 0.5))
        t -= step
        if t < least:
            t = least
        elif t > most:
            t = most
        if -_SETTLED * t < step < _SETTLED * t:
            break
    return t


def _apply(
    function: Callable[[FloatArray, FloatArray], FloatArray],
    scalar: Callable[[float, float], float | None],
    q: npt.ArrayLike,
    other: npt.ArrayLike,
    name: str,
    most: float = math.inf,
) -> Any:
    """A float for two numbers, else an array, by ``function`` piece by piece."""
    if type(q) is type(other) is float and 0.0 <= q <= 1.0 and 0.0 <= other <= most:
        value = scalar(q, other)
        if value is not None:
            return value
    first, second = _numbers("q", q, 1.0), _numbers(name, other, most)
    if first.ndim == 0 and second.ndim == 0:
        value = scalar(float(first), float(second))
        if value is not None:
            return value
    try:
        first, second = np.broadcast_arrays(first, second)
    except ValueError as error:
        raise BadInput(
            f"arrays of shapes {first.shape} and {second.shape} do not fit together."
        ) from error
    shape = first.shape
    first, second = np.ascontiguousarray(first).ravel(), np.ascontiguousarray(second).ravel()
    result = np.empty(first.size)
    with np.errstate(all="ignore"):
        for start in range(0, first.size, _CHUNK):
            piece = slice(start, start + _CHUNK)
            result[piece] = function(first[piece], second[piece])
    return result.reshape(shape) if shape else float(result[0])


def _numbers(name: str, value: npt.ArrayLike, most: float) -> FloatArray:
    """The numbers as doubles; what lies below 0 or above ``most`` is refused."""
    given = np.asarray(value)
    if given.dtype.kind not in "iuf":
        raise BadInput(
            f"{name} must be a number or an array of numbers, got {value!r} (kind {given.dtype})."
        )
    array = given.astype(np.float64)
    outside = ~((array >= 0.0) & (array <= most))
    if outside.any():
        allowed = "be at least 0" if most == math.inf else f"lie in [0, {most:g}]"
        raise BadInput(f"{name} must {allowed}, got {name} = {array[outside].flat[0]!r}.")
    return array


# What PAC-Bayes-kl bounds pay for: the moment xi(n) of n kl, or its usual stand-in 2 sqrt(n).

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
