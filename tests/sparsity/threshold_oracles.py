"""The thresholds of Theorems D and E once more: one example, one pair of classes, plain loops.

Written from the statements in docs/theory/sparsity.md, with the constants of the network itself
(no grids) and Python floats.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import chi, norm

Matrix = np.ndarray
_C = 1.0 / math.sqrt(2.0 * math.pi)


def psi(r: float) -> float:
    return float(norm.pdf(r) - r * norm.sf(r))


def top_norm(row: Matrix, count: int) -> float:
    return math.sqrt(float(np.sort(np.square(row))[::-1][:count].sum()))


def top_sum(row: Matrix, count: int) -> float:
    return float(np.sort(np.maximum(row, 0.0))[::-1][:count].sum())


def rows_norm(matrix: Matrix, count: int) -> float:
    return max(top_norm(row, count) for row in matrix)


@lru_cache(maxsize=64)
def self_normalized(p: float) -> float:
    """t(p), from the form that the library does not use: an integral over m, not over an angle."""

    def excess(t: float) -> float:
        inner, _ = quad(lambda m: norm.sf(math.sqrt(t * t - m * m)) * norm.pdf(m), 0.0, t)
        return float(1.5 * norm.sf(t) + inner - p)

    return float(brentq(excess, 0.1, 20.0))


def theorem_d(
    weights: list[Matrix],
    before: list[Matrix],
    scales: list[float],
    label: int,
    rival: int,
    escape: float,
    *,
    sparse: bool,
) -> float:
    hidden = len(before)
    v = weights[-1][label] - weights[-1][rival]
    share = escape / (2 * hidden if sparse else hidden)
    error, units_before = 0.0, 0
    for k in range(hidden):
        z, s, width = before[k], scales[k], len(before[k])
        level = float(norm.isf(share / (2 * width)))
        units = width
        if sparse:
            reach = s * level
            if k:
                reach += rows_norm(weights[k], units_before) * error
            units = int(sum(value > -2 * reach for value in z))
        carried = 0.0
        if k:
            stretch = float(np.linalg.norm(weights[k], 2))
            if sparse:
                stretch = min(stretch, math.sqrt(units) * rows_norm(weights[k], units_before))
            carried = stretch * error
        if k < hidden - 1:
            error = carried + s * (float(chi.isf(share, units)) if units else 0.0)
        else:
            error = carried
        units_before = units
    s, z = scales[hidden - 1], before[-1]
    level = float(norm.isf(share / (2 * len(z))))
    kappa = top_norm(v, units_before)
    if sparse:
        near = int(sum(abs(value) < 2 * level * s for value in z))
        mean = (_C - psi(level)) * top_sum(v, near) + psi(level) * top_sum(v, len(z))
    else:
        mean = _C * top_sum(v, len(z))
    spread = math.sqrt((s * kappa) ** 2 + 2 * scales[hidden] ** 2)
    return kappa * error + s * mean + _C * s * kappa + self_normalized(share) * spread


def theorem_e(
    weights: list[Matrix],
    before: list[Matrix],
    scales: list[float],
    label: int,
    rival: int,
    escape: float,
    *,
    sparse: bool,
    rate: float,
) -> float:
    """With the exponential tail at ``rate``; sparse: mean shifts meet w_y - w_c itself."""
    hidden = len(before)
    v = weights[-1][label] - weights[-1][rival]
    nu = [float(np.linalg.norm(w, 2)) for w in weights[:-1]]
    rho = [rows_norm(w, w.shape[1]) for w in weights[:-1]]
    kappa = float(np.linalg.norm(v))
    output = 0.9 * escape if sparse else escape
    events = sum((j + 1) * len(z) for j, z in enumerate(before))
    t = float(norm.isf(0.1 * escape / (2 * events)))
    deviation = t + psi(t)

    def reach(k: int, j: int) -> float:
        return 1.0 if k == j else rho[j] * math.prod(nu[k + 1 : j])

    shift: dict[tuple[int, int], float] = {}
    total = 0.0
    for j in range(hidden):
        for k in range(j + 1):
            length = scales[k] * reach(k, j)
            away = deviation * length
            for other in range(k + 1, j + 1):
                away += deviation * scales[other] * reach(other, j)
                if other < j:
                    away += rho[j] * shift[other, j - 1]
            gaps = []
            for value in before[j]:
                excess = max(0.0, abs(value) - away) if sparse else 0.0
                gaps.append(length * psi(excess / length))
            inherited = nu[j] * shift[k, j - 1] if k < j else 0.0
            shift[k, j] = inherited + math.sqrt(sum(g * g for g in gaps))
            if j == hidden - 1:
                total += sum(max(0.0, w) * g for w, g in zip(v, gaps, strict=True))
                total += kappa * inherited
    variance = 2 * scales[hidden] ** 2
    for k in range(hidden):
        variance += (scales[k] * kappa * math.prod(nu[k + 1 :])) ** 2
    return total + rate * variance / 2 + math.log(1 / output) / rate


def theorem_f(
    weights: list[Matrix],
    before: list[Matrix],
    sizes: list[float],
    sigmas: tuple[float, ...],
    label: int,
    rival: int,
    escape: float,
    *,
    sparse: bool,
    factor: float,
) -> float:
    """With ``sizes`` of the reference's activations; sparse: mean shifts meet w_y - w_c itself."""
    hidden = len(before)
    v = weights[-1][label] - weights[-1][rival]
    caps = [
        s * size * (factor if k else 1.0)
        for k, (s, size) in enumerate(zip(sigmas, sizes, strict=True))
    ]
    nu = [float(np.linalg.norm(w, 2)) for w in weights[:-1]]
    bars = [math.sqrt(nu[m] ** 2 + sigmas[m] ** 2 * weights[m].shape[0]) for m in range(hidden)]
    output = 0.9 * escape if sparse else escape
    share = 0.1 * escape / (2 * sum(len(z) for z in before))
    quantile = float(norm.pdf(norm.isf(share)) / share)

    def growth(k: int, j: int) -> float:
        return math.prod(bars[k + 1 : j])

    total, carried = 0.0, 0.0
    last: list[float] = []
    for j in range(hidden):
        gaps = []
        if j:
            hop = nu[j] * math.sqrt(sum(gap * gap for gap in last))
            if sparse:
                gram = np.maximum(weights[j].T @ weights[j], 0.0)
                shifts = np.array(last)
                hop = min(hop, math.sqrt(float(shifts @ gram @ shifts)))
            carried = hop + nu[j] * carried
        for i, value in enumerate(before[j]):
            row = float(np.linalg.norm(weights[j][i]))
            squares = caps[j] ** 2 + sum((caps[k] * row * growth(k, j)) ** 2 for k in range(j))
            length = math.sqrt(squares)
            excess = max(0.0, abs(value) - quantile * length) if sparse else 0.0
            gaps.append((length, length * psi(excess / length)))
        last = [gap for _, gap in gaps]
        if j == hidden - 1:
            largest = max(length for length, _ in gaps)
            used = [gap for _, gap in gaps] if sparse else [largest * psi(0.0)] * len(gaps)
            total = sum(max(0.0, w) * g for w, g in zip(v, used, strict=True))
            total += float(np.linalg.norm(v)) * carried
    variance = 2 * caps[hidden] ** 2
    for k in range(hidden):
        variance += (caps[k] * float(np.linalg.norm(v)) * growth(k, hidden)) ** 2
    return total + float(norm.pdf(norm.isf(output)) / output) * math.sqrt(variance)
