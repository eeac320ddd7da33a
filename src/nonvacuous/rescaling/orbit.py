"""The KL of a posterior moved along its orbit, from the full tensors, never below the true value.

A positive scale on a hidden channel multiplies the weights into the channel and divides the
weights out of it: the network computes the same function with other weights. Over a posterior
these moves form an orbit: every weight gets a factor ``r``, its mean becomes ``r * mean`` and its
scale ``r * scale``. This file is the one place where a factor meets the tensors themselves. What
the solver finds is only a proposal; the numbers that a certificate may quote come from here.

Notation below: ``x`` is the ratio of variances (r * scale / prior scale)^2 and ``shift`` the
distance of the means in prior scales. One weight contributes (x - 1 - ln x + shift^2) / 2 nats.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.rescaling.checks import check_covered, check_log_scales
from nonvacuous.rescaling.reading import Reading, workplace

if TYPE_CHECKING:
    from nonvacuous.networks.scale_groups import AxisScale, ScaleGroups

_EPSILON = torch.finfo(torch.float64).eps


def kl_along_orbit(
    Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups, log_scales: np.ndarray
) -> dict[str, float]:
    """KL(Q moved by ``log_scales`` || P) in nats for each tensor, in float64, rounded up.

    ``log_scales`` holds the natural logarithm of one positive scale per entry of ``groups``; any
    vector is allowed, and every one of them gives a valid complexity for the same predictor. The
    prior may have any means and any scales. A tensor that equals the prior's is at exactly zero.
    """
    check_covered(Q, P, groups)
    return orbit_nats(Reading.of(Q, P), groups, check_log_scales(groups, log_scales))


def orbit_nats(reading: Reading, groups: ScaleGroups, moves: np.ndarray) -> dict[str, float]:
    """What :func:`kl_along_orbit` returns, for tensors that have been looked at before."""
    sums: list[Tensor] = []
    units: list[float] = []
    for name in reading.tensors:
        exponents = groups.exponents[name] if moves.any() else ()
        ndim = len(reading.shapes[name])
        factors = [part.exp() for part in log_factors(exponents, moves, ndim, reading.device)]
        sums.append(_tensor_sums(reading, name, factors))
        # How far a factor may be off, in units of rounding: a product of exponentials, each of
        # an argument that was itself rounded.
        reach = max((abs(scale.power) for scale in exponents), default=0.0)
        units.append(64 + 8 * len(factors) * reach * float(np.abs(moves).max(initial=0.0)))
    nats = dict.fromkeys(reading.shapes, 0.0)
    rows = torch.stack(sums).cpu().numpy()
    for name, (twice, size), unit in zip(reading.tensors, rows, units, strict=True):
        total = twice / 2 + unit * _EPSILON * size
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
    moves = check_log_scales(groups, log_scales)
    means: dict[str, Tensor] = {}
    scales: dict[str, Tensor] = {}
    for name in Q.names:
        device = workplace(Q.means[name].device)
        log_factor = torch.zeros((), dtype=torch.float64, device=device)
        for summand in log_factors(groups.exponents[name], moves, Q.means[name].ndim, device):
            log_factor = log_factor + summand
        for source, target in ((Q.means, means), (Q.scales, scales)):
            tensor = source[name]
            moved = tensor.to(device).to(torch.float64) * log_factor.exp()
            target[name] = moved.to(dtype or tensor.dtype).to(tensor.device)
    return DiagonalGaussian(means=means, scales=scales)


def log_factors(
    exponents: tuple[AxisScale, ...], moves: np.ndarray, ndim: int, device: torch.device
) -> list[Tensor]:
    """The logarithm of a tensor's factor as summands, each broadcastable to the tensor."""
    padded = np.append(moves, 0.0)  # the last entry is what a pinned position (-1) points at
    summands = []
    for scale in exponents:
        order = np.argsort(scale.axes)
        index = np.transpose(np.asarray(scale.index), order)
        shape = [1] * ndim
        for axis, length in zip(sorted(scale.axes), index.shape, strict=True):
            shape[axis] = length
        values = scale.power * padded[index.reshape(shape)]
        summands.append(torch.from_numpy(np.ascontiguousarray(values)).to(device))
    return summands


def _tensor_sums(reading: Reading, name: str, factors: list[Tensor]) -> Tensor:
    """Twice the KL of one tensor, and a size that its rounding error is proportional to."""
    values: list[Tensor] = []
    sizes: list[Tensor] = []
    for part, given in reading.chunks(name):
        mean, x = given.mean, given.scale / given.prior_scale
        for factor in factors:
            axes = zip(part, factor.shape[: len(part)], strict=True)
            piece = factor[tuple(p if length > 1 else slice(None) for p, length in axes)]
            mean, x = mean * piece, x * piece
        x = x.square()
        log_x = x.log()
        excess = x.sub_(1.0)
        shift = (mean - given.prior_mean).div_(given.prior_scale)
        squares = shift.square().sum()
        # The scales may vary over fewer axes than the weights: each entry then stands for many.
        repeats = shift.numel() / x.numel()
        values.append((excess - log_x).clamp_min_(0.0).sum() * repeats + squares)
        # The error of the logarithm and of the square, then that of the factor: it moves the
        # first part in proportion to |x - 1| and the second in proportion to |mean * shift|.
        lever = 2 * squares
        if not reading.centered[name]:
            lever = squares + shift.mul_(mean).div_(given.prior_scale).abs_().sum()
        sizes.append(excess.abs_().add_(log_x.abs_()).sum() * repeats + lever)
    return torch.stack([torch.stack(values).sum(), torch.stack(sizes).sum()])
