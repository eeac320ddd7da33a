"""Ranks that need no threshold: how many directions a weight matrix really uses."""

from __future__ import annotations

import math

import torch

from nonvacuous.measures.matrix_norms import log_frobenius, log_spectral
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Undefined

_ZERO = "a weight matrix is zero, and has no direction"


@register_measure(
    "stable-rank",
    family="ranks",
    formula="Σ over layers of ‖W‖_F² / ‖W‖₂²",
    source="Rudelson and Vershynin (2007); in Neyshabur, Bhojanapalli and Srebro (2018)",
    invariant=["permutation", "output scale"],
)
def stable_rank(subject: Subject) -> float | Undefined:
    logs = [(log_frobenius(layer.matrix), log_spectral(layer.matrix)) for layer in subject.layers]
    if any(spectral == -math.inf for _, spectral in logs):
        return Undefined(_ZERO)
    return math.fsum(math.exp(2 * (frobenius - spectral)) for frobenius, spectral in logs)


@register_measure(
    "effective-rank",
    family="ranks",
    formula="Σ over layers of exp(entropy of the singular values divided by their sum)",
    source="Roy and Vetterli (2007)",
    invariant=["permutation", "output scale"],
)
def effective_rank(subject: Subject) -> float | Undefined:
    ranks = []
    for layer in subject.layers:
        values = torch.linalg.svdvals(layer.matrix)
        if not float(values[0]) > 0:
            return Undefined(_ZERO)
        shares = values / values.sum()
        entropy = -float(torch.special.xlogy(shares, shares).sum())
        ranks.append(math.exp(entropy))
    return math.fsum(ranks)
