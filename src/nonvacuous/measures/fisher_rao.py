"""The Fisher–Rao norm: how much the loss changes when all weights grow together."""

from __future__ import annotations

import math

from nonvacuous.measures.derivatives import slopes_along_weights
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject


@register_measure(
    "fisher-rao",
    family="Fisher–Rao",
    formula="sqrt(mean over examples of ⟨w, ∇ loss(x, y)⟩²), loss the cross-entropy",
    source="Liang, Poggio, Rakhlin and Stokes (2019), with the labels given",
    needs=["examples"],
    invariant=["rescaling", "permutation"],
)
def fisher_rao(subject: Subject) -> float:
    return math.sqrt(float(slopes_along_weights(subject).square().mean()))
