"""How a certificate divides its failure probability: one rule for whoever pays or checks."""

from __future__ import annotations

from fractions import Fraction

from nonvacuous.bounds import ConfidenceBudget
from nonvacuous.kinds import kind_of
from nonvacuous.records import BudgetRecord
from nonvacuous.rules.arithmetic import BOUND_LINE, OTHERS_LINE, SAMPLING_LINE

#: The part of the failure probability that pays for Monte Carlo where there is any.
SAMPLING_SHARE = 0.2


def failure_of(confidence: float) -> float:
    """The decimal that was typed: 0.95 leaves 0.05, not 0.050000000000000044."""
    return float(1 - Fraction(repr(float(confidence))))


def ledger(
    *, mode: str, failure: float, attempts: int, sampled: bool, choices: int = 1
) -> BudgetRecord:
    """The lines of a certificate that was one of ``attempts`` on its examples.

    ``sampled``: its empirical risk rests on Monte-Carlo trials. ``choices``: members of the prior
    family among which the prior was chosen.
    """
    budget = ConfidenceBudget(failure=failure)
    if attempts > 1:
        budget.spend(
            OTHERS_LINE,
            failure * (attempts - 1) / attempts,
            reason=f"{attempts} certificates on the same examples share the confidence",
        )
    if sampled:
        loss = "the noisy loss" if kind_of(mode).noisy else "the risk"
        reason = f"Monte-Carlo estimate of {loss}"
        budget.spend(SAMPLING_LINE, SAMPLING_SHARE * budget.remaining, reason=reason)
    if choices > 1:
        budget.choose(
            BOUND_LINE,
            budget.remaining,
            choices=choices,
            reason="PAC-Bayes bound, union over the grid of prior scales",
        )
    else:
        reasons = {
            "holdout": "exact binomial tail",
            "progressive": "tests of the checkpoints, each before training on them",
            "sparsity": "PAC-Bayes bound for the noisy loss, all settings at once",
        }
        fixed = "PAC-Bayes bound, prior fixed before the data"
        budget.spend_rest(BOUND_LINE, reason=reasons.get(mode, fixed))
    record = budget.to_dict()
    return BudgetRecord.model_validate({**record, "entries": tuple(record["entries"])})
