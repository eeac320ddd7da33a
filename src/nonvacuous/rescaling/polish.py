"""The last digits of the best point of an orbit.

A descent that watches the KL cannot see the best scales to more than half the digits of a number:
the KL is flat where it is smallest. The slope is not. A few Newton steps on it, each solved by
conjugate gradients, give nearly all digits, so that a network has the same best point to many
digits in whatever gauge its weights are given.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks.scale_groups import ScaleGroups
from nonvacuous.rescaling.reading import check_covered, workplace

_NEWTON_STEPS = 3
_SOLVER_STEPS = 60
# A step that is right to four digits is followed by another one.
_ENOUGH = 1e-8


def polished(
    Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups, log_scales: np.ndarray
) -> np.ndarray:
    """Log-scales near the given ones at which the slope of KL(Q moved || P) is smaller.

    Meant for the end of ``rescale``. Every log-scales are valid; where a step does not help, what
    was given comes back.
    """
    check_covered(Q, P, groups)
    moves = groups.checked(log_scales)
    if groups.size == 0:
        return moves
    slope = _Slope(Q, P, groups)
    best = torch.from_numpy(moves).to(slope.device)
    size = float(slope.at(best).norm())
    for _ in range(_NEWTON_STEPS):
        step = _solve(slope, best)
        moved = best - step
        new = float(slope.at(moved).norm())
        if not new < size:
            break
        best, size = moved, new
    return best.cpu().numpy()


class _Slope:
    """The derivative of the KL by every log-scale, in float64 from the full tensors."""

    def __init__(self, Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups) -> None:
        self.device = workplace(Q.device)
        self.tensors = []
        for name in Q.names:
            if not groups.exponents[name]:
                continue  # no scale moves it
            scale, prior_scale = (d.scales[name].to(self.device).double() for d in (Q, P))
            mean, prior_mean = (d.means[name].to(self.device).double() for d in (Q, P))
            squares = (scale.square() + mean.square()) / prior_scale.square()
            products = mean * prior_mean / prior_scale.square()
            # Weights that share their factor, as the positions of a kernel do, count together.
            axes = {axis for entry in groups.exponents[name] for axis in entry.axes}
            alike = tuple(axis for axis in range(mean.ndim) if axis not in axes)
            if alike:
                squares, products = (t.sum(alike, keepdim=True) for t in (squares, products))
            indices = [
                (entry.power, torch.from_numpy(entry.spread(mean.ndim).copy()).to(self.device))
                for entry in groups.exponents[name]
            ]
            self.tensors.append((mean.numel(), squares, products, indices))

    def at(self, log_scales: Tensor, *, graph: bool = False) -> Tensor:
        point = log_scales if graph else log_scales.detach().requires_grad_(True)
        with torch.enable_grad():
            padded = torch.cat([point, point.new_zeros(1)])  # a pinned position points at the end
            total = point.new_zeros(())
            for weights, squares, products, indices in self.tensors:
                log_factor = _log_factor(padded, indices)
                factor = log_factor.exp()
                total = total + (squares * factor.square()).sum() / 2 - (products * factor).sum()
                total = total - weights / log_factor.numel() * log_factor.sum()
            (slope,) = torch.autograd.grad(total, point, create_graph=graph)
        return slope if graph else slope.detach()

    def curvatures(self, log_scales: Tensor) -> Tensor:
        """The second derivative by each log-scale alone, kept positive."""
        padded = torch.cat([log_scales, log_scales.new_zeros(1)])
        total = torch.zeros_like(padded)
        for _, squares, products, indices in self.tensors:
            factor = _log_factor(padded, indices).exp()
            bend = 2 * squares * factor.square() - products * factor
            for power, index in indices:
                axes = tuple(a for a in range(bend.ndim) if index.shape[a] == 1)
                shared = bend.sum(axes, keepdim=True) if axes else bend
                # A pinned position (-1) adds to the last place, which is dropped below.
                positions = index.flatten().remainder(len(total))
                total.index_add_(0, positions, power**2 * shared.flatten())
        bends = total[:-1]
        return bends.clamp_min(1e-6 * float(bends.abs().max()) + 1e-300)


def _log_factor(padded: Tensor, indices: list[tuple[float, Tensor]]) -> Tensor:
    total = sum(power * padded[index] for power, index in indices)
    assert isinstance(total, Tensor)
    return total


def _solve(slope: _Slope, point: Tensor) -> Tensor:
    """The Newton step: conjugate gradients on the curvature, which is positive near a minimum.

    The curvature of each scale alone makes them fast: scales of one layer do not meet.
    """
    here = point.detach().requires_grad_(True)
    first = slope.at(here, graph=True)
    alone = slope.curvatures(point)

    def curved(direction: Tensor) -> Tensor:
        (product,) = torch.autograd.grad(first, here, direction, retain_graph=True)
        return product

    residual = first.detach().clone()
    step = torch.zeros_like(residual)
    leaned = residual / alone
    direction, power = leaned, float((residual * leaned).sum())
    goal = _ENOUGH * power
    for _ in range(_SOLVER_STEPS):
        if power <= goal:
            break
        product = curved(direction)
        bend = float((direction * product).sum())
        if not bend > 0:
            break
        length = power / bend
        step = step + length * direction
        residual = residual - length * product
        leaned = residual / alone
        power, before = float((residual * leaned).sum()), power
        direction = leaned + power / before * direction
    return step
