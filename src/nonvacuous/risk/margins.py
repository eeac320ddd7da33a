"""The network as it stands, without randomness: its loss and its margins on examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.risk import checks
from nonvacuous.risk.estimate import RiskEstimate
from nonvacuous.risk.losses import Loss, class_margins, zero_one
from nonvacuous.risk.memory import plain_precision


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
    inputs, labels = checks.as_pair(examples)
    checks.check_evaluation_mode(module)
    checks.check_positive_count("chunk", chunk)
    parameter = next(iter(module.parameters()), None)
    device = inputs.device if parameter is None else parameter.device
    for start in range(0, len(labels), chunk):
        wanted = labels[start : start + chunk].to(device)
        with plain_precision(device):
            outputs = module(inputs[start : start + chunk].to(device))
        checks.check_labels(outputs, wanted)
        yield outputs, wanted, len(labels)
