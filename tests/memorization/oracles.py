"""The theorem once more, from its statement, with Python's fractions and double loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from nonvacuous.memorization import Memorizer


def position(found: Memorizer, point: np.ndarray) -> Fraction:
    """⟨a, x⟩ with the direction's own weights, number by number."""
    total = Fraction(0)
    direction = found.direction
    for value, whole, exponent in zip(
        point.reshape(-1).tolist(),
        direction.whole.tolist(),
        direction.exponents.tolist(),
        strict=True,
    ):
        exact = Fraction(round(value * direction.grid)) if direction.grid else Fraction(value)
        total += exact * whole * Fraction(2) ** exponent
    return total


def network_value(found: Memorizer, point: np.ndarray) -> Fraction:
    """c(x) = sum over j of w_j max(⟨a, x⟩ - b_j, 0); blocks stand still where the next begins."""
    made = found.construction
    unit = Fraction(2) ** found.direction.unit
    z = position(found, point) / unit
    total = Fraction(0)
    ends = (*made.blocks[1:], None)
    for start, end in zip(made.blocks, ends, strict=True):
        here = z if end is None else min(z, Fraction(made.knots[end]))
        for j in range(start, len(made) if end is None else end):
            total += made.weights[j] * max(here - made.knots[j], 0)
    return total / (1 << found.fraction_bits)


def stored_value(found: Memorizer, point: np.ndarray) -> Fraction:
    """The two-layer float64 network's numbers, evaluated without rounding."""
    z = position(found, point)
    stored = found.weights
    return sum(
        (
            Fraction(weight) * max(z - Fraction(knot), 0)
            for weight, knot in zip(stored.weights.tolist(), stored.knots.tolist(), strict=True)
        ),
        Fraction(0),
    )
