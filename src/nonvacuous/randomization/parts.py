"""The parts of a study: which networks each of them trains, and what it makes of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

from torch import nn

from nonvacuous.data import Dataset, find_duplicates
from nonvacuous.randomization.conditions import (
    Condition,
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


class Relabel(Protocol):
    """So many conditions with the same inputs and other labels."""

    def __call__(self, dataset: Dataset, count: int, *, seed: int) -> list[Condition]: ...


@dataclass(frozen=True, eq=False)
class Parts:
    """What all parts of a study are made of; ``build`` gives a fresh network for a seed."""

    dataset: Dataset
    build: Build
    workshop: Workshop
    settings: StudySettings

    def _task(self, name: str, seed: int, **options: Any) -> Task:
        return Task(corrupted_condition(self.dataset, name, seed=seed), seed, **options)

    def paired(self) -> list[ConditionResult]:
        """Every condition with every seed: the same seeds, and nothing but the data changed."""
        names, first = self.settings.conditions, self.settings.seed
        outcomes: dict[str, list[Outcome]] = {name: [] for name in names}
        for seed in range(first, first + self.settings.seeds):
            for outcome in self.workshop.train(
                f"seed-{seed}",
                lambda seed=seed: [self._task(name, seed) for name in names],  # type: ignore[misc]
                count=len(names),
            ):
                outcomes[outcome.condition].append(outcome)
        return [
            condition_result(name, own, outcomes["true"], confidence=self.settings.confidence)
            for name, own in outcomes.items()
        ]

    def relabeled(self, name: str, relabel: Relabel, count: int) -> list[Outcome]:
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
        permuted = self.relabeled("permutations", permuted_conditions, count)
        # The network on true labels that has the seed of all the permuted ones.
        observed = true.outcomes[0].test_error
        return Permutations(observed, tuple(outcome.test_error for outcome in permuted))

    def certificates(self, given: Dataset) -> tuple[ConditionCertificate, ...]:
        """On the data as given: where inputs were scaled, the examples counted had a say in it."""
        settings, seed = self.settings, self.settings.seed
        if not settings.certificates:
            return ()

        def make(name: str) -> dict[str, Any]:
            condition = corrupted_condition(given, name, seed=seed)
            network, device = self.build(seed), self.workshop.device
            return asdict(certify_condition(network, condition, settings, seed, device))

        return tuple(
            ConditionCertificate(
                **self.workshop.part(
                    f"certificate-{name.replace(':', '-')}",
                    partial(make, name),
                    title="certificates",
                    message=f"{name} ({number} of {len(settings.conditions)})",
                )
            )
            for number, name in enumerate(settings.conditions, start=1)
        )

    def leak(self, random: ConditionResult) -> LeakCheck:
        train, test = self.dataset.train, self.dataset.test
        assert test is not None
        chance = chance_test(
            [outcome.confusion for outcome in random.outcomes],
            level=LEAK_LEVEL,
            seed=derived_seed(self.settings.seed, "renamings"),
        )
        duplicates = len(find_duplicates(train, test, ignore_labels=True))
        return LeakCheck(duplicates, len(test), chance, LEAK_LEVEL)

    def regularization(
        self, example: nn.Module, true: ConditionResult, random: ConditionResult
    ) -> tuple[RegularizationRow, ...]:
        settings, count = self.settings, self.settings.seeds
        if not settings.regularization:
            return ()

        def switched(seed: int) -> nn.Module:
            module, _ = switch_batch_norm(self.build(seed))
            assert module is not None
            return module

        def tasks(options: dict[str, Any]) -> list[Task]:
            return [
                self._task(name, seed, **options)
                for name in ("true", "random-labels")
                for seed in range(settings.seed, settings.seed + count)
            ]

        rows = [
            row_of("none", true.outcomes, random.outcomes),
            early_stopping(true.outcomes, random.outcomes),
        ]
        possible, impossible = regularizers(example, self.dataset.train.example_shape)
        for entry in possible:
            device = self.workshop.device
            own = BuiltInLearner(switched, settings, device) if entry.switched else None
            name, asked = entry.name.replace(" ", "-"), partial(tasks, entry.options)
            outcomes = self.workshop.train(name, asked, count=2 * count, learner=own)
            rows.append(row_of(entry.name, outcomes[:count], outcomes[count:]))
        return (*rows, *impossible)
