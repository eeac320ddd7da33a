"""One binary relative entropy, or one inverse, in plain ``math``: a few microseconds, no arrays.

The formulas are those of :mod:`nonvacuous.bounds.binary_kl`, which explains them. An inverse is
checked here too; where the check fails, or a quotient leaves the floats, the answer is None and
the arrays decide.
"""

from __future__ import annotations

import math
from math import expm1, log, log1p, sqrt

from nonvacuous.bounds.rounding import EPSILON

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


def kl(q: float, p: float) -> float:
    difference = p - q
    return _side(q, p, difference) + _side(1.0 - q, 1.0 - p, -difference)


def upper(q: float, c: float) -> float | None:
    """The largest p with kl(q, p) <= c, rounded up."""
    if c == 0.0 or q == 1.0:
        return q
    a = 1.0 - q
    try:
        t = _solve(a, q if q > FLOOR else FLOOR, c if c > FLOOR else FLOOR)
        p = math.nextafter((q - a * expm1(-t)) * (1.0 + WIDENING), 2.0)
        if p >= 1.0:
            return 1.0
        return p if kl(q, p) >= c * (1.0 + CHECK_SLACK) else None
    except ArithmeticError:
        return None


def lower(q: float, c: float) -> float | None:
    """The smallest p with kl(q, p) <= c, rounded down."""
    if c == 0.0:
        return q
    if q < FLOOR:
        return 0.0
    try:
        t = _solve(q, max(1.0 - q, FLOOR), c if c > FLOOR else FLOOR)
        p = math.nextafter(q * math.exp(-t) * (1.0 - WIDENING * (1.0 + t)), -1.0)
        if p <= 0.0:
            return 0.0
        return p if kl(q, p) >= c * (1.0 + CHECK_SLACK) else None
    except ArithmeticError:
        return None


def _side(mass: float, other: float, difference: float) -> float:
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


def _solve(a: float, b: float, c: float) -> float:
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
