"""Sample compression: the risk of a predictor that a few of its examples determine."""

from __future__ import annotations

import math

from nonvacuous.bounds.later import numpy as np
from nonvacuous.bounds.rounding import EPSILON, as_risk
from nonvacuous.bounds.table import Input, theorem
from nonvacuous.errors import BadInput

__all__ = ["compression"]

#: The sum has one term per example.
_MOST_EXAMPLES = 10**8


@theorem(
    source="Campi and Garatti (2023), Theorem 7",
    about=("deterministic",),
    kept=Input(
        "examples that determine it or that it gets wrong",
        100,
        push=1,
        whole=True,
        at_most="examples",
    ),
)
def compression(*, kept: int, examples: int, failure: float) -> float:
    """Upper bound on the risk of a predictor that is determined by some of its examples.

    ``kept`` counts the examples that determine it together with the other examples on which it
    errs. The bound is the root e in [kept/n, 1] of
    (failure / n) sum over m = k .. n-1 of [C(m, k) / C(n, k)] (1 - e)^-(n - m) = 1.
    Assumptions: independent draws; the rule that keeps examples looks at those kept alone, is
    deterministic given their order, and the predictor is the same if the others are left out.
    Tight.

    >>> round(compression(kept=300, examples=30_000, failure=0.05), 5)
    0.01195
    """
    if examples > _MOST_EXAMPLES:
        raise BadInput(f"examples must be at most {_MOST_EXAMPLES} here, got {examples!r}.")
    if kept == examples:
        return 1.0
    # ln of C(m, k) / C(n, k) from m = n - 1 down to k: C(m, k) / C(m+1, k) = 1 - k / (m+1).
    gaps = np.arange(1, examples - kept + 1, dtype=np.float64)
    ratios = np.cumsum(np.log1p(-kept / (examples - gaps + 1.0)))
    goal = math.log(examples) - math.log(failure)

    def reached(risk: float) -> bool:
        """Whether the sum is surely 1 or more, rounding errors included."""
        steps = -math.log1p(-risk) * gaps
        terms = ratios + steps
        top = float(terms.max())
        total = top + math.log(float(np.exp(terms - top).sum()))
        size = float(-ratios[-1]) + float(steps[-1]) + abs(goal) + 1.0
        return total >= goal + (examples + 64) * EPSILON * size

    low, high = kept / examples, 1.0
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (low, middle) if reached(middle) else (middle, high)
    return as_risk(high)
