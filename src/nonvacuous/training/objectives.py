"""What posterior training minimizes: PAC-Bayes bounds as differentiable functions.

An objective steers training and certifies nothing. The certificate is computed afterwards, by
`nonvacuous.bounds`, from the frozen posterior.

To add one, write a function of (empirical_risk, kl_nats, plan) that returns a scalar tensor, wrap
it in an `Objective` and add it to `OBJECTIVES`:

>>> sorted(OBJECTIVES)
['catoni', 'mcallester', 'quadratic', 'seeger', 'thiemann']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from nonvacuous.bounds import best_temperature, best_trade_off, checks

# The inverse of the binary relative entropy as a differentiable function.
#
# `nonvacuous.bounds.kl_inverse_upper` is the number that certificates use, rounded outward. This is
# its smooth twin for training: the same value up to rounding, with a gradient, on any device,
# without waiting for the GPU.
#
# With p = 1 - (1-q)e^-t the equation kl(q, p) = c becomes
#
#     F(t) = (1-q) t - q ln(1 + (1-q)(1 - e^-t)/q) = c,    F' = (p-q)/p,    F'' = q(1-p)/p²,
#
# increasing and convex in t >= 0. In t both ends are harmless: at q = 0 the root is t = c, and near
# the vacuous end 1-p = (1-q)e^-t keeps its relative accuracy although p itself rounds to 1.

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


def bounded_cross_entropy(
    outputs: Tensor, labels: Tensor, *, minimum_probability: float = 0.01
) -> Tensor:
    """Cross-entropy per example, cut at -ln(minimum_probability) and scaled to [0, 1].

    PAC-Bayes bounds need a bounded loss; the 0-1 loss has no gradient. Where the predicted
    probability of the label falls below the minimum, the loss is 1 and its gradient 0.

    >>> bounded_cross_entropy(torch.tensor([[50.0, 0.0]]), torch.tensor([1]))
    tensor([1.])
    """
    checks.within("minimum_probability", minimum_probability, 0.0, 1.0, open=True)
    floor = math.log(minimum_probability)
    logs = log_softmax(outputs, dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)
    return logs.clamp_min(floor) / floor


def power_loss(outputs: Tensor, labels: Tensor, *, power: float) -> Tensor:
    """1 - p**power per example, p the probability given to its label: in [0, 1] without a cut.

    Between the cross-entropy (power near 0, up to a factor) and the chance of a wrong answer when
    classes are drawn by their probabilities (power 1), which is closest to the 0-1 loss
    (Zhang and Sabuncu 2018).

    >>> power_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), power=1.0)
    tensor([0.5000])
    """
    logs = log_softmax(outputs, dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)
    return -torch.expm1(checks.positive("power", power) * logs)


@dataclass(frozen=True)
class Plan:
    """What the certificate will count on; `free_parameter` only for objectives that have one."""

    examples: int
    failure: float
    free_parameter: float


@dataclass(frozen=True)
class Objective:
    """A differentiable bound, and for one with a free parameter how to choose that parameter.

    `function` makes a scalar to be minimized out of the empirical risk and the KL in nats, all in
    float64. `best_parameter` takes the keyword arguments empirical_risk, kl_nats, examples and
    failure (floats) and returns the value at which the objective is smallest. Training alternates
    between steps on the weights and this closed form.
    """

    function: Callable[[Tensor, Tensor, Plan], Tensor]
    best_parameter: Callable[..., float] | None = None


def _complexity(kl_nats: Tensor, plan: Plan) -> Tensor:
    return (kl_nats + math.log(2.0 * math.sqrt(plan.examples) / plan.failure)) / plan.examples


def _seeger(empirical_risk: Tensor, kl_nats: Tensor, plan: Plan) -> Tensor:
    return kl_inverse(empirical_risk, _complexity(kl_nats, plan))


def _mcallester(empirical_risk: Tensor, kl_nats: Tensor, plan: Plan) -> Tensor:
    return empirical_risk + torch.sqrt(_complexity(kl_nats, plan) / 2.0)


def _quadratic(empirical_risk: Tensor, kl_nats: Tensor, plan: Plan) -> Tensor:
    half = _complexity(kl_nats, plan) / 2.0
    return (torch.sqrt(empirical_risk + half) + torch.sqrt(half)).square()


def _thiemann(empirical_risk: Tensor, kl_nats: Tensor, plan: Plan) -> Tensor:
    trade_off = plan.free_parameter
    return (empirical_risk + _complexity(kl_nats, plan) / trade_off) / (1.0 - trade_off / 2.0)


def _catoni(empirical_risk: Tensor, kl_nats: Tensor, plan: Plan) -> Tensor:
    temperature = plan.free_parameter
    exponent = temperature * empirical_risk + (kl_nats - math.log(plan.failure)) / plan.examples
    return torch.expm1(-exponent) / math.expm1(-temperature)


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "seeger": Objective(_seeger),
        "mcallester": Objective(_mcallester),
        "quadratic": Objective(_quadratic),
        "thiemann": Objective(_thiemann, best_trade_off),
        "catoni": Objective(_catoni, best_temperature),
    }
)
