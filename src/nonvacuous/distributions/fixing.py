"""Networks of which a part is random: all other weights are fixed, and have no price.

A fixed weight is a buffer. So everything that guards buffers guards it: it must have been what it
is before the bound examples were seen, or nothing is promised.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nonvacuous.distributions.copying import copied_network
from nonvacuous.errors import BadInput

_BATCH = 512


def with_fixed(module: nn.Module, random: Iterable[str]) -> nn.Module:
    """A copy in which only the named parameters are left; the others have become buffers."""
    kept = set(random)
    copied = copied_network(module)
    unknown = sorted(kept - {name for name, _ in copied.named_parameters()})
    if unknown:
        raise BadInput(f"the network has no parameter {unknown[0]!r} that could be random")
    for prefix, part in copied.named_modules():
        for own, parameter in list(part.named_parameters(recurse=False)):
            if (f"{prefix}.{own}" if prefix else own) not in kept:
                delattr(part, own)
                part.register_buffer(own, parameter.detach())
    return copied


@torch.no_grad()
def last_layer(module: nn.Module, inputs: Tensor) -> tuple[str, ...]:
    """Names of the parameters of the layer that a prediction uses last.

    inputs   a few examples, to watch one prediction of the module in evaluation mode
    """
    order: list[str] = []
    hooks = [
        part.register_forward_hook(lambda *_, name=name: order.append(name))
        for name, part in module.named_modules()
        if next(part.parameters(recurse=False), None) is not None
    ]
    try:
        module(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not order or order.count(order[-1]) > 1:
        raise BadInput(
            "the network has no layer of its own at its end that could be random while all others "
            "are fixed; leave random='last' out"
        )
    prefix = f"{order[-1]}." if order[-1] else ""
    own = module.get_submodule(order[-1]).named_parameters(recurse=False)
    return tuple(f"{prefix}{name}" for name, _ in own)


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
