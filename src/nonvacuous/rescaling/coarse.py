"""The few directions along which single channels are slow: one scalar for each group.

In a deep network a whole layer wants to shrink and the next one to grow. Moving one channel at a
time finds that out step by step; minimizing over one common scalar for each group takes it in one
go. The problem is tiny (one variable per group) and lives on the processor whatever the device.
"""

from __future__ import annotations

import numpy as np

_LONGEST = 20.0
# A gain this small next to the sum of the parts is not worth a step; and a step that changes no
# part by more than a tenth leaves so little that the sweep in between matters more.
_SMALL = 1e-13
_SHORT = 0.1


def minimize_exponentials(
    coefficients: np.ndarray, exponents: np.ndarray, linear: np.ndarray, *, iterations: int = 200
) -> np.ndarray:
    """Descend ``sum(coefficients * exp(exponents @ t)) - linear @ t`` from t = 0 by Newton steps.

    Convex when no coefficient is negative; then the result is close to the minimum, and a second
    call is closer still. Otherwise negative curvature is replaced by its absolute value, and the
    result is a point that is no higher than the start. A step is taken only if the value
    decreases.
    """
    position = np.zeros(exponents.shape[1])
    parts = coefficients
    for _ in range(iterations):
        gradient = exponents.T @ parts - linear
        step = _newton_step(exponents, parts, gradient)
        decrement = -float(gradient @ step)
        size = float(np.abs(parts).sum()) + float(np.abs(linear) @ np.abs(position))
        if not decrement > _SMALL * size:
            break
        length = min(1.0, _LONGEST / float(np.abs(step).max()))
        taken = _backtrack(parts, exponents, linear, step, length, decrement)
        if taken is None:
            break
        position = position + taken
        # Newton's method squares the error: after a short step little is left.
        if float(np.abs(exponents @ step).max()) < _SHORT:
            break
        parts = coefficients * np.exp(exponents @ position)
    return position


def _newton_step(exponents: np.ndarray, parts: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    for curvature in (parts, np.abs(parts)):
        hessian = (exponents.T * curvature) @ exponents
        # A group that no term sees, or a direction in which nothing changes, must not move.
        ridge = 1e-13 * max(float(np.trace(hessian)), np.finfo(np.float64).tiny)
        hessian.flat[:: len(hessian) + 1] += ridge
        try:
            step = -np.linalg.solve(hessian, gradient)
        except np.linalg.LinAlgError:
            continue
        # A step that does not go down betrays negative curvature.
        if np.isfinite(step).all() and float(gradient @ step) < 0:
            return step
    return np.zeros_like(gradient)


def _backtrack(
    parts: np.ndarray,
    exponents: np.ndarray,
    linear: np.ndarray,
    step: np.ndarray,
    length: float,
    decrement: float,
) -> np.ndarray | None:
    """The step, halved until the value decreases by a fair part of what was promised."""
    for _ in range(60):
        candidate = length * step
        with np.errstate(over="ignore", invalid="ignore"):
            change = float(parts @ np.expm1(exponents @ candidate) - linear @ candidate)
        if change <= -1e-4 * length * decrement:
            return candidate
        length /= 2
    return None
