"""disagreement: a model that was never tested inherits the promise of one that was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nonvacuous.bounds import holdout
from nonvacuous.bounds.rounding import as_risk, shown_up, up
from nonvacuous.certificate import Certificate
from nonvacuous.errors import BadInput
from nonvacuous.evaluation.coding import Coder, plain


@dataclass(frozen=True)
class Inherited:
    """The promise about a new model: the old one's, and how often the two differ at most."""

    risk_upper: float
    confidence: float
    disagreements: int
    inputs: int
    disagreement_upper: float

    def __str__(self) -> str:
        return (
            f"risk <= {shown_up(self.risk_upper)} with confidence {self.confidence:.10g}: they "
            f"differ on {self.disagreements} of {self.inputs} inputs, on at most "
            f"{shown_up(self.disagreement_upper)} of all."
        )


def disagreement(
    report: Certificate,
    new_predictions: Any,
    old_predictions: Any,
    *,
    failure: float = 0.01,
    models: int = 1,
) -> Inherited:
    """Risk of a new model <= risk of the certified one + P(they differ), for right-or-wrong losses.

    Both predict the same unlabeled inputs: independent draws of the certified distribution that
    the new model was not made with. ``failure`` comes on top of the report's own; with several
    new ``models`` each has its share of it.
    """
    if report.status == "refused" or report.loss.name != "zero-one":
        raise BadInput("only the error rate of a certificate that was not refused is inherited.")
    coder = Coder()
    new = coder(plain(new_predictions, "new_predictions"))
    old = coder(plain(old_predictions, "old_predictions"))
    if len(new) != len(old) or not len(new):
        raise BadInput(f"both must predict the same inputs: got {len(new)} and {len(old)} answers.")
    if models < 1:
        raise BadInput(f"models counts the new models, from 1 up, got {models!r}.")
    differ = int((new != old).sum())
    end = holdout(errors=differ, examples=len(new), failure=failure / models)
    return Inherited(
        risk_upper=as_risk(up(report.risk_upper + end)),
        confidence=1.0 - up(report.budget.failure + failure),
        disagreements=differ,
        inputs=len(new),
        disagreement_upper=end,
    )
