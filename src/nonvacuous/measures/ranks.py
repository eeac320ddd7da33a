"""What a network really uses: active hidden units, and ranks that need no threshold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nonvacuous.measures.norms import log_frobenius, log_spectral
from nonvacuous.measures.registry import Undefined, register_measure
from nonvacuous.measures.subject import Subject

_ACTIVATIONS = frozenset({"relu", "relu_", "leaky_relu", "leaky_relu_", "threshold"})


class _Watched(TorchDispatchMode):
    """Counts positive results of activations, however the module calls them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
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
        for inputs, _ in subject.batches():
            subject.outputs(inputs)
    if watched.units == 0:
        return Undefined("the network has no ReLU; without one no unit is ever off")
    return watched.active / watched.units


def _register(name: str, formula: str, source: str, rank: Callable[[Tensor], float]) -> None:
    @register_measure(
        name,
        family="ranks",
        formula=f"Σ over layers of {formula}",
        source=source,
        invariant=["permutation", "output scale"],
    )
    def ranks(subject: Subject) -> float | Undefined:
        if not all(bool(matrix.any()) for matrix in subject.layers):
            return Undefined("a weight matrix is zero, and has no direction")
        return math.fsum(map(rank, subject.layers))


def _effective(matrix: Tensor) -> float:
    values = torch.linalg.svdvals(matrix)
    return math.exp(float(torch.special.entr(values / values.sum()).sum()))


_register(
    "stable-rank",
    "‖W‖_F² / ‖W‖₂²",
    "Rudelson and Vershynin (2007); in Neyshabur, Bhojanapalli and Srebro (2018)",
    lambda matrix: math.exp(2 * (log_frobenius(matrix) - log_spectral(matrix))),
)
_register(
    "effective-rank",
    "exp(entropy of the singular values divided by their sum)",
    "Roy and Vetterli (2007)",
    _effective,
)
