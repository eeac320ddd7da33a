"""Sharpness: how the training loss bends around the weights."""

from __future__ import annotations

import math

from nonvacuous.measures.balancing import balanced
from nonvacuous.measures.derivatives import (
    FEW,
    bend_along_weights,
    gauss_newton_trace,
    largest_curvature,
    weight_gradient,
)
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject


@register_measure(
    "sharpness-trace",
    family="sharpness",
    formula=f"mean over the first {FEW} inputs of Σ p_k ‖∇ ln p_k‖²: trace of the Gauss–Newton "
    "Hessian",
    source="Dinh et al. (2017), who show that it depends on the gauge",
    needs=["examples"],
    invariant=["permutation"],
    cost="expensive",
)
def sharpness_trace(subject: Subject) -> float:
    return gauss_newton_trace(subject)


@register_measure(
    "sharpness-balanced",
    family="sharpness",
    formula="sharpness-trace of the same function in the gauge of smallest norm",
    source="sharpness-trace where the norm is smallest over rescaling",
    needs=["examples"],
    invariant=["rescaling", "permutation"],
    cost="expensive",
)
def sharpness_balanced(subject: Subject) -> float:
    return gauss_newton_trace(subject.moved(balanced(subject)))


@register_measure(
    "sharpness-largest",
    family="sharpness",
    formula=f"largest eigenvalue of the Hessian of the mean cross-entropy on the first {FEW} "
    "examples",
    source="Keskar et al. (2017), to second order; Dinh et al. (2017): it depends on the gauge",
    needs=["examples"],
    invariant=["permutation"],
    cost="expensive",
)
def sharpness_largest(subject: Subject) -> float:
    return largest_curvature(subject)


@register_measure(
    "sharpness-along-weights",
    family="sharpness",
    formula="|wᵀ H w|, H the Hessian of the mean cross-entropy",
    source="after the relative flatness of Petzka et al. (2021), along all weights at once",
    needs=["examples"],
    invariant=["rescaling", "permutation"],
)
def sharpness_along_weights(subject: Subject) -> float:
    return abs(bend_along_weights(subject))


@register_measure(
    "gradient-norm",
    family="sharpness",
    formula="‖∇ of the mean cross-entropy by the weights‖₂",
    source="Jiang et al. (2020)",
    needs=["examples"],
    invariant=["permutation"],
)
def gradient_norm(subject: Subject) -> float:
    squares = [float(slope.square().sum()) for slope in weight_gradient(subject).values()]
    return math.sqrt(math.fsum(squares))
