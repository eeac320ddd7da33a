"""scikit-learn: a scorer whose score is a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nonvacuous.evaluation.evaluate import evaluate
from nonvacuous.evaluation.predicting import answers_of, with_scores
from nonvacuous.evaluation_records import Evaluation


def certified_scorer(
    *, confidence: float = 0.95, settings: Evaluation | None = None
) -> Callable[[Any, Any, Any], float]:
    """A scorer for ``scoring=``: one minus the certified risk, so that more is better.

    On examples that were set aside it is a lower bound on the accuracy (or whatever the settings
    measure). In a search each score is a promise alone; the best of K is not, unless the settings
    say ``attempts=K``, and a refit on all data has no promise at all.

    >>> scorer = certified_scorer(confidence=0.95)
    """

    def score(estimator: Any, inputs: Any, labels: Any) -> float:
        predictor, chosen = with_scores(estimator, settings or Evaluation())
        report = evaluate(
            predictions=answers_of(predictor)(inputs),
            labels=labels,
            confidence=confidence,
            unseen=True,
            settings=chosen,
        )
        return 1.0 - report.risk_upper

    return score
