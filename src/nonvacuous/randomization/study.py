"""The paired test: the same network and training on true labels and on randomized data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nonvacuous.claims import in_own_folder
from nonvacuous.data import Dataset, Examples, find_duplicates, load
from nonvacuous.data.load import as_dataset
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.randomization import conditions, intervals, learners, regularization, results
from nonvacuous.randomization.classical import Rademacher, capacity_of, rademacher_estimate
from nonvacuous.randomization.findings import findings_of
from nonvacuous.randomization.learners import Build, Learner, Outcome, Task
from nonvacuous.randomization.regularization import RegularizationRow
from nonvacuous.randomization.results import ConditionResult, LeakCheck, Permutations, Study
from nonvacuous.randomization.settings import StudySettings
from nonvacuous.randomization.workshop import Workshop
from nonvacuous.seeds import derived_seed
from nonvacuous.training.checks import check_fits

#: The p-value from which on a leak is reported. It is a grave thing to say, so it is small.
LEAK_LEVEL = 0.001


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
    read = load(data) if isinstance(data, str | Path) else as_dataset(data, where="data")
    given = conditions.with_test(read, seed=settings.seed)
    # A training function of the user's gets the data as they are.
    dataset = conditions.standardized(given) if settings.standardize and train is None else given
    test = dataset.test
    assert test is not None, "with_test gave it one"
    build, own_name = learners.builder_of(model, dataset.train)
    architecture, trained_by = names or (own_name, None)
    device = torch.device("cpu" if device is None else device)
    example = build(settings.seed)
    check_fits(example, dataset.train, spec=architecture)
    if train is not None and settings.regularization:
        raise BadInput(
            "the regularization matrix switches weight decay, dropout and so on in the library's "
            "own training; a training function of your own has them inside. Leave one of them out"
        )
    learner: Learner = (
        learners.BuiltInLearner(build, settings, device)
        if train is None
        else learners.UserLearner(build, train, device, name=trained_by)
    )
    workshop = Workshop(learner, settings, folder, progress)
    workshop.open(
        {
            **settings.record(),
            "architecture": architecture,
            "network": str(example),
            "trained_by": learner.name,
            "examples": dataset.train.content_hash(),
            "test": test.content_hash(),
        },
        resume=resume,
        force=force,
    )
    began = time.monotonic()
    parts = _Parts(dataset, build, workshop, settings, device)
    paired = parts.paired()
    true, random = paired["true"], paired["random-labels"]
    result = Study(
        architecture=architecture,
        parameters=sum(parameter.numel() for parameter in example.parameters()),
        data=dataset.name,
        examples=len(dataset.train),
        test_examples=len(test),
        dimensions=dataset.train.inputs[0].numel(),
        classes=dataset.train.classes,
        trained_by=learner.name,
        settings=settings,
        configuration=results.shared_configuration(paired.values()),
        conditions=tuple(paired.values()),
        permutations=parts.permutations(true),
        leak=parts.leak(random, test),
        rademacher=parts.rademacher(),
        capacity=capacity_of(example, dataset.train),
        certificates=parts.certificates(given),
        regularization=parts.regularization(true, random),
        findings=(),
        networks=workshop.networks,
        seconds=time.monotonic() - began,
        largest_class=1.0 - max(test.class_counts()) / len(test),
    )
    workshop.close()
    return replace(result, findings=findings_of(result))


@dataclass(frozen=True, eq=False)
class _Parts:
    """Which networks each part of a study trains, and what it makes of them."""

    dataset: Dataset
    build: Build
    workshop: Workshop
    settings: StudySettings
    device: torch.device

    def _task(self, name: str, seed: int, **switched: Any) -> Task:
        return Task(conditions.corrupted_condition(self.dataset, name, seed=seed), seed, switched)

    def paired(self) -> dict[str, ConditionResult]:
        """Every condition with every seed: the same seeds, and nothing but the data changed."""
        names, first = self.settings.conditions, self.settings.seed
        together = partial(results.condition_result, confidence=self.settings.confidence)
        outcomes: dict[str, list[Outcome]] = {name: [] for name in names}
        for seed in range(first, first + self.settings.seeds):
            for outcome in self.workshop.train(
                f"seed-{seed}",
                lambda seed=seed: [self._task(name, seed) for name in names],  # type: ignore[misc]
                count=len(names),
            ):
                outcomes[outcome.condition].append(outcome)
        return {name: together(name, own, outcomes["true"]) for name, own in outcomes.items()}

    def relabeled(
        self, name: str, relabel: Callable[..., list[conditions.Condition]], count: int
    ) -> list[Outcome]:
        """Networks with one seed, each on labels of its own."""
        seed = self.settings.seed
        return self.workshop.train(
            name,
            lambda: [
                Task(condition, seed) for condition in relabel(self.dataset, count, seed=seed)
            ],
            count=count,
        )

    def permutations(self, true: ConditionResult) -> Permutations | None:
        count = self.settings.permutations
        if not count:
            return None
        permuted = self.relabeled("permutations", conditions.permuted_conditions, count)
        # The network on true labels that has the seed of all the permuted ones.
        observed = true.outcomes[0].test_error
        return Permutations(observed, tuple(outcome.test_error for outcome in permuted))

    def rademacher(self) -> Rademacher | None:
        signs = self.relabeled("signs", conditions.sign_conditions, self.settings.sign_vectors)
        if not signs:
            return None
        return rademacher_estimate(
            [outcome.train_errors for outcome in signs],
            examples=signs[0].train_examples,
            confidence=self.settings.confidence,
        )

    def certificates(self, given: Dataset) -> tuple[conditions.ConditionCertificate, ...]:
        """On the data as given: where inputs were scaled, the examples counted had a say in it."""
        settings, seed = self.settings, self.settings.seed
        if not settings.certificates:
            return ()

        def make(name: str) -> dict[str, Any]:
            condition = conditions.corrupted_condition(given, name, seed=seed)
            network = self.build(seed)
            return asdict(
                conditions.certify_condition(network, condition, settings, seed, self.device)
            )

        return tuple(
            conditions.ConditionCertificate(
                **self.workshop.part(
                    f"certificate-{name.replace(':', '-')}",
                    partial(make, name),
                    title="certificates",
                    message=f"{name} ({number} of {len(settings.conditions)})",
                )
            )
            for number, name in enumerate(settings.conditions, start=1)
        )

    def leak(self, random: ConditionResult, test: Examples) -> LeakCheck:
        chance = intervals.chance_test(
            [outcome.confusion for outcome in random.outcomes],
            level=LEAK_LEVEL,
            seed=derived_seed(self.settings.seed, "renamings"),
        )
        duplicates = len(find_duplicates(self.dataset.train, test, ignore_labels=True))
        return LeakCheck(duplicates, len(test), chance, LEAK_LEVEL)

    def regularization(
        self, true: ConditionResult, random: ConditionResult
    ) -> tuple[RegularizationRow, ...]:
        settings, count = self.settings, self.settings.seeds
        if not settings.regularization:
            return ()

        def switched(seed: int) -> nn.Module:
            module, _ = regularization.switch_batch_norm(self.build(seed))
            assert module is not None
            return module

        def tasks(options: dict[str, Any]) -> list[Task]:
            return [
                self._task(name, seed, **options)
                for name in ("true", "random-labels")
                for seed in range(settings.seed, settings.seed + count)
            ]

        rows = [
            regularization.row_of("none", true.outcomes, random.outcomes),
            regularization.early_stopping(true.outcomes, random.outcomes),
        ]
        shape = self.dataset.train.example_shape
        possible, impossible = regularization.regularizers(self.build(settings.seed), shape)
        for name, options in possible.items():
            own = None if options else learners.BuiltInLearner(switched, settings, self.device)
            part, asked = name.replace(" ", "-"), partial(tasks, options)
            outcomes = self.workshop.train(part, asked, count=2 * count, learner=own)
            rows.append(regularization.row_of(name, outcomes[:count], outcomes[count:]))
        return (*rows, *impossible)
