"""What a certificate is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from nonvacuous.certification.charging import Charging
from nonvacuous.certification.method import Method
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.data import Examples, Split
from nonvacuous.kinds import Mode, Predictor
from nonvacuous.progress import Progress
from nonvacuous.risk import Loss
from nonvacuous.training import EventLog


@dataclass(frozen=True, eq=False)
class Job:
    """What a certificate is asked for: the same whatever the method."""

    method: Method
    architecture: str
    examples: Examples
    test: Examples | None
    split: Split
    loss: Loss
    failure: float
    attempts: int
    seed: int
    device: torch.device
    folder: RunFolder
    progress: Progress | None
    events: EventLog | None = None
    tensorboard: Path | None = None
    #: What the network's inputs, weights or outputs were converted from, in words.
    conversions: tuple[str, ...] = ()
    #: Its way into the ledger; None where none is kept.
    charging: Charging | None = None

    @property
    def mode(self) -> Mode:
        return self.method.mode

    @property
    def predictor(self) -> Predictor:
        predictor: Predictor = getattr(self.method, "predictor", "deterministic")
        return predictor

    @property
    def quotients(self) -> tuple[str, ...]:
        return self.method.quotients

    @property
    def trials(self) -> int:
        """Pairs of an example and a draw of the weights; methods without draws have none."""
        return int(getattr(self.method, "trials", 0))

    @property
    def standardized(self) -> bool:
        """Whether the inputs were standardized by the prior part of the examples."""
        return bool(getattr(self.method, "standardize", False))

    @property
    def pretrained(self) -> str | None:
        declared: str | None = getattr(self.method, "pretrained", None)
        return declared
