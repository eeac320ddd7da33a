"""The paired test: the same network and training on true labels and on randomized data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nonvacuous.claims import in_own_folder
from nonvacuous.data import Dataset, load
from nonvacuous.data.functions import as_dataset
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.randomization.capacity_numbers import capacity_of, rademacher_of
from nonvacuous.randomization.conditions import sign_conditions, standardized, with_test
from nonvacuous.randomization.findings import findings_of
from nonvacuous.randomization.learners import (
    BuiltInLearner,
    Learner,
    UserLearner,
    builder_of,
    check_fits,
)
from nonvacuous.randomization.parts import Parts
from nonvacuous.randomization.results import Study, shared_configuration
from nonvacuous.randomization.settings import StudySettings
from nonvacuous.randomization.workshop import Stages, Workshop


@in_own_folder()
def study(
    model: str | Callable[[], nn.Module],
    data: Any,
    *,
    train: Callable[..., Any] | None = None,
    settings: StudySettings | None = None,
    names: tuple[str, str | None] | None = None,
    device: torch.device | str | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Study:
    """Does this network learn from this data, or would it fit anything? Train it on both.

    model          such as "mlp:512", or a function without arguments that returns a fresh
                   torch.nn.Module with weights drawn from torch's global generator
    data           a name such as "digits", a :class:`~nonvacuous.data.Dataset`, or a pair (inputs,
                   labels); without a test part a fifth is split off
    train          your own ``train(model, inputs, labels, *, seed) -> model``, which may also yield
                   the model after every epoch; by default the library trains, many networks at once
    names          what model and training function are called in the record
    settings       conditions, seeds, and how much else; see StudySettings
    folder         keeps every finished part, so that a study that was stopped can be resumed
    resume, force  go on with the study in the folder, or overwrite it
    """
    settings = settings or StudySettings()
    given = with_test(_dataset(data), seed=settings.seed)
    # A training function of the user's gets the data as they are.
    dataset = standardized(given) if settings.standardize and train is None else given
    build, own_name = builder_of(model, dataset.train)
    architecture, trained_by = names or (own_name, None)
    device = torch.device("cpu" if device is None else device)
    example = build(settings.seed)
    check_fits(example, dataset.train)
    if train is not None and settings.regularization:
        raise BadInput(
            "the regularization matrix switches weight decay, dropout and so on in the library's "
            "own training; a training function of your own has them inside. Leave one of them out"
        )
    learner: Learner = (
        BuiltInLearner(build, settings, device)
        if train is None
        else UserLearner(build, train, device, name=trained_by)
    )
    stages = Stages(folder)
    stages.open(
        {
            **settings.to_dict(),
            "architecture": architecture,
            "network": str(example),
            "trained_by": learner.name,
            "examples": dataset.train.content_hash(),
            "test": dataset.test.content_hash() if dataset.test is not None else None,
        },
        resume=resume,
        force=force,
    )
    began = time.monotonic()
    workshop = Workshop(learner, settings, stages, device, progress)
    parts = Parts(dataset, build, workshop, settings)
    conditions = parts.paired()
    by_name = {entry.name: entry for entry in conditions}
    true, random = by_name["true"], by_name["random-labels"]
    permutations = parts.permutations(true)
    signs = parts.relabeled("signs", sign_conditions, settings.sign_vectors)
    certificates = parts.certificates(given)
    matrix = parts.regularization(example, true, random)
    leak = parts.leak(random)
    result = Study(
        architecture=architecture,
        parameters=sum(parameter.numel() for parameter in example.parameters()),
        data=dataset.name,
        examples=len(dataset.train),
        test_examples=leak.test_examples,
        dimensions=dataset.train.inputs[0].numel(),
        classes=dataset.train.classes,
        trained_by=learner.name,
        settings=settings,
        configuration=shared_configuration(conditions),
        conditions=tuple(conditions),
        permutations=permutations,
        leak=leak,
        rademacher=rademacher_of(signs, settings=settings),
        capacity=capacity_of(example, dataset.train),
        certificates=certificates,
        regularization=matrix,
        findings=(),
        networks=workshop.networks,
        seconds=time.monotonic() - began,
    )
    stages.drop_checkpoints()
    return replace(result, findings=findings_of(result))


def _dataset(data: Any) -> Dataset:
    return load(data) if isinstance(data, str | Path) else as_dataset(data, where="data")
