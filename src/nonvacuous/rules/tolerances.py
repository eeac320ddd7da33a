"""How far two computations of the same divergence may lie apart, by rounding alone."""

from __future__ import annotations

from collections.abc import Mapping

from nonvacuous.records import KlTerm

#: Two correct evaluations of the same formula may differ by this much, relative and per weight.
RELATIVE = 1e-9
PER_WEIGHT = 1e-12


def tolerance(nats: float, weights: int) -> float:
    return RELATIVE * abs(nats) + PER_WEIGHT * weights


def disagreement(
    terms: tuple[KlTerm, ...], recomputed: Mapping[str, float]
) -> tuple[KlTerm, float] | None:
    """The first term that is not the recomputed one, up to rounding."""
    for term in terms:
        value = recomputed.get(term.tensor)
        if value is None or not abs(term.nats - value) <= tolerance(value, term.size):
            return term, float("nan") if value is None else value
    return None
