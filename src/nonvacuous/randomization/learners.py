"""Who trains the networks of a study: the library, many at once, or a function of the user's."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from nonvacuous.data import Examples
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import BadInput
from nonvacuous.models import build as build_named
from nonvacuous.models import seeded
from nonvacuous.progress import Progress
from nonvacuous.randomization.conditions import many_examples
from nonvacuous.randomization.outcomes import CurvePoint, Outcome, Task, count_errors, measure
from nonvacuous.randomization.settings import StudySettings
from nonvacuous.training.many import train_many
from nonvacuous.training.many_jobs import Job, ManySettings
from nonvacuous.training.user_training import (
    TrainingFunction,
    call,
    check_signature,
    source_digest,
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
    return lambda seed: seeded(model, seed=seed, name=name), name


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
                epochs=settings.epochs,
                batch_size=settings.batch_size,
                momentum=settings.momentum,
                decay=settings.rate_decay,
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
            epochs = job.history[-1].epoch if job.history else 0
            outcomes.append(
                measure(
                    task,
                    module.to(self.device),
                    device=self.device,
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
                    # The share of the sum of all learning rates that comes after: it is finite,
                    # and a network that has not fitted by the time it is spent never will.
                    rate_left=settings.rate_decay**epochs,
                    configuration=configuration,
                    seconds=result.seconds / len(tasks),
                )
            )
        return outcomes


class UserLearner:
    """The user's own training function, one network after the other."""

    at_once = 1

    def __init__(
        self, build: Build, train: TrainingFunction, device: torch.device, *, name: str | None
    ) -> None:
        self.name: str = name or str(getattr(train, "__qualname__", type(train).__name__))
        check_signature(train, name=self.name)
        self._build, self._train, self._device = build, train, device

    def learn(
        self, tasks: Sequence[Task], *, progress: Progress | None, checkpoint: Path | None
    ) -> list[Outcome]:
        (task,) = tasks
        condition = task.condition
        if progress is not None:
            progress("training", 0, 1, f"{condition.name}, seed {task.seed}")
        module = self._build(task.seed).to(self._device)
        training = {"function": self.name, "source": source_digest(self._train)}
        configuration = _configuration(module, task.seed, training)
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
        return [
            measure(
                task,
                network,
                device=self._device,
                curve=tuple(curve),
                fit_epoch=next((point.epoch for point in curve if point.train_errors == 0), None),
                epochs=len(curve) or None,
                stopped="unknown",
                rate_left=None,
                configuration=configuration,
                seconds=seconds,
            )
        ]


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
