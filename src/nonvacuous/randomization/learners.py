"""Who trains the networks of a study: the library, many at once, or a function of the user's."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from nonvacuous.data import Examples
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.models import build as build_named
from nonvacuous.progress import Progress
from nonvacuous.randomization.conditions import Condition, input_sets
from nonvacuous.randomization.outcomes import CurvePoint, count_errors
from nonvacuous.randomization.settings import StudySettings
from nonvacuous.training.many import Job, JobResult, ManyExamples, ManySettings, train_many
from nonvacuous.training.user_training import (
    TrainingFunction,
    call,
    check_signature,
    source_digest,
)


def builder_of(model: str | Callable[[], nn.Module], examples: Examples) -> tuple[Build, str]:
    """A function from a seed to a fresh network, and what the architecture is called.

    model   such as "mlp:512", or a function without arguments that returns a torch.nn.Module and
            draws its weights from torch's global generator
    """
    if isinstance(model, str):
        name = model
        return lambda seed: build_named(
            name, examples.example_shape, examples.classes, seed=seed
        ), name
    if isinstance(model, nn.Module):
        raise BadInput(
            "a study trains many fresh networks: give a function that builds one (such as the "
            "class, or lambda: MyNetwork(...)), not a network"
        )
    function = model

    def build(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                module = function()
            except Exception as error:  # the user's code may raise anything
                raise BadInput(
                    f"the function that builds the network raised {type(error).__name__}: {error}; "
                    "it is called without arguments"
                ) from error
        if not isinstance(module, nn.Module):
            raise BadInput(
                f"the function that builds the network returned a {type(module).__name__}, not a "
                "torch.nn.Module"
            )
        return module

    return build, getattr(function, "__qualname__", type(function).__qualname__)


def check_fits(module: nn.Module, examples: Examples) -> None:
    """Run two examples through, so that a misfit is told before anything is trained."""
    inputs, classes = examples.inputs[:2], examples.classes
    was_training = module.training
    try:
        with torch.no_grad():
            outputs = module.eval()(inputs)
    except Exception as error:  # the user's code may raise anything
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"the network cannot take inputs of shape {examples.example_shape} from "
            f"{examples.name}: {first}"
        ) from error
    finally:
        module.train(was_training)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != (2, classes):
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise BadInput(
            f"the network gives {shape} for two examples of {examples.name}; it must give one "
            f"score for each of the {classes} classes, (2, {classes})"
        )


Build = Callable[[int], nn.Module]


@dataclass(frozen=True, eq=False)
class Task:
    """One network to train: on what, from which seed, and with which regularizers."""

    condition: Condition
    seed: int
    weight_decay: float | None = None
    dropout: float = 0.0
    augmentation: str = "none"


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained network and what was seen on the way; see `nonvacuous.randomization.outcomes`."""

    module: nn.Module
    curve: tuple[CurvePoint, ...]
    fit_epoch: int | None
    epochs: int | None
    stopped: str
    rate_left: float | None
    configuration: str
    seconds: float


class Learner(Protocol):
    """Trains the networks of a part of the study."""

    name: str

    def learn(
        self, tasks: Sequence[Task], *, progress: Progress | None, checkpoint: Path | None
    ) -> list[Learned]:
        """One trained network for each task."""


class BuiltInLearner:
    """Stochastic gradient descent on the cross-entropy, all tasks at once."""

    def __init__(self, build: Build, settings: StudySettings, device: torch.device) -> None:
        self.name = "stochastic gradient descent"
        self._build, self._settings, self._device = build, settings, device

    def learn(
        self, tasks: Sequence[Task], *, progress: Progress | None, checkpoint: Path | None
    ) -> list[Learned]:
        settings = self._settings
        firsts, rows = input_sets([task.condition for task in tasks])
        jobs = [
            Job(
                labels=row,
                inputs=inputs,
                seed=task.seed,
                learning_rate=settings.learning_rate,
                weight_decay=_decay(task, settings),
                augmentation=task.augmentation,
                dropout=task.dropout,
            )
            for row, (task, inputs) in enumerate(zip(tasks, rows, strict=True))
        ]
        many = ManySettings(
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            momentum=settings.momentum,
            decay=settings.rate_decay,
        )
        result = train_many(
            self._build,
            ManyExamples(
                [first.train.inputs for first in firsts],
                torch.stack([task.condition.train.labels for task in tasks]),
                test=[(first.test.inputs, first.test.labels) for first in firsts],
                marked=torch.stack([_marks(task.condition) for task in tasks]),
            ),
            jobs,
            settings=many,
            device=self._device,
            progress=progress,
            checkpoint=checkpoint,
        )
        return [
            self._learned(task, job, result.seconds / len(tasks))
            for task, job in zip(tasks, result.jobs, strict=True)
        ]

    def _learned(self, task: Task, job: JobResult, seconds: float) -> Learned:
        module = self._build(task.seed)
        configuration = _configuration(
            module,
            seed=task.seed,
            training={
                **self._settings.training(),
                "weight_decay": _decay(task, self._settings),
                "dropout": task.dropout,
                "augmentation": task.augmentation,
            },
        )
        module.load_state_dict(job.state)
        noisy = task.condition.corrupted is not None
        epochs = job.history[-1].epoch if job.history else 0
        return Learned(
            module=module.to(self._device),
            curve=tuple(
                CurvePoint(
                    epoch=record.epoch,
                    train_errors=record.train_errors,
                    corrupted_errors=record.marked_errors if noisy else None,
                    clean_errors=record.unmarked_errors if noisy else None,
                    test_errors=record.test_errors,
                )
                for record in job.history
            ),
            fit_epoch=job.fit_epoch,
            epochs=epochs,
            stopped=job.stopped,
            rate_left=self._settings.rate_left(epochs),
            configuration=configuration,
            seconds=seconds,
        )


class UserLearner:
    """The user's own training function, one network after the other."""

    def __init__(
        self, build: Build, train: TrainingFunction, device: torch.device, *, name: str | None
    ) -> None:
        self.name: str = name or str(getattr(train, "__qualname__", type(train).__name__))
        check_signature(train, name=self.name)
        self._build, self._train, self._device = build, train, device

    def learn(
        self, tasks: Sequence[Task], *, progress: Progress | None, checkpoint: Path | None
    ) -> list[Learned]:
        learned = []
        for done, task in enumerate(tasks):
            if progress is not None:
                progress("training", done, len(tasks), f"{task.condition.name}, seed {task.seed}")
            learned.append(self._learn_one(task))
        return learned

    def _learn_one(self, task: Task) -> Learned:
        if task.dropout or task.augmentation != "none" or task.weight_decay is not None:
            raise BadInput(
                "regularizers are switched on and off in the library's own training; a training "
                "function of your own has them inside. Leave regularization or train out"
            )
        module = self._build(task.seed).to(self._device)
        training = {"function": self.name, "source": source_digest(self._train)}
        configuration = _configuration(module, seed=task.seed, training=training)
        condition = task.condition
        curve: list[CurvePoint] = []
        start = time.perf_counter()
        network = call(
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
        seconds = time.perf_counter() - start
        return Learned(
            module=network,
            curve=tuple(curve),
            fit_epoch=next((point.epoch for point in curve if point.train_errors == 0), None),
            epochs=len(curve) or None,
            stopped="unknown",
            rate_left=None,
            configuration=configuration,
            seconds=seconds,
        )


def _decay(task: Task, settings: StudySettings) -> float:
    return settings.weight_decay if task.weight_decay is None else task.weight_decay


def _marks(condition: Condition) -> Tensor:
    if condition.corrupted is None:
        return torch.zeros_like(condition.train.labels, dtype=torch.bool)
    return condition.corrupted


def _configuration(module: nn.Module, *, seed: int, training: dict[str, Any]) -> str:
    """One digest of everything that is not the data: taken from what training starts with."""
    record = {
        "architecture": str(module),
        "start": tensors_digest(dict(module.state_dict())),
        "seed": seed,
        "training": training,
        "torch": torch.__version__,
    }
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
