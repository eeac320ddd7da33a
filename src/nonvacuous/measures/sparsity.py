"""How many hidden units are active."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nonvacuous.measures.derivatives import batches
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Undefined

_ACTIVATIONS = frozenset({"relu", "relu_", "leaky_relu", "leaky_relu_", "threshold"})


class _Watched(TorchDispatchMode):
    """Counts positive results of activations, however the module calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.active = self.units = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name.partition("::")[2] in _ACTIVATIONS and isinstance(result, Tensor):
            self.active += int((result > 0).sum())
            self.units += result.numel()
        return result


@register_measure(
    "active-share",
    family="activations",
    formula="share of (example, hidden unit) pairs with a positive ReLU",
    source="Muthukumar and Sulam (2023)",
    needs=["examples"],
    invariant=["rescaling", "permutation", "output scale"],
)
def active_share(subject: Subject) -> float | Undefined:
    watched = _Watched()
    with torch.no_grad(), watched:
        for inputs, _ in batches(subject):
            subject.outputs(inputs)
    if watched.units == 0:
        return Undefined("the network has no ReLU; without one no unit is ever off")
    return watched.active / watched.units
