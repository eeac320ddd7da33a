"""The logarithm of the modified Bessel function of the second kind, where the function overflows.

``K_order(x)`` leaves the range of float64 as soon as the order or the argument is a few hundred;
the layers of a network ask for orders and arguments in the thousands. Three formulas cover them:
scipy's scaled function where it is finite, the leading terms for small arguments, and for large
orders the uniform expansion of Debye type (NIST Digital Library of Mathematical Functions,
10.41.4), which holds for small and large arguments alike.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike
from scipy import special

from nonvacuous.errors import BadInput

_UNIFORM_FROM = 30.0  # from this order on, the expansion below is exact to float64
_TERMS = 12


def log_bessel_k(order: ArrayLike, x: ArrayLike) -> np.ndarray:
    """ln K_order(x) for x > 0 and any real order, elementwise, to about twelve digits.

    >>> round(float(log_bessel_k(0.5, 2.0)), 12)  # K_1/2(x) = sqrt(pi / (2 x)) exp(-x)
    -2.120782237635
    """
    orders, arguments = np.broadcast_arrays(
        np.abs(np.asarray(order, dtype=np.float64)), np.asarray(x, dtype=np.float64)
    )
    if not (np.isfinite(orders).all() and np.isfinite(arguments).all() and (arguments > 0).all()):
        raise BadInput("log_bessel_k needs finite orders and finite arguments above zero")
    # The function is even in its order, and scipy stumbles over the tiniest ones.
    orders = np.where(orders < 1e-9, 0.0, orders)
    large = orders >= _UNIFORM_FROM
    result = np.empty(orders.shape)
    result[large] = _uniform(orders[large], arguments[large])
    result[~large] = _moderate(orders[~large], arguments[~large])
    return result


def _moderate(order: np.ndarray, x: np.ndarray) -> np.ndarray:
    scaled = special.kve(order, x)
    fine = np.isfinite(scaled) & (scaled > 0)
    result = np.empty(order.shape)
    result[fine] = np.log(scaled[fine]) - x[fine]
    # Where scipy overflows, x is tiny beside an order of at least one: two terms of the power
    # series at zero, Gamma(order) / 2 * (2 / x)^order * (1 - x^2 / (4 (order - 1))), are enough.
    v, small = order[~fine], x[~fine]
    with np.errstate(divide="ignore", invalid="ignore"):
        second = np.where(v > 1, -small * small / (4 * (v - 1)), 0.0)
    result[~fine] = (
        special.gammaln(v) - np.log(2) + v * (np.log(2) - np.log(small)) + np.log1p(second)
    )
    return result


def _uniform(order: np.ndarray, x: np.ndarray) -> np.ndarray:
    z = x / order
    root = np.hypot(1.0, z)
    # ln(z / (1 + root)) without losing a tiny z, then the exponent of the expansion.
    eta = root + np.log(x) - np.log(order + np.hypot(order, x))
    t = 1.0 / root
    series = np.zeros(order.shape)
    for number in range(_TERMS, -1, -1):
        series = series * (-1.0 / order) + debye_polynomial(number)(t)
    return 0.5 * np.log(np.pi / (2 * order)) - order * eta - 0.5 * np.log(root) + np.log(series)


@cache
def debye_polynomial(number: int) -> Polynomial:
    """u_number(t) of the expansion; each follows from the one before (DLMF 10.41.9)."""
    return Polynomial([float(c) for c in _coefficients(number)])


@cache
def _coefficients(number: int) -> tuple[Fraction, ...]:
    """Exact coefficients, lowest power first: the recursion would lose digits in float64."""
    if number == 0:
        return (Fraction(1),)
    before = _coefficients(number - 1)
    result = [Fraction(0)] * (len(before) + 3)
    for power, c in enumerate(before):
        # u' = t^2 (1 - t^2) / 2 * previous' + 1/8 * integral of (1 - 5 t^2) * previous.
        result[power + 1] += c * power / 2 + c / (8 * (power + 1))
        result[power + 3] -= c * power / 2 + 5 * c / (8 * (power + 3))
    return tuple(result)
