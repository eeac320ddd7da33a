"""The fixed front of a network: what it computes of an example never changes, so once is enough."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_BATCH = 512


@torch.no_grad()
def behind_fixed_front(module: nn.Module, inputs: Tensor) -> Tensor:
    """What the module's `fixed_front` makes of all inputs; the module then takes that in.

    A front is fixed if it has no parameters; `module` (a copy of the caller's own, in evaluation
    mode) loses it. A module without one keeps its inputs.
    """
    front = getattr(module, "fixed_front", None)
    if not isinstance(front, nn.Module) or any(True for _ in front.parameters()):
        return inputs
    module.fixed_front = nn.Identity()
    return torch.cat([front(batch) for batch in inputs.split(_BATCH)])
