"""Integrals along the orbit of one hidden unit, in logarithms.

Moving a unit by exp(s) multiplies the weights into it and divides the weights out of it. Along
such a curve the logarithm of a diagonal Gaussian, with the volume factor exp(count * s), is

    h(s) = sum over r = s and r = -s of [cross exp(r) - square exp(2 r) / 2] + count * s

up to a constant. For r = s ``square`` adds up (w / scale)^2 and ``cross`` w * mean / scale^2 over
the weights in, for r = -s over the weights out, and ``count`` is their number: weights in minus
weights out. Everything here is elementwise, one entry for each unit (and for each draw of the
weights).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Beyond this many nats below the peak, what is left of an integral is under one part in 1e19; no
# orbit of numbers in float64 takes longer than this to fall so far.
_DROP, _FAR = 45.0, 1500.0
_PANELS = 12
_LEGENDRE = np.polynomial.legendre.leggauss(16)
# Of the unit interval, in panels.
_NODES = ((np.arange(_PANELS)[:, None] + (_LEGENDRE[0] + 1) / 2) / _PANELS).ravel()
_WEIGHTS = np.tile(_LEGENDRE[1] / 2 / _PANELS, _PANELS)


@dataclass(frozen=True, eq=False)
class Fiber:
    """The numbers of h: ``square`` and ``cross`` are [2, ...], of the weights in and out."""

    square: np.ndarray
    cross: np.ndarray
    count: np.ndarray

    def height(self, s: np.ndarray) -> np.ndarray:
        """h(s)."""
        factor = np.exp(np.stack([s, -s]))
        # Factored so that an infinite exponential gives minus infinity, never NaN.
        parts = factor * (self.cross - 0.5 * self.square * factor)
        return np.asarray(parts[0] + parts[1] + self.count * s)

    def slope(self, s: np.ndarray) -> np.ndarray:
        """The first derivative of h."""
        factor = np.exp(np.stack([s, -s]))
        flow = factor * (self.cross - self.square * factor)
        return np.asarray(flow[0] - flow[1] + self.count)

    def curvature(self, s: np.ndarray) -> np.ndarray:
        """Minus the second derivative of h."""
        factor = np.exp(np.stack([s, -s]))
        return np.asarray((factor * (2 * self.square * factor - self.cross)).sum(0))


def highest_point(fiber: Fiber) -> np.ndarray:
    """Where h is largest."""
    shift, balanced = _balance(fiber)
    with np.errstate(over="ignore", invalid="ignore"):
        best = _highest(balanced, _critical_points(balanced))
    return np.asarray(shift + best[..., 0])


def log_integral(fiber: Fiber) -> np.ndarray:
    """ln of the integral of exp(h(s)) over all s: Gauss-Legendre panels around each peak.

    There are at most two. For a Gaussian with zero means the integral is a Bessel function of the
    second kind, whose order and argument are in the thousands for the layers of a network.
    """
    shift, balanced = _balance(fiber)
    with np.errstate(over="ignore", invalid="ignore"):
        points = _critical_points(balanced)
        top = _heights(balanced, points).max(axis=-1)
        # Three critical points are a peak, a valley and a peak; the valley is where to cut.
        twin = ~np.isnan(points[..., 2])
        valley = np.where(twin, points[..., 1], np.inf)
        total = _around(balanced, points[..., 0], -np.inf, valley, top)
        if twin.any():
            second = _around(balanced, points[..., 2], valley, np.inf, top)
            total = np.where(twin, total + second, total)
    return np.asarray(np.log(total) + top + fiber.count * shift)


def _balance(fiber: Fiber) -> tuple[np.ndarray, Fiber]:
    """Shift s so that both squares are equal: the numbers then have comparable sizes."""
    into, out = np.log(fiber.square)
    shift, square = (out - into) / 4, np.exp((out + into) / 2)
    count = np.broadcast_to(np.asarray(fiber.count, dtype=np.float64), square.shape)
    cross = fiber.cross * np.exp(np.stack([shift, -shift]))
    return shift, Fiber(np.stack([square, square]), cross, count)


def _spread(fiber: Fiber) -> Fiber:
    """With one more axis, to evaluate at several points per entry."""
    return Fiber(*(numbers[..., None] for numbers in vars(fiber).values()))


def _heights(fiber: Fiber, points: np.ndarray) -> np.ndarray:
    """h at several points per entry; minus infinity where a point is missing."""
    return np.where(np.isnan(points), -np.inf, _spread(fiber).height(points))


def _highest(fiber: Fiber, points: np.ndarray) -> np.ndarray:
    """The best of several points per entry, [..., 1]."""
    best = np.argmax(_heights(fiber, points), axis=-1)
    return np.take_along_axis(points, best[..., None], axis=-1)


def _critical_points(fiber: Fiber) -> np.ndarray:
    """Where h is level, in rising order: one point and two NaN, or peak, valley and peak.

    With u = exp(s) these are the positive roots of
    -square u^4 + rising u^3 + count u^2 - falling u + square.
    """
    square, (rising, falling) = fiber.square[0], fiber.cross
    if not fiber.cross.any():
        # u^2 solves a quadratic equation; in logarithms neither root is lost to cancellation.
        single = np.arcsinh(fiber.count / (2 * square)) / 2
        missing = np.full(single.shape, np.nan)
        return np.stack([single, missing, missing], axis=-1)
    companion = np.zeros((*square.shape, 4, 4))
    companion[..., 0, 0] = rising / square
    companion[..., 0, 1] = fiber.count / square
    companion[..., 0, 2] = -falling / square
    companion[..., 0, 3] = 1.0
    companion[..., [1, 2, 3], [0, 1, 2]] = 1.0
    roots = np.linalg.eigvals(companion)
    real = (np.abs(roots.imag) <= 1e-7 * np.abs(roots)) & (roots.real > 0)
    points = np.log(np.where(real, roots.real, np.nan))
    points = np.sort(_polished(_spread(fiber), points), axis=-1)  # NaN goes to the end
    peaks = (~np.isnan(points)).sum(axis=-1)
    # Two roots beside one another may be lost or doubled by rounding: then there is one peak,
    # and the highest of the points is it (or is so close that the integral does not see it).
    best = _highest(fiber, points)
    missing = np.full_like(best, np.nan)
    alone = np.concatenate([best, missing, missing], axis=-1)
    return np.where((peaks == 3)[..., None], points[..., :3], alone)


def _polished(fiber: Fiber, points: np.ndarray) -> np.ndarray:
    """A few Newton steps for h' = 0, each kept short: the eigenvalues are good to many digits."""
    for _ in range(3):
        curvature = fiber.curvature(points)
        step = fiber.slope(points) / np.where(curvature == 0, np.inf, curvature)
        points = points + np.clip(step, -1e-3, 1e-3)
    return points


def _around(
    fiber: Fiber,
    peak: np.ndarray,
    left: np.ndarray | float,
    right: np.ndarray | float,
    top: np.ndarray,
) -> np.ndarray:
    """The integral of exp(h - top) from ``left`` to ``right``, where h falls off from ``peak``."""
    low = np.maximum(peak - _fall(fiber, peak, -1.0), left)
    high = np.minimum(peak + _fall(fiber, peak, 1.0), right)
    total = np.zeros(peak.shape)
    # Panels on each side of the peak separately: one side may be much longer than the other.
    for start, stop in ((low, peak), (peak, high)):
        nodes = start[..., None] + (stop - start)[..., None] * _NODES
        values = np.exp(_spread(fiber).height(nodes) - top[..., None])
        total = total + (stop - start) * (values @ _WEIGHTS)
    return total


def _fall(fiber: Fiber, peak: np.ndarray, direction: float) -> np.ndarray:
    """How far from the peak h has fallen by enough, on one side, by halving."""
    floor = fiber.height(peak) - _DROP
    near, far = np.zeros_like(peak), np.full_like(peak, _FAR)
    for _ in range(40):
        middle = (near + far) / 2
        low = fiber.height(peak + direction * middle) <= floor
        far, near = np.where(low, middle, far), np.where(low, near, middle)
    return far
