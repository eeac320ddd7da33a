"""The best point of an orbit: scales that make the KL small and leave the function as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor

from nonvacuous.bounds.rounding import EPSILON
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks.scale_groups import ScaleGroups
from nonvacuous.rescaling.collapse import collapse
from nonvacuous.rescaling.descending import Limits, Progress, best_of_two, descend
from nonvacuous.rescaling.reading import Reading, check_covered, workplace
from nonvacuous.rescaling.sweeps import Descent
from nonvacuous.rescaling.terms import Terms

# The KL of a posterior moved along its orbit, from the full tensors, never below the true value.
#
# A positive scale on a hidden channel multiplies the weights into the channel and divides the
# weights out of it: the network computes the same function with other weights. Over a posterior
# these moves form an orbit: every weight gets a factor ``r``, its mean becomes ``r * mean`` and its
# scale ``r * scale``. This file is the one place where a factor meets the tensors themselves. What
# the solver finds is only a proposal; the numbers that a certificate may quote come from here.
#
# Notation below: ``x`` is the ratio of variances (r * scale / prior scale)^2 and ``shift`` the
# distance of the means in prior scales. One weight contributes (x - 1 - ln x + shift^2) / 2 nats.


def kl_along_orbit(
    Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups, log_scales: np.ndarray
) -> dict[str, float]:
    """KL(Q moved by ``log_scales`` || P) in nats for each tensor, in float64, rounded up.

    ``log_scales`` holds the natural logarithm of one positive scale per entry of ``groups``; any
    vector is allowed, and every one of them gives a valid complexity for the same predictor. The
    prior may have any means and any scales. A tensor that equals the prior's is at exactly zero.
    """
    check_covered(Q, P, groups)
    return orbit_nats(Reading.of(Q, P), groups, groups.checked(log_scales))


def orbit_nats(reading: Reading, groups: ScaleGroups, moves: np.ndarray) -> dict[str, float]:
    """What :func:`kl_along_orbit` returns, for tensors that have been looked at before."""
    sums: list[Tensor] = []
    units: list[float] = []
    padded = np.append(moves, 0.0)  # the last entry is what a pinned position (-1) points at
    for name in reading.tensors:
        exponents = groups.exponents[name] if moves.any() else ()
        ndim = len(reading.shapes[name])
        values = [scale.power * padded[scale.spread(ndim)] for scale in exponents]
        factors = [torch.as_tensor(value).to(reading.device).exp() for value in values]
        sums.append(_tensor_sums(reading, name, factors))
        # How far a factor may be off, in units of rounding: a product of exponentials, each of
        # an argument that was itself rounded.
        reach = max((abs(scale.power) for scale in exponents), default=0.0)
        units.append(64 + 8 * len(factors) * reach * float(np.abs(moves).max(initial=0.0)))
    nats = dict.fromkeys(reading.shapes, 0.0)
    rows = torch.stack(sums).cpu().numpy()
    for name, (twice, size), unit in zip(reading.tensors, rows, units, strict=True):
        total = twice / 2 + unit * EPSILON * size
        finite = math.isfinite(total)
        nats[name] = math.nextafter(total, math.inf) if total > 0 else (0.0 if finite else math.inf)
    return nats


def total_nats(terms: dict[str, float]) -> float:
    """The sum over tensors, rounded up."""
    total = math.fsum(terms.values())
    return math.nextafter(total, math.inf) if total > 0 else 0.0


def push(
    Q: DiagonalGaussian,
    groups: ScaleGroups,
    log_scales: np.ndarray,
    *,
    dtype: torch.dtype | None = None,
) -> DiagonalGaussian:
    """The posterior of the rescaled network: means ``r * mean`` and scales ``r * scale``.

    The result has the dtype of ``Q`` unless another one is named. In float32 every weight is
    rounded, so the pushed distribution is a neighbor of the exact one; a KL that must hold is
    taken from :func:`kl_along_orbit`, which never rounds the weights.
    """
    check_covered(Q, None, groups)
    logs = groups.log_factors(log_scales)

    def moved(tensor: Tensor, name: str) -> Tensor:
        device = workplace(tensor.device)
        factor = torch.from_numpy(logs[name]).to(device).exp()
        product = tensor.to(device).to(torch.float64) * factor
        return product.to(dtype or tensor.dtype).to(tensor.device)

    return DiagonalGaussian(
        means={name: moved(mean, name) for name, mean in Q.means.items()},
        scales={name: moved(scale, name) for name, scale in Q.scales.items()},
    )


def _tensor_sums(reading: Reading, name: str, factors: list[Tensor]) -> Tensor:
    """Twice the KL of one tensor, and a size that its rounding error is proportional to."""
    values: list[Tensor] = []
    sizes: list[Tensor] = []
    for part, (mean, scale, prior_mean, prior_scale) in reading.chunks(name):
        x = scale / prior_scale
        for factor in factors:
            axes = zip(part, factor.shape[: len(part)], strict=True)
            piece = factor[tuple(p if length > 1 else slice(None) for p, length in axes)]
            mean, x = mean * piece, x * piece
        x = x.square()
        log_x = x.log()
        excess = x.sub_(1.0)
        shift = (mean - prior_mean).div_(prior_scale)
        squares = shift.square().sum()
        # The scales may vary over fewer axes than the weights: each entry then stands for many.
        repeats = shift.numel() / x.numel()
        values.append((excess - log_x).clamp_min_(0.0).sum() * repeats + squares)
        # The error of the logarithm and of the square, then that of the factor: it moves the
        # first part in proportion to |x - 1| and the second in proportion to |mean * shift|.
        lever = 2 * squares
        if not reading.centered(name):
            lever = squares + shift.mul_(mean).div_(prior_scale).abs_().sum()
        sizes.append(excess.abs_().add_(log_x.abs_()).sum() * repeats + lever)
    return torch.stack([torch.stack(values).sum(), torch.stack(sizes).sum()])


@dataclass(frozen=True, eq=False)
class Rescaling:
    """Where a descent along the orbit of a posterior ended.

    ``kl_before`` and ``kl_after`` are nats over all tensors in float64, rounded up so that they
    are never below the true value; ``kl_terms`` splits ``kl_after`` by tensor. ``kl_after`` is
    never above ``kl_before``, whether or not the descent ``converged``: every point of the orbit
    is valid, optimality only makes the number smaller.

    ``balance_residual``: at the best point the weights into a channel and the weights out of it
    pull equally hard. For each channel, the difference of the two pulls is divided by the sum of
    the sizes of all parts, and the largest quotient is given: 0 is perfect, 1 is one-sided.
    """

    log_scales: np.ndarray
    kl_before: float
    kl_after: float
    kl_terms: Mapping[str, float]
    balance_residual: float
    sweeps: int
    converged: bool


def rescale(
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    groups: ScaleGroups,
    *,
    tolerance: float = 1e-10,
    max_sweeps: int = 1000,
    progress: Progress | None = None,
) -> Rescaling:
    """Scales of the hidden channels that make KL(Q || P) as small as the orbit of Q allows.

    The rescaled network computes the same function, so risks do not change and choosing the
    scales after seeing the data costs nothing. ``P`` stays where it is.

    For a prior with zero means the problem is convex, and the result is the minimum up to
    ``tolerance`` times the KL; it does not depend on how the network was scaled to begin with.
    For other prior means there may be several minima; the better of two descents is returned, one
    from the network as given and one from the best point for a zero-mean prior.

    The descent stops when the decrease still to come, judged by the last sweeps, is below
    ``tolerance`` times the KL, or after ``max_sweeps``.

    >>> from torch import nn
    >>> from nonvacuous.networks import capture, scale_groups
    >>> network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    >>> groups = scale_groups(capture(network, torch.zeros(1, 4)))
    >>> posterior = DiagonalGaussian.around(network, scale=0.03)
    >>> result = rescale(posterior, DiagonalGaussian.centered(network, scale=1.0), groups)
    >>> result.converged, result.kl_after < result.kl_before
    (True, True)
    """
    limits = Limits(tolerance, max_sweeps, progress)
    check_covered(Q, P, groups)
    unmoved = np.zeros(groups.size)
    reading = Reading.of(Q, P)
    before = orbit_nats(reading, groups, unmoved)
    if groups.size == 0:
        total = total_nats(before)
        return Rescaling(unmoved, total, total, MappingProxyType(before), 0.0, 0, True)
    terms = collapse(reading, groups)
    end = best_of_two(
        lambda start, phase: descend(Descent(terms, start), limits, phase=phase),
        Descent(terms, terms.unmoved),
        limits,
    )
    log_scales = end.log_scales.cpu().numpy()
    after = orbit_nats(reading, groups, log_scales)
    if not total_nats(after) < total_nats(before):
        # Already at the best point up to rounding: stay.
        log_scales, after = unmoved, before
    return Rescaling(
        log_scales=log_scales,
        kl_before=total_nats(before),
        kl_after=total_nats(after),
        kl_terms=MappingProxyType(after),
        balance_residual=Descent(terms, torch.from_numpy(log_scales)).balance_residual(),
        sweeps=end.sweeps,
        converged=end.converged,
    )


_NEWTON_STEPS = 3
_SOLVER_STEPS = 60
# A step that is right to four digits is followed by another one; differences over the second of
# these tell the curvature to seven.
_ENOUGH, _APART = 1e-4, 1e-7


def polished(
    Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups, log_scales: np.ndarray
) -> np.ndarray:
    """Log-scales near the given ones at which the slope of KL(Q moved || P) is smaller.

    Meant for the end of ``rescale``: a descent that watches the KL cannot see the best scales to
    more than half the digits of a number, for the KL is flat where it is smallest. The slope is
    not. A few Newton steps on it, each solved by conjugate gradients, give nearly all digits, in
    whatever gauge the weights are given. Every log-scales are valid; where a step does not help,
    what was given comes back.
    """
    check_covered(Q, P, groups)
    best = groups.checked(log_scales)
    if groups.size == 0:
        return best
    terms = collapse(Reading.of(Q, P), groups)
    slope, curvature = _derivatives(terms, best)
    for _ in range(_NEWTON_STEPS):
        moved = best - _newton_step(terms, best, slope, curvature)
        new, curvature = _derivatives(terms, moved)
        if not np.linalg.norm(new) < np.linalg.norm(slope):
            break
        best, slope = moved, new
    return best


def _derivatives(terms: Terms, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first derivative of the KL by every log-scale, and the second by each one alone."""
    return Descent(terms, torch.from_numpy(point)).derivatives()[:2]


def _newton_step(
    terms: Terms, point: np.ndarray, slope: np.ndarray, curvature: np.ndarray
) -> np.ndarray:
    """Conjugate gradients on the curvature, which is positive near a minimum.

    The curvature of each scale alone makes them fast: scales of one layer do not meet.
    """

    def curved(direction: np.ndarray) -> np.ndarray:
        apart = _APART / np.abs(direction).max()
        there, _ = _derivatives(terms, point + apart * direction)
        return np.asarray((there - slope) / apart)

    alone = np.maximum(curvature, 1e-6 * np.abs(curvature).max() + 1e-300)
    shape = (len(point), len(point))
    step, _ = cg(
        LinearOperator(shape, matvec=curved, dtype=np.float64),
        slope,
        rtol=_ENOUGH,
        maxiter=_SOLVER_STEPS,
        M=LinearOperator(shape, matvec=lambda residual: residual / alone, dtype=np.float64),
    )
    return np.asarray(step)
