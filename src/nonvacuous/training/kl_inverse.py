"""The inverse of the binary relative entropy as a differentiable function.

`nonvacuous.bounds.kl_inverse_upper` is the number that certificates use, rounded outward. This is
its smooth twin for training: the same value up to rounding, with a gradient, on any device,
without waiting for the GPU.

With p = 1 - (1-q)e^-t the equation kl(q, p) = c becomes

    F(t) = (1-q) t - q ln(1 + (1-q)(1 - e^-t)/q) = c,    F' = (p-q)/p,    F'' = q(1-p)/p²,

increasing and convex in t >= 0. In t both ends are harmless: at q = 0 the root is t = c, and near
the vacuous end 1-p = (1-q)e^-t keeps its relative accuracy although p itself rounds to 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Halley's iteration settles in three steps from the starting point below.
_STEPS = 3
# The slope in q grows like ln(1/q) towards q = 0; nearer than this it is held constant.
_MARGIN = 1e-12
# A budget below this is raised to it: at c = 0 the slope in c is infinite.
_LEAST_BUDGET = 1e-18


def kl_inverse(empirical_risk: Tensor, budget_nats: Tensor) -> Tensor:
    """The largest p in [0, 1] with kl(q, p) <= c, where q is the risk and c the budget in nats.

    With f(q, p) = kl(q, p) - c = 0 the implicit function theorem gives
    dp/dc = p(1-p)/(p-q) and dp/dq = (logit p - logit q) · p(1-p)/(p-q).

    >>> q = torch.tensor(0.02, dtype=torch.float64, requires_grad=True)
    >>> p = kl_inverse(q, torch.tensor(0.01, dtype=torch.float64))
    >>> round(p.item(), 6)
    0.046516
    >>> p.backward(); round(q.grad.item(), 4)
    1.4577
    """
    risk, budget = torch.broadcast_tensors(empirical_risk.double(), budget_nats.double())
    result: Tensor = _KlInverse.apply(risk, budget)  # type: ignore[no-untyped-call]
    return result


class _KlInverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, risk: Tensor, budget: Tensor) -> Tensor:
        q = risk.clamp(_MARGIN, 1.0 - _MARGIN)
        rest = 1.0 - q
        c = budget.clamp_min(_LEAST_BUDGET)
        t = c / rest + torch.sqrt(2.0 * q * c / rest)
        for _ in range(_STEPS):
            gap = -rest * torch.expm1(-t)
            p = q + gap
            excess = rest * t - q * torch.log1p(gap / q) - c
            slope = gap / p
            curvature = q * rest * torch.exp(-t) / p.square()
            t = t - 2.0 * excess * slope / (2.0 * slope.square() - excess * curvature)
        ctx.save_for_backward(q, t)
        return 1.0 - rest * torch.exp(-t)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        q, t = ctx.saved_tensors
        gap = -(1.0 - q) * torch.expm1(-t)
        p = q + gap
        slope_budget = p * (1.0 - q) * torch.exp(-t) / gap
        # logit p - logit q, where (1-q)/(1-p) = e^t
        slope_risk = (torch.log1p(gap / q) + t) * slope_budget
        return gradient * slope_risk, gradient * slope_budget
