"""A trained network asked about its training and test examples."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.randomization.conditions import Condition
from nonvacuous.randomization.outcomes import CurvePoint, Outcome

if TYPE_CHECKING:
    from nonvacuous.randomization.learners import Learned, Task

_BATCH = 2048


def answers(module: nn.Module, inputs: Tensor, *, classes: int, device: torch.device) -> Tensor:
    """The class with the highest score for every input, in evaluation mode, on the CPU."""
    module.eval()
    found = []
    with torch.no_grad():
        for part in inputs.split(_BATCH):
            scores = module(part.to(device))
            if not isinstance(scores, Tensor) or tuple(scores.shape) != (len(part), classes):
                shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
                raise BadInput(
                    f"the trained network gives {shape} for {len(part)} inputs; it must give one "
                    f"score for each of the {classes} classes, ({len(part)}, {classes})"
                )
            found.append(scores.argmax(dim=1).cpu())
    return torch.cat(found)


def count_errors(
    module: nn.Module, condition: Condition, device: torch.device, *, epoch: int
) -> CurvePoint:
    """One point of the learning curves."""
    classes = condition.train.classes
    wrong = answers(module, condition.train.inputs, classes=classes, device=device)
    wrong = wrong != condition.train.labels.cpu()
    tested = answers(module, condition.test.inputs, classes=classes, device=device)
    corrupted = condition.corrupted
    return CurvePoint(
        epoch=epoch,
        train_errors=int(wrong.sum()),
        corrupted_errors=None if corrupted is None else int(wrong[corrupted.cpu()].sum()),
        clean_errors=None if corrupted is None else int(wrong[~corrupted.cpu()].sum()),
        test_errors=int((tested != condition.test.labels.cpu()).sum()),
    )


def measure(task: Task, learned: Learned, *, device: torch.device) -> Outcome:
    """Everything that a study keeps of one trained network."""
    condition, classes = task.condition, task.condition.train.classes
    labels, test_labels = condition.train.labels.cpu(), condition.test.labels.cpu()
    own = answers(learned.module, condition.train.inputs, classes=classes, device=device)
    tested = answers(learned.module, condition.test.inputs, classes=classes, device=device)
    train_errors = int((own != labels).sum())
    confusion = torch.bincount(test_labels * classes + tested, minlength=classes**2)
    content = torch.cat([own, tested]).to(torch.int64).numpy().tobytes()
    return Outcome(
        condition=condition.name,
        seed=task.seed,
        train_errors=train_errors,
        train_examples=len(labels),
        test_errors=int((tested != test_labels).sum()),
        test_examples=len(test_labels),
        true_agreements=int((own == condition.true.cpu()).sum()),
        corrupted_examples=None if condition.corrupted is None else int(condition.corrupted.sum()),
        fit_epoch=learned.fit_epoch,
        epochs=learned.epochs,
        stopped=learned.stopped,
        rate_left=learned.rate_left,
        curve=learned.curve,
        confusion=tuple(map(tuple, confusion.reshape(classes, classes).tolist())),
        answers=hashlib.sha256(content).hexdigest(),
        configuration=learned.configuration,
        data=tensors_digest({"inputs": condition.train.inputs, "labels": condition.train.labels}),
        seconds=learned.seconds,
    )
