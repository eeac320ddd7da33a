"""Weight draws that are each shared by a whole pass over the data: for comparison.

This is how most published code measures the risk of a random predictor. All examples of a pass
see the same weights, so their losses move together and a pass counts as one trial, however many
examples it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.risk.estimate import (
    RiskEstimate,
    as_pair,
    check_device,
    check_evaluation_mode,
    check_labels,
    check_positive_count,
    generator_on,
    plain_precision,
)
from nonvacuous.risk.losses import Loss, class_margins, zero_one
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
    inputs, labels = as_pair(examples)
    check_evaluation_mode(module)
    check_positive_count("draws", draws)
    check_positive_count("chunk", chunk)
    posterior.check_covers(module)
    device = posterior.device
    check_device(module, device)
    source = generator_on(generator, device)
    risks: list[float] = []
    with plain_precision(device):
        hollow, probe = probe_network(module, posterior, inputs)
        check_labels(probe.outputs, labels)
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


# The network as it stands, without randomness: its loss and its margins on examples.


def plain_risk(
    module: nn.Module,
    examples: Any,
    *,
    loss: Loss = zero_one,
    chunk: int = 4096,
    progress: Callable[[int, int], None] | None = None,
) -> RiskEstimate:
    """The loss of the network with its present weights, once on every example.

    For examples that were drawn independently and had no part in training, ``errors`` of
    ``trials`` is what ``bounds.holdout`` takes.
    """
    sums: list[float] = []
    done = 0
    for outputs, labels, count in _passes(module, examples, chunk):
        sums.append(loss.unit_sum(loss(outputs, labels)))
        done += len(labels)
        if progress is not None:
            progress(done, count)
    total = min(float(done), math.fsum(sums))
    return RiskEstimate(
        errors=int(total) if loss.binary else None,
        trials=done,
        total=total,
        scheme="every example once",
        identical=True,
        loss=loss.name,
        method="plain pass",
        examples=done,
        lower=loss.lower,
        upper=loss.upper,
    )


def margins(module: nn.Module, examples: Any, *, chunk: int = 4096) -> Tensor:
    """Score of the right class minus the best other score, for every example.

    Positive exactly where the network is right; minus infinity where a score is not finite.
    """
    parts = []
    for outputs, labels, _ in _passes(module, examples, chunk):
        broken = ~torch.isfinite(outputs).all(dim=1)
        parts.append(class_margins(outputs, labels).masked_fill(broken, -math.inf))
    return torch.cat(parts)


def _passes(module: nn.Module, examples: Any, chunk: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    inputs, labels = as_pair(examples)
    check_evaluation_mode(module)
    check_positive_count("chunk", chunk)
    parameter = next(iter(module.parameters()), None)
    device = inputs.device if parameter is None else parameter.device
    for start in range(0, len(labels), chunk):
        wanted = labels[start : start + chunk].to(device)
        with plain_precision(device):
            outputs = module(inputs[start : start + chunk].to(device))
        check_labels(outputs, wanted)
        yield outputs, wanted, len(labels)
