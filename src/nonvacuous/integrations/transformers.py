"""Hugging Face: metrics and a callback that turn ``trainer.evaluate`` into a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from nonvacuous.certificate import Certificate
from nonvacuous.evaluation.evaluate import evaluate
from nonvacuous.evaluation.predicting import classes_of
from nonvacuous.evaluation_records import Evaluation


class CertifiedTest(TrainerCallback):  # type: ignore[misc]
    """For ``Trainer(compute_metrics=test, callbacks=[test])``: metrics, and certificate.json.

    ``report`` is the certificate of the last evaluation. Say ``unseen`` only where the evaluated
    examples chose nothing: neither the stopping time nor the checkpoint.
    """

    def __init__(
        self, *, unseen: bool = False, confidence: float = 0.95, settings: Evaluation | None = None
    ) -> None:
        self.report: Certificate | None = None
        self._call: dict[str, Any] = {"unseen": unseen, "confidence": confidence}
        self._call |= {"settings": settings}

    def __call__(self, prediction: Any) -> dict[str, float]:
        scores = prediction.predictions
        scores = scores[0] if isinstance(scores, tuple) else scores
        if (self._call["settings"] or Evaluation()).entry.answers:
            scores = classes_of(scores)
        elif scores.ndim == 2 and scores.shape[1] == 1:  # a regressor's
            scores = scores[:, 0]
        self.report = evaluate(
            predictions=scores,
            labels=prediction.label_ids,
            **self._call,
        )
        record = self.report.evaluation
        assert record is not None
        return {"risk_upper": self.report.risk_upper, "risk_lower": record.risk_lower}

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.report is not None:
            self.report.save(Path(args.output_dir) / "certificate.json")
