"""Fronts without parameters: computed once for every example, not at every visit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nonvacuous.models.scattering import Scattering, ScatteringNet

_BATCH = 512


def fixed_front(module: nn.Module) -> nn.Module | None:
    """The front of one of the library's own networks, which alone sees the inputs.

    Of a user's network nobody knows what else looks at them, whatever its parts are called; nor of
    one of ours once it was altered.
    """
    if type(module) is not ScatteringNet or type(module.fixed_front) is not Scattering:
        return None
    front = module.fixed_front
    altered = "forward" in {*vars(module), *vars(front)} or any(
        kept for part in (module, front) for name, kept in vars(part).items() if "_hooks" in name
    )
    return None if altered or any(True for _ in front.parameters()) else front


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
