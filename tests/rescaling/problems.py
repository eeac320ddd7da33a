"""Posteriors and priors for hand-written groups, and slow oracles to compare with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from tests.rescaling.hand_groups import HandGroups


def posterior(
    groups: HandGroups, *, seed: int, dtype: torch.dtype = torch.float64
) -> DiagonalGaussian:
    """Random means and random scales, different for every weight."""
    generator = torch.Generator().manual_seed(seed)
    means, scales = {}, {}
    for name, shape in groups.shapes.items():
        size = 0.3 + torch.rand((), generator=generator, dtype=torch.float64)
        draw = torch.randn(shape, generator=generator, dtype=torch.float64)
        spread = torch.rand(shape, generator=generator, dtype=torch.float64)
        means[name] = (size * draw).to(dtype)
        scales[name] = (0.02 + 0.1 * spread).to(dtype)
    return DiagonalGaussian(means=means, scales=scales)


def prior(
    groups: HandGroups, *, seed: int, centered: bool = True, dtype: torch.dtype = torch.float64
) -> DiagonalGaussian:
    """Random scales; means zero or random."""
    generator = torch.Generator().manual_seed(seed + 1000)
    means, scales = {}, {}
    for name, shape in groups.shapes.items():
        draw = torch.randn(shape, generator=generator, dtype=torch.float64)
        spread = torch.rand(shape, generator=generator, dtype=torch.float64)
        means[name] = (torch.zeros(shape, dtype=torch.float64) if centered else 0.5 * draw).to(
            dtype
        )
        scales[name] = (0.2 + spread).to(dtype)
    return DiagonalGaussian(means=means, scales=scales)


def kl_by_definition(
    Q: DiagonalGaussian, P: DiagonalGaussian, groups: HandGroups, log_scales: Tensor
) -> Tensor:
    """KL(moved Q || P) of the full tensors as a differentiable function of the log-scales."""
    return kl_function(Q, P, groups)(log_scales)


def kl_function(
    Q: DiagonalGaussian, P: DiagonalGaussian, groups: HandGroups
) -> Callable[[Tensor], Tensor]:
    """The same for many log-scales: what does not depend on them is computed once."""
    tensors = []
    for name, shape in groups.shapes.items():
        moves = []
        for scale in groups.exponents[name]:
            order = np.argsort(scale.axes)
            where = [1] * len(shape)
            index = np.transpose(scale.index, order)
            for axis, length in zip(sorted(scale.axes), index.shape, strict=True):
                where[axis] = length
            moves.append((scale.power, torch.from_numpy(index.reshape(where).copy())))
        m, s = Q.means[name].double(), Q.scales[name].double()
        m0, s0 = P.means[name].double(), P.scales[name].double()
        tensors.append((shape, moves, m / s0, s / s0, m0 / s0, -1 - 2 * (s / s0).log()))

    def kl(log_scales: Tensor) -> Tensor:
        padded = torch.cat([log_scales, log_scales.new_zeros(1)])
        total = log_scales.new_zeros(())
        for shape, moves, mean, width, center, rest in tensors:
            logs = log_scales.new_zeros(shape)
            for power, index in moves:
                logs = logs + power * padded[index]
            r = logs.exp()
            terms = (r * width).square() + (r * mean - center).square() - 2 * logs + rest
            total = total + 0.5 * terms.sum()
        return total

    return kl


def minimize_slowly(
    Q: DiagonalGaussian, P: DiagonalGaussian, groups: HandGroups, start: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """The least KL that L-BFGS finds with derivatives from automatic differentiation."""
    kl = kl_function(Q, P, groups)

    def value_and_gradient(vector: np.ndarray) -> tuple[float, np.ndarray]:
        log_scales = torch.from_numpy(vector.copy()).requires_grad_()
        value = kl(log_scales)
        value.backward()
        return value.item(), log_scales.grad.numpy()

    point = np.zeros(groups.size) if start is None else start
    best = np.inf
    for _ in range(20):
        found = minimize(
            value_and_gradient,
            point,
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": 20_000,
                "maxfun": 50_000,
                "ftol": 1e-16,
                "gtol": 1e-10,
                "maxcor": 50,
            },
        )
        if not found.fun < best * (1 - 1e-13):
            break
        best, point = float(found.fun), found.x
    return min(best, float(found.fun)), point
