"""Risks measured without any of the library's short cuts, to compare its estimates with."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.risk.losses import Loss, zero_one


def risks_of_draws(
    module: nn.Module,
    posterior: DiagonalGaussian,
    examples: tuple[Tensor, Tensor],
    *,
    loss: Loss = zero_one,
    draws: int,
    generator: torch.Generator,
) -> Tensor:
    """For each draw of the weights, its mean loss over all examples, as most published code does.

    All examples of a pass see the same weights, so that a pass is one trial.
    """
    inputs, labels = examples
    risks = []
    with torch.no_grad():
        for _ in range(draws):
            outputs = functional_call(module, posterior.sample(generator=generator), (inputs,))
            risks.append(loss.unit_sum(loss(outputs, labels)) / len(labels))
    return torch.tensor(risks, dtype=torch.float64)


@torch.no_grad()
def plain_loss(module: nn.Module, examples: tuple[Tensor, Tensor], *, loss: Loss) -> float:
    """The loss of the network as it stands, summed over all examples in units of its range."""
    inputs, labels = examples
    return loss.unit_sum(loss(module(inputs), labels))
