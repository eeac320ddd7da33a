"""Optimizers whose whole state can be written to a checkpoint and read back exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("constant", "cosine", "one-cycle")
_RISE = 0.25  # the share of a one-cycle in which the rate rises; then it falls to zero


def build_optimizer(
    name: str,
    groups: Sequence[tuple[Sequence[Tensor], float]],
    *,
    momentum: float,
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    """SGD with momentum, or Adam with momentum as its first decay rate.

    `groups` pairs tensors with their learning rate. Adam decays weights apart from the gradient.
    """
    options: list[dict[str, Any]] = [
        {"params": list(tensors), "lr": rate, "base_rate": rate} for tensors, rate in groups
    ]
    # Fused: one kernel for all tensors instead of several for each.
    fused = all(tensor.is_cuda for tensors, _ in groups for tensor in tensors) or None
    if name == "sgd":
        return torch.optim.SGD(
            options, lr=1.0, momentum=momentum, weight_decay=weight_decay, fused=fused
        )
    return torch.optim.AdamW(
        options, lr=1.0, betas=(momentum, 0.999), weight_decay=weight_decay, fused=fused
    )


def set_rate(optimizer: torch.optim.Optimizer, schedule: str, done: float) -> None:
    """Set every learning rate for a run of which the fraction `done` lies behind."""
    factor = 1.0
    if schedule == "cosine":
        factor = 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
    elif schedule == "one-cycle":
        factor = max(0.0, min(0.02 + done / _RISE, (1.0 - done) / (1.0 - _RISE)))
    for group in optimizer.param_groups:
        group["lr"] = group["base_rate"] * factor


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's memory as named tensors."""
    return {
        f"optimizer.{index}.{key}": value
        for index, entries in optimizer.state_dict()["state"].items()
        for key, value in entries.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give the optimizer back what `optimizer_tensors` took; other names are ignored."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = tensor.clone()
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
