"""What a certificate is asked for, and its way into the ledger of attempts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from nonvacuous.certification import candidate, run_folder
from nonvacuous.certification.method import Method
from nonvacuous.data import Examples, Split
from nonvacuous.kinds import Predictor
from nonvacuous.progress import Progress
from nonvacuous.records import BudgetRecord
from nonvacuous.risk.losses import Loss
from nonvacuous.rules.arithmetic import ledger
from nonvacuous.rules.attempts import Attempt, Standing, record_attempt
from nonvacuous.rules.outcomes import beginning_digest
from nonvacuous.training.events import EventLog
from nonvacuous.training.loop import Records

#: Phases that read no bound example: what they show chooses nothing.
_BLIND = ("prior", "held-out twin", "first part")


@dataclass(eq=False)
class Charging:
    """One attempt, entered when the first number on bound examples can be seen, and at its end.

    Whoever stops a training that looks bad has seen something too. So the attempt counts from its
    first epoch on the bound examples, and the same attempt gone on with, or begun again, is one.
    """

    ledger: Path
    attempt: Attempt
    model: nn.Module
    bound_part: Examples

    def watching(self, progress: Progress | None) -> Progress:
        """The same progress, entered in the ledger before anything of it is shown."""

        def watched(phase: str, done: int, total: int, message: str) -> None:
            if phase not in _BLIND and not self.attempt.begun:
                record_attempt(self.ledger, self._begun())
            if progress is not None:
                progress(phase, done, total, message)

        return watched

    def end(self, outcome: str) -> Standing:
        """Enter what came out; what the ledger says about the attempts before it."""
        return record_attempt(self.ledger, replace(self._begun(), outcome=outcome))

    def _begun(self) -> Attempt:
        if not self.attempt.begun:
            begun = beginning_digest(candidate.frozen_copy(self.model), self.bound_part)
            self.attempt = replace(self.attempt, begun=begun)
        return self.attempt


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
    folder: run_folder.RunFolder
    progress: Progress | None
    events: EventLog | None = None
    tensorboard: Path | None = None
    #: What the network's inputs, weights or outputs were converted from, in words.
    conversions: tuple[str, ...] = ()
    #: Its way into the ledger; None where none is kept.
    charging: Charging | None = None

    def records(self, checkpoint: str, phase: str | None = None) -> Records:
        """Where training leaves its traces."""
        return Records(
            checkpoint=self.folder.file(checkpoint),
            events=self.events,
            progress=self.progress,
            tensorboard=self.tensorboard,
            phase=phase,
        )

    def budget(self, *, sampled: bool, choices: int = 1, measured: int = 1) -> BudgetRecord:
        """The ledger of this certificate, see :func:`~nonvacuous.rules.arithmetic.ledger`."""
        return ledger(
            mode=self.method.mode,
            failure=self.failure,
            attempts=self.attempts,
            sampled=sampled,
            choices=choices,
            measured=measured,
        )

    @property
    def bound_part(self) -> Examples:
        return self.examples.subset(self.split.bound)

    @property
    def predictor(self) -> Predictor:
        predictor: Predictor = getattr(self.method, "predictor", "deterministic")
        return predictor

    @property
    def trials(self) -> int:
        """Pairs of an example and a draw of the weights; methods without draws have none."""
        return int(getattr(self.method, "trials", 0))
