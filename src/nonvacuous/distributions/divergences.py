"""Divergences between two diagonal Gaussians, tensor by tensor, never below the true value.

Every sum runs in float64 whatever the dtype of the tensors, block by block so that a large layer
does not need eight times its own memory. A bound on the rounding error is carried along with
each sum and added at the end: the numbers returned here are upper bounds of the exact divergences
of the stored tensors, and two equal tensors are at divergence exactly zero.

Notation: the posterior has means ``m`` and scales ``s``, the prior has means ``M`` and scales
``S``; ``excess`` is (s / S)^2 - 1, which is zero where the two scales agree, so that ``log1p``
keeps all its digits there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_BLOCK = 1 << 22
# Each elementary float64 operation is off by at most half a unit in the last place, library
# logarithms by about one; a few dozen units cover every chain of operations below, including the
# pairwise summation of one block.
_ROUNDING = 64 * torch.finfo(torch.float64).eps


def gaussian_kl(means: Tensor, scales: Tensor, prior_means: Tensor, prior_scales: Tensor) -> float:
    """KL(posterior || prior) in nats, summed over one tensor and rounded up."""

    def block(m: Tensor, s: Tensor, prior_m: Tensor, prior_s: Tensor) -> tuple[Tensor, Tensor]:
        excess, log_ratio, log_size = _compare_scales(s, prior_s)
        scale_part = (excess - log_ratio).clamp_min(0)
        mean_part = ((m - prior_m) / prior_s).square()
        # excess is accurate to a relative error, so only the logarithm's error can exceed the
        # (possibly much smaller) difference.
        size = scale_part + mean_part + log_size
        return (scale_part + mean_part) / 2, size

    return max(0.0, _sum_upward(block, means, scales, prior_means, prior_scales))


def gaussian_renyi(
    means: Tensor, scales: Tensor, prior_means: Tensor, prior_scales: Tensor, order: float
) -> float:
    """Rényi divergence of the given order (> 1) in nats, rounded up; infinite where undefined.

    It exists only while the posterior is not much wider than the prior:
    ``order * S^2 > (order - 1) * s^2`` for every weight.
    """
    gap = order - 1.0

    def block(m: Tensor, s: Tensor, prior_m: Tensor, prior_s: Tensor) -> tuple[Tensor, Tensor]:
        excess, log_ratio, log_size = _compare_scales(s, prior_s)
        mixed = 1.0 - gap * excess
        scale_part = -log_ratio / 2 - torch.log1p(-gap * excess) / (2 * gap)
        mean_part = ((m - prior_m) / prior_s).square() * (order / 2) / mixed
        # ``mixed`` is a difference: its relative error grows as it approaches zero.
        cancellation = (1.0 + gap * excess.abs()) / mixed
        size = (
            log_size
            + torch.log1p(-gap * excess).abs() / gap
            + cancellation * (excess.abs() + mean_part)
            + mean_part
        )
        undefined = ~(mixed > 0)
        infinity = torch.full_like(mixed, math.inf)
        value = (scale_part.clamp_min(0) + mean_part).where(~undefined, infinity)
        return value, size.where(~undefined, torch.zeros_like(size))

    return max(0.0, _sum_upward(block, means, scales, prior_means, prior_scales))


def gaussian_log_ratio(
    means: Tensor, scales: Tensor, prior_means: Tensor, prior_scales: Tensor, weights: Tensor
) -> float:
    """ln(dposterior / dprior) at ``weights``, in nats, rounded up; it may be negative."""

    def block(
        m: Tensor, s: Tensor, prior_m: Tensor, prior_s: Tensor, w: Tensor
    ) -> tuple[Tensor, Tensor]:
        _, log_ratio, log_size = _compare_scales(s, prior_s)
        near = ((w - m) / s).square()
        far = ((w - prior_m) / prior_s).square()
        size = near + far + log_size
        return (far - near - log_ratio) / 2, size

    return _sum_upward(block, means, scales, prior_means, prior_scales, weights)


def _compare_scales(s: Tensor, prior_s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(s / S)^2 - 1 and ln of (s / S)^2, each accurate for close and for far apart scales; and a
    magnitude that the rounding error of the logarithm is proportional to."""
    logs, prior_logs = torch.log(s), torch.log(prior_s)
    excess = ((s - prior_s) / prior_s) * ((s + prior_s) / prior_s)
    near = excess.abs() < 0.5
    nothing = torch.zeros_like(excess)
    log_ratio = torch.log1p(excess.where(near, nothing)).where(near, 2 * (logs - prior_logs))
    size = log_ratio.abs()
    far = size > 0.4
    return excess, log_ratio, size + (logs.abs_() + prior_logs.abs_()).where(far, nothing)


def _sum_upward(block: Callable[..., tuple[Tensor, Tensor]], *tensors: Tensor) -> float:
    values: list[float] = []
    sizes: list[float] = []
    # Apple's GPUs have no float64; everywhere else the sums stay where the first tensor is.
    device = tensors[0].device if tensors[0].device.type != "mps" else torch.device("cpu")
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), _BLOCK):
        parts = (part[start : start + _BLOCK].to(device).to(torch.float64) for part in flat)
        value, size = block(*parts)
        values.append(float(value.sum()))
        sizes.append(float(value.abs().sum() + size.sum()))
    if any(not math.isfinite(value) for value in values + sizes):
        return math.inf
    return math.fsum([*values, _ROUNDING * math.fsum(sizes)])
