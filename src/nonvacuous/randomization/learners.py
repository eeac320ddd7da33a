"""Who trains the networks of a study (the library, many at once, or the user's own function), and
what training one network came to, as plain numbers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nonvacuous.data import Examples
from nonvacuous.distributions.copying import check_shapes
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.models import build as build_named
from nonvacuous.models import seeded
from nonvacuous.progress import Progress
from nonvacuous.randomization.conditions import Condition, many_examples
from nonvacuous.randomization.settings import StudySettings
from nonvacuous.training import user_training
from nonvacuous.training.many import train_many
from nonvacuous.training.many_jobs import Job, ManySettings
from nonvacuous.training.user_training import TrainingFunction

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


def answers(module: nn.Module, examples: Examples, device: torch.device) -> Tensor:
    """The class with the highest score for every input, in evaluation mode, on the CPU."""
    module.eval()
    answered, classes = [], examples.classes
    with torch.no_grad():
        for part in examples.inputs.split(_BATCH):
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
        answers(module, part, device) != part.labels.cpu()
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


def measure(
    task: Task, module: nn.Module, curve: Sequence[CurvePoint], *, device: torch.device, **seen: Any
) -> Outcome:
    """Everything that a study keeps of one trained network; ``seen``: on the way, by field.

    curve   a point for every epoch, or none at all
    """
    condition, classes = task.condition, task.condition.train.classes
    labels, test_labels = condition.train.labels.cpu(), condition.test.labels.cpu()
    own, tested = (answers(module, part, device) for part in (condition.train, condition.test))
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
        fit_epoch=next((point.epoch for point in curve if point.train_errors == 0), None),
        epochs=len(curve) or None,
        curve=tuple(curve),
        confusion=tuple(map(tuple, confusion.reshape(classes, classes).tolist())),
        answers=hashlib.sha256(content).hexdigest(),
        data=tensors_digest({"inputs": condition.train.inputs, "labels": condition.train.labels}),
        **seen,
    )


Build = Callable[[int], nn.Module]


def builder_of(model: str | Callable[[], nn.Module], examples: Examples) -> tuple[Build, str]:
    """A function from a seed to a fresh network, and what the architecture is called.

    model   such as "mlp:512", or a function without arguments that returns a torch.nn.Module and
            draws its weights from torch's global generator
    """
    if isinstance(model, str):
        shape, classes = examples.example_shape, examples.classes
        return lambda seed: build_named(model, shape, classes, seed=seed), model
    if isinstance(model, nn.Module):
        raise BadInput(
            "a study trains many fresh networks: give a function that builds one (such as the "
            "class, or lambda: MyNetwork(...)), not a network"
        )
    name = str(getattr(model, "__qualname__", type(model).__qualname__))

    def build(seed: int) -> nn.Module:
        network = seeded(model, seed=seed, name=name)
        check_shapes(network)
        return network

    return build, name


@dataclass(frozen=True, eq=False)
class BuiltInLearner:
    """Stochastic gradient descent on the cross-entropy, all tasks at once."""

    build: Build
    settings: StudySettings
    device: torch.device
    name: str = "stochastic gradient descent"
    #: At most so many networks together: a kill loses no more, and memory suffices for small ones.
    at_once: ClassVar[int] = 20

    def learn(
        self, tasks: Sequence[Task], *, progress: Progress | None, checkpoint: Path | None
    ) -> list[Outcome]:
        settings = self.settings
        usual = {"weight_decay": settings.weight_decay, "dropout": 0.0, "augmentation": "none"}
        switched: list[dict[str, Any]] = [{**usual, **task.regularizers} for task in tasks]
        examples, inputs = many_examples([task.condition for task in tasks])
        result = train_many(
            self.build,
            examples,
            [
                Job(
                    labels=row,
                    inputs=inputs[row],
                    seed=task.seed,
                    learning_rate=settings.learning_rate,
                    **switched[row],
                )
                for row, task in enumerate(tasks)
            ],
            settings=ManySettings(
                decay=settings.rate_decay,
                **settings.model_dump(include={"epochs", "batch_size", "momentum"}),
            ),
            device=self.device,
            progress=progress,
            checkpoint=checkpoint,
        )
        outcomes = []
        for task, job, own in zip(tasks, result.jobs, switched, strict=True):
            module = self.build(task.seed)
            configuration = _configuration(module, task.seed, {**settings.training(), **own})
            module.load_state_dict(job.state)
            noisy = task.condition.corrupted is not None
            curve = [
                CurvePoint(
                    epoch=record.epoch,
                    train_errors=record.train_errors,
                    corrupted_errors=record.marked_errors if noisy else None,
                    clean_errors=record.unmarked_errors if noisy else None,
                    test_errors=record.test_errors,
                )
                for record in job.history
            ]
            # The share of the sum of all learning rates that comes after: it is finite, and a
            # network that has not fitted by the time it is spent never will.
            left = settings.rate_decay ** len(curve)
            seen = {"stopped": job.stopped, "rate_left": left, "configuration": configuration}
            module, seconds = module.to(self.device), result.seconds / len(tasks)
            outcomes.append(
                measure(task, module, curve, device=self.device, seconds=seconds, **seen)
            )
        return outcomes


class UserLearner:
    """The user's own training function, one network after the other."""

    at_once = 1

    def __init__(
        self, build: Build, train: TrainingFunction, device: torch.device, *, name: str | None
    ) -> None:
        self.name: str = name or str(getattr(train, "__qualname__", type(train).__name__))
        user_training.check_signature(train, name=self.name)
        self._build, self._train, self._device = build, train, device

    def learn(
        self, tasks: Sequence[Task], *, progress: Progress | None, checkpoint: Path | None
    ) -> list[Outcome]:
        (task,) = tasks
        condition = task.condition
        if progress is not None:
            progress("training", 0, 1, f"{condition.name}, seed {task.seed}")
        module = self._build(task.seed).to(self._device)
        training = {"function": self.name, "source": user_training.source_digest(self._train)}
        configuration = _configuration(module, task.seed, training)
        curve: list[CurvePoint] = []
        start = time.perf_counter()
        network = user_training.call(
            self._train,
            module,
            condition.train.inputs.to(self._device),
            condition.train.labels.to(self._device),
            seed=task.seed,
            name=self.name,
            watch=lambda network: curve.append(
                count_errors(network, condition, self._device, epoch=len(curve) + 1)
            ),
        )
        seen = {"stopped": "unknown", "rate_left": None, "configuration": configuration}
        seconds = time.perf_counter() - start
        return [measure(task, network, curve, device=self._device, seconds=seconds, **seen)]


Learner = BuiltInLearner | UserLearner


def _configuration(module: nn.Module, seed: int, training: dict[str, Any]) -> str:
    """One digest of everything that is not the data: taken from what training starts with."""
    record = {
        "architecture": str(module),
        "start": tensors_digest(dict(module.state_dict())),
        "seed": seed,
        "training": training,
        "torch": torch.__version__,
    }
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
