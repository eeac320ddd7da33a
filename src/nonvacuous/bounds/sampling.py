"""The price of Monte Carlo: upper ends for a mean that was only sampled."""

from __future__ import annotations

import math

from nonvacuous.bounds import checks
from nonvacuous.bounds.binary_kl import kl_inverse_upper
from nonvacuous.bounds.holdout import holdout
from nonvacuous.bounds.rounding import as_risk, up
from nonvacuous.bounds.table import Input, Reading, theorem
from nonvacuous.errors import BadInput

__all__ = ["sampling", "sampling_bounded"]


@theorem(
    Reading(
        "chernoff",
        "Chernoff",
        "the binomial tail bounded by its kl form",
        "Chernoff's bound",
        about="deterministic",
        options={"identical": False},
    ),
    source="Clopper and Pearson (1934); Hoeffding (1963), Theorem 1, where trials differ",
    about=("mean of trials",),
)
def sampling(*, errors: int, trials: int, failure: float, identical: bool = True) -> float:
    """Upper end for the mean of independent trials in {0, 1}.

    Statement: with probability at least 1 - failure over the trials, their mean success
    probability is at most the returned value.
    Assumptions: trials are independent. ``identical=True`` (each trial draws its example afresh,
    with replacement) allows the exact binomial tail; for independent trials of *different*
    probabilities that tail can be too small, and ``identical=False`` uses the kl form instead
    (Chernoff; Hoeffding 1963, Theorem 1), which holds for both.

    >>> round(sampling(errors=1_000, trials=100_000, failure=0.01), 5)
    0.01076
    """
    if not isinstance(identical, bool):
        raise BadInput(f"identical must be True or False, got {identical!r}.")
    error_count, trial_count = checks.errors_among(errors, "trials", trials)
    if identical:
        return holdout(errors=error_count, examples=trial_count, failure=failure)
    return sampling_bounded(total=float(error_count), trials=trial_count, failure=failure)


@theorem(
    source="Hoeffding (1963), Theorem 1, in its kl form",
    about=("mean of trials",),
    total=Input("the sum of the trials", 100.5, push=1, at_most="trials"),
)
def sampling_bounded(*, total: float, trials: int, failure: float) -> float:
    """Upper end for the mean of independent trials in [0, 1], from the ``total`` of their values.

    Statement: with probability at least 1 - failure the average expectation of the trials is at
    most the returned value. Assumptions: independence and the range [0, 1]; the trials need not
    be identically distributed. Source: Hoeffding (1963), Theorem 1, in its kl form.

    >>> round(sampling_bounded(total=1_000.0, trials=100_000, failure=0.01), 5)
    0.01099
    """
    trial_count = checks.count("trials", trials, minimum=1)
    amount = checks.non_negative("total", total)
    if amount > trial_count:
        raise BadInput(
            f"total must not exceed trials, got total = {total!r} and trials = {trials!r}: "
            "each trial must lie in [0, 1]."
        )
    exponent = up(-math.log(checks.failure_probability(failure)) / trial_count)
    mean = min(1.0, up(amount / trial_count, ulps=1))
    return as_risk(float(kl_inverse_upper(mean, exponent)))
