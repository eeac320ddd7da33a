"""Counts: numbers that the architecture alone decides, and a complexity of the class of norms."""

from __future__ import annotations

import math

from nonvacuous.bounds.capacity import vc_upper
from nonvacuous.measures.matrix_norms import log_frobenius, log_product
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Value
from nonvacuous.rescaling.structure import score_difference


@register_measure(
    "parameter-count",
    family="capacity",
    formula="number of weights and biases",
    source="the usual count",
    invariant=["rescaling", "permutation", "output scale"],
)
def parameter_count(subject: Subject) -> float:
    return float(sum(weight.numel() for weight in subject.weights.values()))


@register_measure(
    "vc-dimension",
    family="capacity",
    formula="largest m with Π over layers of 2(2e m c d / W)^W ≥ 2^m, for the difference of two "
    "scores",
    source="Bartlett, Harvey, Liaw and Mehrabian (2019), Theorem 6: an upper bound",
    invariant=["rescaling", "permutation", "output scale"],
)
def vc_dimension(subject: Subject) -> float:
    layers = score_difference(subject.graph)
    return float(
        vc_upper(parameters=[own for own, _ in layers], comparisons=[signs for _, signs in layers])
    )


@register_measure(
    "rademacher-frobenius",
    family="capacity",
    formula="B (sqrt(2 d ln 2) + 1) Π‖W‖_F / sqrt(n), B the longest input, d layers, n examples",
    source="Golowich, Rakhlin and Shamir (2018), Theorem 1, for fully connected networks without "
    "biases and norms fixed before; a measure elsewhere",
    needs=["examples"],
    invariant=["permutation"],
)
def rademacher_frobenius(subject: Subject) -> Value:
    inputs, _ = subject.examples
    longest = float(inputs.flatten(1).square().sum(1).max().sqrt())
    depth = math.sqrt(2 * math.log(2) * len(subject.layers)) + 1
    norms = log_product(log_frobenius, [layer.matrix for layer in subject.layers])
    if longest == 0.0:
        return Value.of(0.0)
    return Value.of_log(norms + math.log(longest * depth) - 0.5 * math.log(len(inputs)))
