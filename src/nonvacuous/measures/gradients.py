"""Derivatives by the input: how steep the function is where the examples lie."""

from __future__ import annotations

import math

import torch

from nonvacuous.measures.derivatives import input_gradients
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Undefined


@register_measure(
    "input-gradient",
    family="input gradients",
    formula="sqrt(mean over examples of ‖∇ loss by x‖₂²), loss the cross-entropy",
    source="Novak et al. (2018)",
    needs=["examples"],
    invariant=["rescaling", "permutation"],
)
def input_gradient(subject: Subject) -> float:
    return math.sqrt(float(input_gradients(subject, of_margin=False).square().mean()))


@register_measure(
    "input-margin",
    family="input gradients",
    formula="median of margin(x) / ‖∇ margin by x‖₂: the distance to the boundary, to first order",
    source="Elsayed et al. (2018); Jiang et al. (2019)",
    needs=["examples"],
    invariant=["rescaling", "permutation", "output scale"],
    higher="better",
)
def input_margin(subject: Subject) -> float | Undefined:
    slopes = input_gradients(subject, of_margin=True)
    if not bool((slopes > 0).all()):
        return Undefined("the margin of some example does not depend on its input at all")
    return float(torch.quantile(subject.margins / slopes, 0.5))
