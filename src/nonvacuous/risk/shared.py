"""Weight draws that are each shared by a whole pass over the data: for comparison.

This is how most published code measures the risk of a random predictor. All examples of a pass
see the same weights, so their losses move together and a pass counts as one trial, however many
examples it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.risk import checks
from nonvacuous.risk.estimate import RiskEstimate
from nonvacuous.risk.losses import Loss, zero_one
from nonvacuous.risk.memory import plain_precision
from nonvacuous.risk.preparation import probe_network


def estimate_risk_shared(
    module: nn.Module,
    posterior: DiagonalGaussian,
    examples: Any,
    *,
    loss: Loss = zero_one,
    draws: int = 100,
    generator: torch.Generator,
    chunk: int = 4096,
    progress: Callable[[int, int], None] | None = None,
) -> RiskEstimate:
    """Mean loss over all examples for each of ``draws`` draws of the weights.

    The estimate has ``draws`` independent trials, each the risk of one draw, a number in [0, 1]
    and not a coin flip: use ``bounds.sampling_bounded`` on ``total`` and ``trials``. ``chunk``
    examples are passed at once; ``progress`` is called with (done, total) after each draw.
    """
    inputs, labels = checks.as_pair(examples)
    checks.check_evaluation_mode(module)
    checks.check_positive_count("draws", draws)
    checks.check_positive_count("chunk", chunk)
    posterior.check_covers(module)
    device = posterior.device
    checks.check_device(module, device)
    source = checks.generator_on(generator, device)
    risks: list[float] = []
    with plain_precision(device):
        hollow, probe = probe_network(module, posterior, inputs)
        checks.check_labels(probe.outputs, labels)
        for done in range(1, draws + 1):
            weights = posterior.sample(generator=source)
            sums = []
            for start in range(0, len(labels), chunk):
                part = inputs[start : start + chunk].to(device)
                outputs = functional_call(hollow, weights, (part,))
                wanted = labels[start : start + chunk].to(device)
                sums.append(loss.unit_sum(loss(outputs, wanted)))
            risks.append(min(1.0, math.fsum(sums) / len(labels)))
            if progress is not None:
                progress(done, draws)
    return RiskEstimate(
        errors=None,
        trials=draws,
        total=min(float(draws), math.fsum(risks)),
        scheme="shared draws",
        identical=True,
        loss=loss.name,
        method="plain passes",
        examples=len(labels),
        lower=loss.lower,
        upper=loss.upper,
        per_draw=tuple(risks),
    )
