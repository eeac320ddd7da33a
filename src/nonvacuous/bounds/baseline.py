"""What always answering one class errs on at least: the baseline of every certificate."""

from __future__ import annotations

from nonvacuous.bounds import checks
from nonvacuous.bounds.holdout import holdout_lower
from nonvacuous.bounds.table import Input, theorem

__all__ = ["constant_lower"]


@theorem(
    source="Clopper and Pearson (1934); Berger (1982) for the intersection-union",
    about=("best constant answer",),
    lower=True,
    most_frequent=Input(
        "examples of the most frequent class", 100, push=-1, whole=True, at_most="examples"
    ),
    examples=Input("independent examples", 10_000, push=1, low=1, whole=True),
)
def constant_lower(*, most_frequent: int, examples: int, failure: float) -> float:
    """Lower bound on the risk of the best constant answer, from the class counts of a sample.

    Statement: ``most_frequent`` is the count of the most frequent class among ``examples``. With
    probability at least 1 - failure over the draw of the examples, no constant answer has a risk
    below the returned value.
    Assumptions: the examples are independent and identically distributed. They may have trained
    anything: no constant depends on them.

    Proof: let c be the class that is most frequent in the distribution, which no sample decides.
    Always answering c is a fixed predictor and errs on n - n_c of the n examples, so its
    Clopper-Pearson lower end L_c fails with probability at most ``failure``. That end grows with
    the number of errors, hence the returned value, the end for the class most frequent in the
    sample, is at most L_c; and every other constant errs at least as often as c. No share is paid
    for the classes (intersection-union).

    Beside a promise: if U bounds the risk of a predictor with failure δ, both this bound and U hold
    with failure at most δ + ``failure``, whatever their dependence; where U is below this bound the
    predictor is better than every constant answer.
    Source: Clopper and Pearson (1934); Berger (1982) for the intersection-union.

    >>> round(constant_lower(most_frequent=953, examples=1000, failure=0.005), 4)
    0.0315
    """
    n = checks.count("examples", examples, minimum=1)
    most, _ = checks.errors_among(most_frequent, "examples", n, name="most_frequent")
    return holdout_lower(errors=n - most, examples=n, failure=failure)
