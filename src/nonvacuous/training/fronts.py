"""The fixed front of a network: what it computes of an example never changes, so once is enough."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_BATCH = 512


def fixed_front(module: nn.Module) -> nn.Module | None:
    """The module's `fixed_front`, if it has one without parameters."""
    front = getattr(module, "fixed_front", None)
    if not isinstance(front, nn.Module) or any(True for _ in front.parameters()):
        return None
    return front


@torch.no_grad()
def behind(front: nn.Module | None, inputs: Tensor) -> Tensor:
    """What a front makes of all inputs; without one they stay as they are."""
    if front is None:
        return inputs
    front.eval()
    return torch.cat([front(batch) for batch in inputs.split(_BATCH)])


def behind_fixed_front(module: nn.Module, inputs: Tensor) -> Tensor:
    """The same for the module's own front, which it loses: `module` then takes the result in.

    It must be a copy of the caller's own.
    """
    front = fixed_front(module)
    if front is not None:
        module.fixed_front = nn.Identity()
    return behind(front, inputs)
