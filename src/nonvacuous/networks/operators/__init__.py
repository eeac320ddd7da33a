"""The operators that scales can pass, one file per family; `register_operator` adds to them."""

from __future__ import annotations

from nonvacuous.networks.operators import (
    attention,
    lookups,
    normalization,
    pointwise,
    products,
    reductions,
    resampling,
    shapes,
)
from nonvacuous.networks.operators.passage import Passage
from nonvacuous.networks.operators.registry import (
    lookup,
    register_operator,
    registered_operators,
    unregister_operator,
)

__all__ = [
    "Passage",
    "attention",
    "lookup",
    "lookups",
    "normalization",
    "pointwise",
    "products",
    "reductions",
    "register_operator",
    "registered_operators",
    "resampling",
    "shapes",
    "unregister_operator",
]
