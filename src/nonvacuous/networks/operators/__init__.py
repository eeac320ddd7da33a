"""The operators that scales can pass, one file per family; `register_operator` adds to them."""

from __future__ import annotations

from nonvacuous.networks.operators import (
    normalization,
    pointwise,
    products,
    reductions,
    shapes,
)
from nonvacuous.networks.operators.registry import (
    Passage,
    lookup,
    register_operator,
    registered_operators,
    unregister_operator,
)

__all__ = [
    "Passage",
    "lookup",
    "normalization",
    "pointwise",
    "products",
    "reductions",
    "register_operator",
    "registered_operators",
    "shapes",
    "unregister_operator",
]
