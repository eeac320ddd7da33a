"""What an attempt came to: the posterior, the predictions on the bound examples, the counts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from nonvacuous.data import Examples
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.rules.digests import fixed_tensors, tensors_digest

_BATCH = 2048


def outcome_digest(
    module: nn.Module,
    bound_part: Examples,
    *,
    distributions: Sequence[DiagonalGaussian | None],
    numbers: Mapping[str, Any],
) -> str:
    """SHA-256 over all that the promise rests on and settings do not know.

    The scores of every bound example are part of it, bit by bit: a number in the network's code
    that changes the function changes them, whatever the weights are.
    """
    facts = {
        "distributions": [None if each is None else each.digest() for each in distributions],
        "network": tensors_digest(fixed_tensors(module)),
        "predictions": predictions_digest(module, bound_part),
        "numbers": dict(numbers),
    }
    return _digest(facts)


def beginning_digest(module: nn.Module, bound_part: Examples) -> str:
    """SHA-256 over what training begins with: the predictions, and numbers that shape training."""
    shaping = {
        f"{name}.{key}": repr(value)
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if key != "training" and isinstance(value, bool | int | float | str)
    }
    facts = {"predictions": predictions_digest(module, bound_part), "attributes": shaping}
    return _digest(facts)


def predictions_digest(module: nn.Module, examples: Examples) -> str:
    """SHA-256 over the scores of a network in evaluation mode, in the order of the examples."""
    device = next(module.parameters(), torch.empty(0)).device
    digest = hashlib.sha256()
    with torch.no_grad():
        for start in range(0, len(examples), _BATCH):
            scores = module(examples.inputs[start : start + _BATCH].to(device))
            raw = scores.detach().cpu().contiguous()
            digest.update(f"{raw.dtype}|{tuple(raw.shape)}|".encode())
            digest.update(raw.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def class_sizes(examples: Examples) -> tuple[int, ...]:
    """Examples of each class, largest first: the same whatever the classes are called."""
    counts = torch.bincount(examples.labels.cpu().long())
    return tuple(sorted((int(count) for count in counts if count), reverse=True))


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
