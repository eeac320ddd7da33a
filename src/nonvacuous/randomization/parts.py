"""The parts of a study: which networks each of them trains, and what it makes of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import nn

from nonvacuous.data import Dataset, find_duplicates
from nonvacuous.randomization.conditions import (
    ConditionCertificate,
    certify_condition,
    corrupted_condition,
    permuted_conditions,
)
from nonvacuous.randomization.intervals import chance_test
from nonvacuous.randomization.learners import Build, BuiltInLearner, Task
from nonvacuous.randomization.outcomes import Outcome
from nonvacuous.randomization.regularization import (
    RegularizationRow,
    early_stopping,
    regularizers,
    row_of,
    switch_batch_norm,
)
from nonvacuous.randomization.results import (
    ConditionResult,
    LeakCheck,
    Permutations,
    condition_result,
)
from nonvacuous.randomization.settings import StudySettings
from nonvacuous.randomization.workshop import Workshop
from nonvacuous.seeds import derived_seed

#: The p-value from which on a leak is reported. It is a grave thing to say, so it is small.
LEAK_LEVEL = 0.001


def paired_part(
    dataset: Dataset, workshop: Workshop, settings: StudySettings
) -> list[ConditionResult]:
    """Every condition with every seed: the same seeds, and nothing but the data changed."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in settings.conditions}
    for number in range(settings.seeds):
        seed = settings.seed + number

        def tasks(seed: int = seed) -> list[Task]:
            return [
                Task(corrupted_condition(dataset, name, seed=seed), seed)
                for name in settings.conditions
            ]

        for outcome in workshop.train(f"seed-{seed}", tasks, count=len(settings.conditions)):
            outcomes[outcome.condition].append(outcome)
    return [
        condition_result(name, own, outcomes["true"], confidence=settings.confidence)
        for name, own in outcomes.items()
    ]


def permutations_part(
    dataset: Dataset, workshop: Workshop, settings: StudySettings, true: ConditionResult
) -> Permutations | None:
    if not settings.permutations:
        return None

    def tasks() -> list[Task]:
        permuted = permuted_conditions(dataset, settings.permutations, seed=settings.seed)
        return [Task(condition, settings.seed) for condition in permuted]

    permuted = workshop.train("permutations", tasks, count=settings.permutations)
    # The network on true labels that has the seed of all the permuted ones.
    observed = true.outcomes[0].test_error
    return Permutations(observed, tuple(outcome.test_error for outcome in permuted))


def certificates_part(
    dataset: Dataset, build: Build, workshop: Workshop, settings: StudySettings
) -> tuple[ConditionCertificate, ...]:
    if not settings.certificates:
        return ()

    def make(name: str) -> dict[str, Any]:
        condition = corrupted_condition(dataset, name, seed=settings.seed)
        network, device = build(settings.seed), workshop.device
        return asdict(certify_condition(network, condition, settings, settings.seed, device))

    return tuple(
        ConditionCertificate(
            **workshop.part(
                f"certificate-{name.replace(':', '-')}",
                lambda name=name: make(name),  # type: ignore[misc]
                title="certificates",
                message=f"{name} ({number + 1} of {len(settings.conditions)})",
            )
        )
        for number, name in enumerate(settings.conditions)
    )


def leak_part(dataset: Dataset, random: ConditionResult, settings: StudySettings) -> LeakCheck:
    assert dataset.test is not None
    return LeakCheck(
        duplicates=len(find_duplicates(dataset.train, dataset.test, ignore_labels=True)),
        test_examples=len(dataset.test),
        chance=chance_test(
            [outcome.confusion for outcome in random.outcomes],
            level=LEAK_LEVEL,
            seed=derived_seed(settings.seed, "renamings"),
        ),
        level=LEAK_LEVEL,
    )


def regularization_part(
    dataset: Dataset,
    build: Build,
    example: nn.Module,
    workshop: Workshop,
    settings: StudySettings,
    true: ConditionResult,
    random: ConditionResult,
) -> tuple[RegularizationRow, ...]:
    if not settings.regularization:
        return ()

    def switched(seed: int) -> nn.Module:
        module, _ = switch_batch_norm(build(seed))
        assert module is not None
        return module

    rows = [
        row_of("none", true.outcomes, random.outcomes),
        early_stopping(true.outcomes, random.outcomes),
    ]
    possible, impossible = regularizers(example, dataset.train.example_shape)
    for entry in possible:

        def tasks(options: dict[str, Any] = entry.options) -> list[Task]:
            return [
                Task(corrupted_condition(dataset, name, seed=seed), seed, **options)
                for name in ("true", "random-labels")
                for seed in range(settings.seed, settings.seed + settings.seeds)
            ]

        own = BuiltInLearner(switched, settings, workshop.device) if entry.switched else None
        name = entry.name.replace(" ", "-")
        outcomes = workshop.train(name, tasks, count=2 * settings.seeds, learner=own)
        rows.append(row_of(entry.name, outcomes[: settings.seeds], outcomes[settings.seeds :]))
    return (*rows, *impossible)
