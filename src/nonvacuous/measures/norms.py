"""Norms of the weight matrices: their product and their sum over the layers."""

from __future__ import annotations

from nonvacuous.measures.matrix_norms import NORMS, LogNorm, log_product
from nonvacuous.measures.registry import register_measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import Value, log_sum


def _register(name: str, log_norm: LogNorm, formula: str, source: str) -> None:
    @register_measure(
        f"{name}-product",
        family="norms",
        formula=f"Π over layers of {formula}",
        source=source,
        invariant=["permutation"],
    )
    def product(subject: Subject) -> Value:
        return Value.of_log(log_product(log_norm, [layer.matrix for layer in subject.layers]))

    @register_measure(
        f"{name}-sum",
        family="norms",
        formula=f"Σ over layers of {formula}",
        source=source,
        invariant=["permutation"],
    )
    def total(subject: Subject) -> Value:
        return Value.of_log(log_sum(log_norm(layer.matrix) for layer in subject.layers))


for _name, (_log_norm, _formula, _source) in NORMS.items():
    _register(_name, _log_norm, _formula, _source)
