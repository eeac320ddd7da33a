"""The operators that scales can pass, one file per family; `register_operator` adds to them."""

from nonvacuous.networks.operators import (  # noqa: F401  (they register their rules)
    normalization,
    pointwise,
    products,
    reductions,
    shapes,
)
