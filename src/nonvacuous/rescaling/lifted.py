"""How much a fixed rescaling leaves on the table: the KL between networks as functions.

Weights that rescaling turns into one another are the same point of the *lifted* space (products
of weights along paths, and signs). The KL between posterior and prior there is the least that any
rescaling can reach, even one chosen anew for every draw of the weights. With one hidden layer
the orbits of the units do not touch, and on each of them the ratio of the two lifted densities
is a ratio of two integrals over one variable. In deeper networks they are integrals over all units
at once, which are sampled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from nonvacuous.bounds import checks
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks.scale_groups import ScaleGroups
from nonvacuous.rescaling.reading import check_covered
from nonvacuous.rescaling.solver import kl_along_orbit, push, rescale, total_nats
from nonvacuous.rescaling.surfaces import Pairs, Surface, array, pairs_of

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
    """The logarithm of a Gaussian along the orbit of one hidden unit, with its volume factor,

        h(s) = sum over r = s and r = -s of [cross exp(r) - square exp(2 r) / 2] + count * s

    up to a constant. ``square`` adds up (w / scale)^2 and ``cross`` w * mean / scale^2: [2, ...],
    of the weights into the unit and out of it; ``count`` is the number of the ones minus that of
    the others. Everything is elementwise, for many units and draws of the weights at once.
    """

    square: np.ndarray
    cross: np.ndarray
    count: np.ndarray

    def height(self, s: np.ndarray) -> np.ndarray:
        """h(s)."""
        factor = np.exp(np.stack([s, -s]))
        # Factored so that an infinite exponential gives minus infinity, never NaN.
        parts = factor * (self.cross - 0.5 * self.square * factor)
        return np.asarray(parts[0] + parts[1] + self.count * s)

    def derivatives(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first derivative of h, and minus the second."""
        factor = np.exp(np.stack([s, -s]))
        flow = factor * (self.cross - self.square * factor)
        bend = factor * (2 * self.square * factor - self.cross)
        return flow[0] - flow[1] + self.count, bend.sum(0)


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
    # The eigenvalues are good to many digits: a few Newton steps for h' = 0, each kept short.
    wide = _spread(fiber)
    for _ in range(3):
        slope, curvature = wide.derivatives(points)
        step = slope / np.where(curvature == 0, np.inf, curvature)
        points = points + np.clip(step, -1e-3, 1e-3)
    points = np.sort(points, axis=-1)  # NaN goes to the end
    peaks = (~np.isnan(points)).sum(axis=-1)
    # Two roots beside one another may be lost or doubled by rounding: then there is one peak,
    # and the highest of the points is it (or is so close that the integral does not see it).
    best = _highest(fiber, points)
    missing = np.full_like(best, np.nan)
    alone = np.concatenate([best, missing, missing], axis=-1)
    return np.where((peaks == 3)[..., None], points[..., :3], alone)


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


_CHUNK = 1 << 22  # random numbers held at a time


@dataclass(frozen=True)
class LiftedKl:
    """The chain ``lifted <= best fixed rescaling <= weight space``, in nats.

    ``lifted_nats`` is a Monte-Carlo estimate with its ``standard_error``: it says how close to
    optimal the rescaling is, and is not a bound that a certificate may use. The other two ends
    are exact and rounded up. ``fiber_gap`` is ``best_lambda_nats - lifted_nats``.
    ``laplace_gap`` approximates it without sampling, by Gaussians along the orbits; it may err on
    either side (one hidden layer only, else None). ``integrals`` says whether the integrals over
    the orbits were exact or sampled; sampled ones widen ``standard_error`` by ``integral_error``,
    half the mean distance of the two ends between which they lie.
    """

    lifted_nats: float
    standard_error: float
    best_lambda_nats: float
    weight_space_nats: float
    fiber_gap: float
    laplace_gap: float | None
    draws: int
    integrals: Literal["exact", "sampled"] = "exact"
    integral_error: float = 0.0


def lifted_kl(
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    groups: ScaleGroups,
    *,
    draws: int = 400,
    samples: int = 256,
    seed: int = 0,
) -> LiftedKl:
    """The KL after identifying weights that differ by a rescaling.

    The prior may have any means and scales. With one hidden layer the integrals over the orbits
    are exact. In deeper networks, where weights lie between two rescaled units, they are sampled
    (``samples`` points for each draw of the weights), and the fixed rescaling is the one that a
    descent ends at: the best one where the prior is centered on zero.

    The estimate is the exact KL at the best fixed rescaling minus the mean, over draws from the
    posterior, of what the position on the orbit adds; that difference varies by a few nats where
    the log-density ratio itself varies by hundreds.
    """
    checks.count("draws", draws, minimum=2)
    check_covered(Q, P, groups)
    pairs = pairs_of(groups)
    deep = pairs.deep
    if deep:
        checks.count("samples", samples, minimum=2)
        best = rescale(Q, P, groups).log_scales
    else:
        # Each unit on its own: the KL as a function of its scale is minus a curve of the same form
        # as the densities along its orbit. Unlike a descent, this is the global minimum for any
        # prior means.
        best = highest_point(_fiber(P, pairs, *_moments(Q, pairs)))[0]
    moved = push(Q, groups, best, dtype=torch.float64)
    generator = np.random.default_rng(seed)
    laplace_gap, integral_error = None, 0.0
    if deep:
        parts = _drawn(moved, pairs, draws, generator, at_once=1)
        pieces = [_sampled_gap(part, moved, P, pairs, generator, samples) for part in parts]
        gaps, errors = np.array(pieces).T
        integral_error = abs(float(errors.mean()))
    else:
        weights = sum(Q.means[name].numel() for name in pairs.pair_of)
        parts = _drawn(moved, pairs, draws, generator, at_once=max(1, _CHUNK // weights))
        gaps = np.concatenate([_gap_of_draws(part, moved, P, pairs) for part in parts])
        laplace_gap = _laplace_gap(moved, P, pairs)
    best_nats = total_nats(kl_along_orbit(Q, P, groups, best))
    gap = float(gaps.mean())
    return LiftedKl(
        lifted_nats=best_nats - gap,
        standard_error=float(gaps.std(ddof=1) / math.sqrt(draws)) + integral_error,
        best_lambda_nats=best_nats,
        weight_space_nats=total_nats(kl_along_orbit(Q, P, groups, np.zeros(groups.size))),
        fiber_gap=gap,
        laplace_gap=laplace_gap,
        draws=draws,
        integrals="sampled" if deep else "exact",
        integral_error=integral_error,
    )


def _drawn(
    Q: DiagonalGaussian, pairs: Pairs, draws: int, generator: np.random.Generator, *, at_once: int
) -> Iterator[dict[str, np.ndarray]]:
    """Draws of the tensors that scales move, [draws, *shape] each, a few at a time."""
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        yield {
            name: array(Q.means[name])
            + array(Q.scales[name]) * generator.standard_normal((count, *Q.means[name].shape))
            for name in pairs.pair_of
        }


def _sampled_gap(
    weights: dict[str, np.ndarray],
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    pairs: Pairs,
    generator: np.random.Generator,
    samples: int,
) -> tuple[float, float]:
    """The gap of one draw in a deeper network, and the error of the integrals in it."""
    own, other = (Surface.through(weights, each, pairs) for each in (Q, P))
    low, high = own.log_integral(generator, samples, own=True)
    prior, _ = other.log_integral(generator, samples, own=False)
    origin = np.zeros((1, pairs.size))
    here = float(own.height(origin)[0] - other.height(origin)[0])
    return here - (low + high) / 2 + prior, (high - low) / 2


def _fiber(
    distribution: DiagonalGaussian,
    pairs: Pairs,
    weights: dict[str, np.ndarray],
    squares: dict[str, np.ndarray] | None = None,
) -> Fiber:
    """The curve of a Gaussian along each unit's orbit, [draws, units], with one hidden layer.

    The pairs are then those of a unit and an input, in the order of the units, and those of an
    output and a unit.
    """
    sums = pairs.along_orbits(distribution, weights, squares)
    square, cross = (each.reshape(-1, 2, pairs.size).swapaxes(0, 1) for each in sums)
    return Fiber(square, cross, pairs.count)


def _gap_of_draws(
    weights: dict[str, np.ndarray], Q: DiagonalGaussian, P: DiagonalGaussian, pairs: Pairs
) -> np.ndarray:
    """For each draw, ln of (density on its orbit under Q / the same under P), over all units."""
    own, other = (_fiber(each, pairs, weights) for each in (Q, P))
    origin = np.zeros(own.square[0].shape)
    logs = [(each.height(origin) - log_integral(each)).sum(axis=1) for each in (own, other)]
    return np.asarray(logs[0] - logs[1])


def _moments(
    Q: DiagonalGaussian, pairs: Pairs
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The means and the expected squares of the weights, as if they were one draw."""
    means = {name: array(Q.means[name])[None] for name in pairs.pair_of}
    return means, {name: mean**2 + array(Q.scales[name]) ** 2 for name, mean in means.items()}


def _laplace_gap(Q: DiagonalGaussian, P: DiagonalGaussian, pairs: Pairs) -> float:
    """The gap if the position on an orbit were Gaussian under both Q and P.

    Two Gaussians with precisions F and G whose centers differ by d are (ln(F/G) - 1 + G/F +
    G d^2) / 2 nats apart. The centers move with the draw: with V the variance of the slope of P's
    curve, the mean of G d^2 is V/G - G/F at the best fixed rescaling, so that G/F drops out.
    """
    origin = np.zeros((1, pairs.size))
    precision, prior_precision = (
        _fiber(each, pairs, *_moments(Q, pairs)).derivatives(origin)[1] for each in (Q, P)
    )
    spreads = []
    for name in pairs.pair_of:
        mean, scale = array(Q.means[name]), array(Q.scales[name])
        prior_mean, prior_scale = array(P.means[name]), array(P.scales[name])
        relative = (scale / prior_scale) ** 2
        distance = ((prior_mean - 2 * mean) / prior_scale) ** 2
        spreads.append((name, (relative * (distance + 2 * relative))[None]))
    variance = pairs.sums(1, spreads).reshape(2, pairs.size).sum(0)
    ratio = precision / prior_precision
    return float((np.log(ratio) - 1 + variance / prior_precision).sum() / 2)
