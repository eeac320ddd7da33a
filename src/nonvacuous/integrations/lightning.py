"""Lightning: a callback that turns ``trainer.test`` into a report."""

from __future__ import annotations

from typing import Any

import numpy as np
from lightning.pytorch.callbacks import Callback

from nonvacuous.certificate import Certificate
from nonvacuous.errors import BadInput
from nonvacuous.evaluation.coding import plain
from nonvacuous.evaluation.evaluate import evaluate
from nonvacuous.evaluation_records import Evaluation


class CertifiedTest(Callback):
    """Collects what ``test_step`` returns, {"predictions": ..., "labels": ...}, and reports on it.

    ``report`` is the certificate after ``trainer.test``; its promise is logged as ``risk_upper``.
    """

    def __init__(
        self,
        *,
        unseen: bool = False,
        confidence: float = 0.95,
        settings: Evaluation | None = None,
        folder: str | None = None,
    ) -> None:
        self.report: Certificate | None = None
        self._call: dict[str, Any] = {"unseen": unseen, "confidence": confidence}
        self._call |= {"settings": settings, "folder": folder}
        self._batches: list[tuple[np.ndarray, np.ndarray]] = []

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.world_size > 1:
            raise BadInput("test on one device: several would count padded examples twice.")
        self._batches = []

    def on_test_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if dataloader_idx > 0:
            raise BadInput(
                "test with one DataLoader: the examples of several may be the same ones, and their "
                "mean is no promise about any of them. Call trainer.test for each by itself."
            )
        if not isinstance(outputs, dict) or not {"predictions", "labels"} <= outputs.keys():
            raise BadInput('test_step must return {"predictions": ..., "labels": ...}.')
        self._batches.append(
            (plain(outputs["predictions"], "predictions"), plain(outputs["labels"], "labels"))
        )

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        predictions, labels = (np.concatenate(c) for c in zip(*self._batches, strict=True))
        self.report = evaluate(predictions=predictions, labels=labels, **self._call)
        pl_module.log("risk_upper", self.report.risk_upper)
