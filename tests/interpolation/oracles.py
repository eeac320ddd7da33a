"""Slow and obvious: kernel matrices entry by entry, and solutions in many digits."""

from __future__ import annotations

import mpmath
import numpy as np


def matrix(points: np.ndarray, value) -> np.ndarray:
    """K by two loops; ``value`` takes two points."""
    n = len(points)
    return np.array([[value(points[i], points[j]) for j in range(n)] for i in range(n)])


def gaussian_value(gamma: float):
    return lambda x, y: float(np.exp(-gamma * np.sum((x - y) ** 2)))


def laplace_value(gamma: float):
    return lambda x, y: float(np.exp(-gamma * np.sqrt(np.sum((x - y) ** 2))))


def polynomial_value(degree: int, offset: float, scale: float):
    return lambda x, y: float((scale * np.dot(x, y) + offset) ** degree)


def linear_value():
    return lambda x, y: float(np.dot(x, y))


def exact_gaussian_solution(points: np.ndarray, values: np.ndarray, gamma: float) -> list:
    """Coefficients with fifty digits."""
    with mpmath.workdps(50):
        n = len(points)
        rows = [[mpmath.mpf(float(v)) for v in row] for row in points]
        k = mpmath.matrix(n, n)
        for i in range(n):
            for j in range(n):
                square = sum((a - b) ** 2 for a, b in zip(rows[i], rows[j], strict=True))
                k[i, j] = mpmath.exp(-mpmath.mpf(gamma) * square)
        y = mpmath.matrix([mpmath.mpf(float(v)) for v in values])
        a = mpmath.lu_solve(k, y)
        norm = mpmath.sqrt((a.T * k * a)[0])
        return [float(v) for v in a], float(norm)
