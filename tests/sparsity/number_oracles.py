"""The plain numbers of the sparsity theorems once more, from their statements, in 40 digits."""

from __future__ import annotations

import mpmath
from torch import Tensor

from nonvacuous.sparsity.norms import reduced_gram

mp = mpmath.MPContext()
mp.dps = 40


def tail(x: float) -> mpmath.mpf:
    """Upper tail of the standard normal."""
    return mp.erfc(mp.mpf(x) / mp.sqrt(2)) / 2


def density(x: float) -> mpmath.mpf:
    return mp.exp(-(mp.mpf(x) ** 2) / 2) / mp.sqrt(2 * mp.pi)


def kink(distance: float) -> mpmath.mpf:
    """E max(0, n - distance), by integrating."""
    return mp.quad(lambda u: (u - distance) * density(u), [distance, distance + 5, distance + 20])


def self_normalized_tail(t: float) -> mpmath.mpf:
    """E h(M) for M with P(M > m) equal to the normal tail at m >= 0 and an atom of 1/2 at zero.

    h(m) = tail(sqrt(t^2 - m^2)) below t, and 1 from t on: the chance that M + r N exceeds
    t sqrt(1 + r^2) for the worst r. Written in m, not in the angle that the library uses.
    """
    t = mp.mpf(t)
    inner = mp.quad(lambda m: tail(mp.sqrt(t * t - m * m)) * density(m), [0, t / 2, t])
    return tail(t) / 2 + inner + tail(t)


def chi_tail(degrees: int, c: float) -> mpmath.mpf:
    """P(|g| > c) for a standard normal vector."""
    return mp.gammainc(mp.mpf(degrees) / 2, mp.mpf(c) ** 2 / 2, regularized=True)


def babel(weight: Tensor, *, rows: int, columns: int, blocks: tuple[int, int] = (1, 1)) -> float:
    """The paper's reduced babel function, which the library's bound sharpens row by row.

    The largest sum, over a row j and ``rows`` - 1 others, of the reduced inner products with row j,
    divided by the square of the largest row norm over ``columns`` entries; all in ``blocks``.
    """
    gram = reduced_gram(weight, columns=columns, blocks=blocks)
    largest = float(gram.diagonal().max())
    if rows == 1 or largest == 0.0:
        return 0.0
    others = gram.clone().fill_diagonal_(-1.0).topk(rows - 1, dim=1).values.sum(1)
    return float(others.max()) / largest
