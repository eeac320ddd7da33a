"""How far training has carried the weights from where they began."""

from __future__ import annotations

import math

from torch import Tensor

from nonvacuous.measures.matrix_norms import NORMS, LogNorm, log_product
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Value, log_sum


def differences(subject: Subject) -> list[Tensor]:
    """Trained minus initial matrix, for every layer."""
    pairs = zip(subject.layers, subject.initial_layers, strict=True)
    return [layer.matrix - start.matrix for layer, start in pairs]


@register_measure(
    "distance",
    family="distance from initialization",
    formula="‖w − w₀‖₂ over all weights and biases",
    source="Dziugaite and Roy (2017); Nagarajan and Kolter (2019)",
    needs=["initial"],
    invariant=["permutation"],
)
def distance(subject: Subject) -> float:
    assert subject.initial is not None
    squares = [
        float((weight - subject.initial[name]).square().sum())
        for name, weight in subject.weights.items()
    ]
    return math.sqrt(math.fsum(squares))


def _register(name: str, log_norm: LogNorm, formula: str, source: str) -> None:
    written = formula.replace("W", "W − W₀").replace("‖row‖", "‖row − row₀‖")

    @register_measure(
        f"{name}-distance-product",
        family="distance from initialization",
        formula=f"Π over layers of {written}",
        source=source,
        needs=["initial"],
        invariant=["permutation"],
    )
    def product(subject: Subject) -> Value:
        return Value.of_log(log_product(log_norm, differences(subject)))

    @register_measure(
        f"{name}-distance-sum",
        family="distance from initialization",
        formula=f"Σ over layers of {written}",
        source=source,
        needs=["initial"],
        invariant=["permutation"],
    )
    def total(subject: Subject) -> Value:
        return Value.of_log(log_sum(map(log_norm, differences(subject))))


for _name, (_log_norm, _formula, _source) in NORMS.items():
    _register(_name, _log_norm, _formula, _source)
