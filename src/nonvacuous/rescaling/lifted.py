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
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.networks.scale_groups import ScaleGroups
from nonvacuous.rescaling.fibers import Fiber, highest_point, log_integral
from nonvacuous.rescaling.reading import check_covered
from nonvacuous.rescaling.solver import kl_along_orbit, push, rescale, total_nats
from nonvacuous.rescaling.surfaces import Surface, pairs_of

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
    if draws < 2:
        raise BadInput(f"draws must be at least 2 to give a standard error, got {draws!r}")
    check_covered(Q, P, groups)
    deep = _is_deep(groups)
    if deep and samples < 2:
        raise BadInput(f"samples must be at least 2, got {samples!r}")
    best = rescale(Q, P, groups).log_scales if deep else best_log_scales(Q, P, groups)
    moved = push(Q, groups, best, dtype=torch.float64)
    laplace_gap, integral_error = None, 0.0
    if deep:
        gaps, integral_error = _sampled_gaps(moved, P, groups, draws, samples, seed)
    else:
        touches = _touches(groups)
        parts = _weights_in_parts(moved, touches, draws, seed)
        gaps = np.concatenate(
            [_gap_of_draws(part, moved, P, touches, groups.size) for part in parts]
        )
        laplace_gap = _laplace_gap(moved, P, touches, groups.size)
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


def _sampled_gaps(
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    groups: ScaleGroups,
    draws: int,
    samples: int,
    seed: int,
) -> tuple[np.ndarray, float]:
    """The gap of each draw in a deeper network, and the mean error of the integrals in them."""
    pairs = pairs_of(groups)
    generator = np.random.default_rng(seed)
    origin = np.zeros((1, groups.size))
    gaps, errors = np.zeros(draws), np.zeros(draws)
    for draw in range(draws):
        weights = {
            name: _array(Q.means[name])
            + _array(Q.scales[name]) * generator.standard_normal(Q.means[name].shape)
            for name in pairs.pair_of
        }
        own, other = (Surface.through(weights, each, pairs) for each in (Q, P))
        low, high = own.log_integral(generator, samples, own=True)
        prior, _ = other.log_integral(generator, samples, own=False)
        here = float(own.height(origin)[0] - other.height(origin)[0])
        gaps[draw], errors[draw] = here - (low + high) / 2 + prior, (high - low) / 2
    return gaps, abs(float(errors.mean()))


def _is_deep(groups: ScaleGroups) -> bool:
    """Whether some weight lies between two rescaled units."""
    return any(sum(s.moves for s in scales) > 1 for scales in groups.exponents.values())


def best_log_scales(Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups) -> np.ndarray:
    """The best fixed rescaling of one hidden layer, exactly: each unit on its own.

    The KL as a function of one unit's scale is minus a curve of the same form as the densities
    along its orbit, and the highest point of that is the root of a polynomial of degree four.
    Unlike a descent, this is the global minimum for any prior means.
    """
    check_covered(Q, P, groups)
    touches = _touches(groups)
    return np.asarray(highest_point(_fiber(*_moments(Q, touches), P, touches, groups.size))[0])


@dataclass(frozen=True, eq=False)
class _Touch:
    """How the hidden units touch one tensor: the unit of each position on the axes, up or down."""

    axes: tuple[int, ...]
    index: np.ndarray
    power: int

    def collect(self, values: np.ndarray, size: int) -> np.ndarray:
        """Sums over the elements of each unit; ``values`` is [draws, *shape of the tensor]."""
        others = tuple(a + 1 for a in range(values.ndim - 1) if a not in self.axes)
        summed = values.sum(axis=others) if others else values
        inside = np.flatnonzero(self.index >= 0)
        result = np.zeros((size + 1, len(values)))
        np.add.at(result, self.index[inside], summed.reshape(len(values), -1)[:, inside].T)
        return result[:size].T


def _touches(groups: ScaleGroups) -> dict[str, _Touch]:
    touches: dict[str, _Touch] = {}
    for name, scales in groups.exponents.items():
        moving = [scale for scale in scales if scale.moves]
        if not moving:
            continue
        if len(moving) > 1:
            raise NotYetSupported(
                f"tensor {name!r} lies between two rescaled layers, so the orbits are surfaces and "
                "the best scales are not found unit by unit; use rescale(Q, P, groups)"
            )
        power, axes = moving[0].power, moving[0].axes
        if power not in (1, -1):
            raise NotYetSupported(
                f"tensor {name!r} scales with the power {power:g} of a unit's scale; lifted_kl "
                "covers activations of degree one, whose powers are 1 and -1"
            )
        index = moving[0].spread(max(axes) + 1).reshape(-1)
        touches[name] = _Touch(axes, index, int(power))
    if not touches:
        raise BadInput(
            "no tensor is rescaled: there is no hidden unit with a free scale, and the lifted KL "
            "is the KL itself (Q.kl_nats(P))"
        )
    directions = np.zeros((2, groups.size), dtype=bool)
    for touch in touches.values():
        directions[int(touch.power < 0), touch.index[touch.index >= 0]] = True
    if not directions.all():
        unit = int(np.flatnonzero(~directions.all(axis=0))[0])
        raise BadInput(
            f"unit {unit} of log_scales has no weights "
            f"{'into' if not directions[0, unit] else 'out of'} it: nothing passes through it, and "
            "its orbit has no density; remove the unit from the network"
        )
    return touches


def _fiber(
    squares: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
    distribution: DiagonalGaussian,
    touches: dict[str, _Touch],
    size: int,
) -> Fiber:
    """The curve of a Gaussian along each unit's orbit, through weights with these squares.

    Every tensor has a leading axis of draws in front; the result is [draws, units].
    """
    shape = (len(next(iter(squares.values()))), size)
    sums = {(power, kind): np.zeros(shape) for power in (1, -1) for kind in ("square", "cross")}
    count = np.zeros(shape)
    for name, touch in touches.items():
        mean, scale = _array(distribution.means[name]), _array(distribution.scales[name])
        sums[touch.power, "square"] += touch.collect(squares[name] / scale**2, size)
        if mean.any():
            sums[touch.power, "cross"] += touch.collect(weights[name] * (mean / scale**2), size)
        count += touch.power * touch.collect(np.ones((1, *mean.shape)), size)
    return Fiber(
        rising_square=sums[1, "square"],
        rising=sums[1, "cross"],
        falling_square=sums[-1, "square"],
        falling=sums[-1, "cross"],
        count=count,
    )


def _gap_of_draws(
    weights: dict[str, np.ndarray],
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    touches: dict[str, _Touch],
    size: int,
) -> np.ndarray:
    """For each draw, ln of (density on its orbit under Q / the same under P), over all units."""
    squares = {name: drawn**2 for name, drawn in weights.items()}
    total = np.zeros(len(next(iter(weights.values()))))
    for distribution, sign in ((Q, 1.0), (P, -1.0)):
        fiber = _fiber(squares, weights, distribution, touches, size)
        here = fiber.height(np.zeros(fiber.rising.shape))
        total += sign * (here - log_integral(fiber)).sum(axis=1)
    return total


def _moments(
    Q: DiagonalGaussian, touches: dict[str, _Touch]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The expected squares and the means of the weights, as if they were one draw."""
    means = {name: _array(Q.means[name])[None] for name in touches}
    squares = {name: mean**2 + _array(Q.scales[name]) ** 2 for name, mean in means.items()}
    return squares, means


def _laplace_gap(
    Q: DiagonalGaussian, P: DiagonalGaussian, touches: dict[str, _Touch], size: int
) -> float:
    """The gap if the position on an orbit were Gaussian under both Q and P.

    Two Gaussians with precisions F and G whose centers differ by d are (ln(F/G) - 1 + G/F +
    G d^2) / 2 nats apart. The centers move with the draw: with V the variance of the slope of P's
    curve, the mean of G d^2 is V/G - G/F at the best fixed rescaling, so that G/F drops out.
    """
    squares, means = _moments(Q, touches)
    origin = np.zeros((1, size))
    precision = _fiber(squares, means, Q, touches, size).curvature(origin)
    prior_precision = _fiber(squares, means, P, touches, size).curvature(origin)
    variance = np.zeros((1, size))
    for name, touch in touches.items():
        mean, scale = _array(Q.means[name]), _array(Q.scales[name])
        prior_mean, prior_scale = _array(P.means[name]), _array(P.scales[name])
        relative = (scale / prior_scale) ** 2
        distance = ((prior_mean - 2 * mean) / prior_scale) ** 2
        variance += touch.collect((relative * (distance + 2 * relative))[None], size)
    ratio = precision / prior_precision
    return float((np.log(ratio) - 1 + variance / prior_precision).sum() / 2)


def _weights_in_parts(
    Q: DiagonalGaussian, touches: dict[str, _Touch], draws: int, seed: int
) -> Iterator[dict[str, np.ndarray]]:
    """Draws of the touched tensors, [draws, *shape] each, a few at a time."""
    weights = sum(Q.means[name].numel() for name in touches)
    step = max(1, _CHUNK // weights)
    generator = np.random.default_rng(seed)
    for start in range(0, draws, step):
        count = min(step, draws - start)
        yield {
            name: _array(Q.means[name])
            + _array(Q.scales[name]) * generator.standard_normal((count, *Q.means[name].shape))
            for name in touches
        }


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()
