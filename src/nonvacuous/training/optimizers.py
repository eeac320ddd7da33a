"""Optimizers whose whole state can be written to a checkpoint and read back exactly."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("constant", "cosine", "one-cycle")
#: How the names of an optimizer's tensors begin.
OPTIMIZER = "optimizer."
#: Parts of a weight tensor that a GPU moves at the same time.
_PIECES = 32
_RISE = 0.25  # the share of a one-cycle in which the rate rises; then it falls to zero


def build_optimizer(
    name: str,
    groups: Sequence[tuple[Sequence[Tensor], float]],
    *,
    momentum: float,
    weight_decay: float = 0.0,
    fused: bool | None = None,
) -> Optimizer:
    """SGD with momentum, or Adam with momentum as its first decay rate.

    `groups` pairs tensors with their learning rate. Adam decays weights apart from the gradient.
    `fused` reads every tensor once instead of once for each operation; by default on a GPU.
    """
    options: list[dict[str, Any]] = [
        {"params": list(tensors), "lr": rate, "base_rate": rate} for tensors, rate in groups
    ]
    if fused is None:
        fused = all(tensor.is_cuda for tensors, _ in groups for tensor in tensors) or None
    shared: dict[str, Any] = {"lr": 1.0, "weight_decay": weight_decay, "fused": fused}
    if name == "sgd":
        return _plain(torch.optim.SGD)(options, momentum=momentum, **shared)
    return _plain(torch.optim.AdamW)(options, betas=(momentum, 0.999), **shared)


def make_recordable(optimizer: Optimizer) -> None:
    """Keep all that its steps read in tensors on the GPU, and have them before the first step."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"], device=group["params"][0].device)
        adam = "betas" in group
        names = ("exp_avg", "exp_avg_sq") if adam else ("momentum_buffer",)
        for tensor in group["params"]:
            optimizer.state[tensor] = {name: torch.zeros_like(tensor) for name in names}
            if adam:
                optimizer.state[tensor]["step"] = torch.zeros((), device=tensor.device)
        if adam:
            group["capturable"] = True


@torch.no_grad()
def take_step(optimizer: Optimizer) -> None:
    """Move all weights: where a step is recorded, in pieces that a GPU moves side by side.

    Torch's fused Adam lets one of its many processors move 65,536 weights; the result is the same.
    """
    if not all(group.get("capturable") for group in optimizer.param_groups):
        optimizer.step()
        return
    for group in optimizer.param_groups:
        for weights in group["params"]:
            state = optimizer.state[weights]
            state["step"] += 1.0
            size = 4 * -(-weights.numel() // (4 * _PIECES))
            pieces = weights.detach().split(size)
            torch._fused_adamw_(
                pieces,
                weights.grad.split(size),
                state["exp_avg"].split(size),
                state["exp_avg_sq"].split(size),
                [],
                [state["step"]] * len(pieces),
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )


@cache
def _plain(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """The optimizer as it is written, without the wrappers that tell torch's compiler to keep out.

    At their first call they import that compiler, which takes nearly as long as torch itself.
    """
    names = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), {**methods, "step": step})


def set_rate(optimizer: Optimizer, schedule: str, done: float) -> None:
    """Set every learning rate for a run of which the fraction `done` lies behind."""
    factor = 1.0
    if schedule == "cosine":
        factor = 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
    elif schedule == "one-cycle":
        factor = max(0.0, min(0.02 + done / _RISE, (1.0 - done) / (1.0 - _RISE)))
    for group in optimizer.param_groups:
        rate = group["base_rate"] * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's memory as named tensors."""
    return {
        f"{OPTIMIZER}{index}.{key}": value
        for index, entries in optimizer.state_dict()["state"].items()
        for key, value in entries.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give the optimizer back what `optimizer_tensors` took; other names are ignored."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith(OPTIMIZER):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = tensor.clone()
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
