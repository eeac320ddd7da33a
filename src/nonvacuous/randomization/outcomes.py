"""What training one network came to, as plain numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.randomization.conditions import Condition

#: Below this share of all learning rates, what is left of them changes nothing any more.
SPENT = 0.05


@dataclass(frozen=True, eq=False)
class Task:
    """One network to train: on what, from which seed, and with which regularizers."""

    condition: Condition
    seed: int
    regularizers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CurvePoint:
    """Errors after one epoch, in evaluation mode.

    corrupted_errors   among the training examples whose label was redrawn; clean_errors: the others
    """

    epoch: int
    train_errors: int
    corrupted_errors: int | None = None
    clean_errors: int | None = None
    test_errors: int | None = None


@dataclass(frozen=True)
class Outcome:
    """One trained network.

    condition          what was done to its data
    seed               of its start and its order of examples
    train_errors       against the labels it was given
    true_agreements    training examples on which it answers with the *true* label
    corrupted_examples training examples whose label was drawn anew; None where none could be
    fit_epoch          the first epoch without a training error; None if there was none, or if
                       nobody watched
    epochs             epochs trained; None if nobody knows (a training function of the user's)
    stopped            why training ended: "epochs", "fit", "diverged", or "unknown"
    rate_left          share of all learning rates not yet spent; None if nobody knows
    curve              errors per epoch; empty if nobody watched
    confusion          test examples by true class (rows) and answer (columns)
    answers            digest of all answers on the untouched inputs, to recognize equal functions
    configuration      digest of everything but the data: architecture, start, training, seed
    data               digest of the training examples as given to training
    """

    condition: str
    seed: int
    train_errors: int
    train_examples: int
    test_errors: int
    test_examples: int
    true_agreements: int
    corrupted_examples: int | None
    fit_epoch: int | None
    epochs: int | None
    stopped: str
    rate_left: float | None
    curve: tuple[CurvePoint, ...]
    confusion: tuple[tuple[int, ...], ...]
    answers: str
    configuration: str
    data: str
    seconds: float

    @property
    def train_error(self) -> float:
        return self.train_errors / self.train_examples

    @property
    def test_error(self) -> float:
        return self.test_errors / self.test_examples

    @property
    def gap(self) -> float:
        """Test error minus training error."""
        return self.test_error - self.train_error

    @property
    def fitting(self) -> str:
        """Whether it fitted its labels, and if not, why not."""
        if self.stopped == "diverged":
            return "diverged"
        if self.fit_epoch is not None or self.train_errors == 0:
            return "fit"
        if self.rate_left is None:
            return "errors left"
        return "learning rate exhausted" if self.rate_left < SPENT else "did not fit"


_BATCH = 2048


def answers(module: nn.Module, inputs: Tensor, *, classes: int, device: torch.device) -> Tensor:
    """The class with the highest score for every input, in evaluation mode, on the CPU."""
    module.eval()
    answered = []
    with torch.no_grad():
        for part in inputs.split(_BATCH):
            scores = module(part.to(device))
            if not isinstance(scores, Tensor) or tuple(scores.shape) != (len(part), classes):
                shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
                raise BadInput(
                    f"the trained network gives {shape} for {len(part)} inputs; it must give one "
                    f"score for each of the {classes} classes, ({len(part)}, {classes})"
                )
            answered.append(scores.argmax(dim=1).cpu())
    return torch.cat(answered)


def count_errors(
    module: nn.Module, condition: Condition, device: torch.device, *, epoch: int
) -> CurvePoint:
    """One point of the learning curves."""
    wrong, tested = (
        answers(module, part.inputs, classes=part.classes, device=device) != part.labels.cpu()
        for part in (condition.train, condition.test)
    )
    corrupted = None if condition.corrupted is None else condition.corrupted.cpu()
    return CurvePoint(
        epoch=epoch,
        train_errors=int(wrong.sum()),
        corrupted_errors=None if corrupted is None else int(wrong[corrupted].sum()),
        clean_errors=None if corrupted is None else int(wrong[~corrupted].sum()),
        test_errors=int(tested.sum()),
    )


def measure(task: Task, module: nn.Module, *, device: torch.device, **seen: Any) -> Outcome:
    """Everything that a study keeps of one trained network; ``seen``: on the way, by field."""
    condition, classes = task.condition, task.condition.train.classes
    labels, test_labels = condition.train.labels.cpu(), condition.test.labels.cpu()
    own, tested = (
        answers(module, part.inputs, classes=classes, device=device)
        for part in (condition.train, condition.test)
    )
    confusion = torch.bincount(test_labels * classes + tested, minlength=classes**2)
    content = torch.cat([own, tested]).to(torch.int64).numpy().tobytes()
    return Outcome(
        condition=condition.name,
        seed=task.seed,
        train_errors=int((own != labels).sum()),
        train_examples=len(labels),
        test_errors=int((tested != test_labels).sum()),
        test_examples=len(test_labels),
        true_agreements=int((own == condition.true.cpu()).sum()),
        corrupted_examples=None if condition.corrupted is None else int(condition.corrupted.sum()),
        confusion=tuple(map(tuple, confusion.reshape(classes, classes).tolist())),
        answers=hashlib.sha256(content).hexdigest(),
        data=tensors_digest({"inputs": condition.train.inputs, "labels": condition.train.labels}),
        **seen,
    )
