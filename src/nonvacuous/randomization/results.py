"""What a study found, as plain numbers: the text, the page and results.json show nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from nonvacuous.randomization import intervals, registry
from nonvacuous.randomization.classical import Capacity, Rademacher
from nonvacuous.randomization.conditions import ConditionCertificate, noise_of
from nonvacuous.randomization.learners import Outcome
from nonvacuous.randomization.regularization import RegularizationRow
from nonvacuous.randomization.settings import StudySettings


@dataclass(frozen=True)
class ConditionResult:
    """All networks of one condition.

    fitted          how many fitted every training label
    fitting         "fit" where all did, else what kept the first of the others from it
    fit_epochs      the first epoch without a training error, over seeds; None where not all fitted
    relative_time   the same relative to true labels, paired by seed
    """

    name: str
    kind: str
    description: str
    noise: float | None
    outcomes: tuple[Outcome, ...]
    train_error: intervals.Interval
    test_error: intervals.Interval
    gap: intervals.Interval
    fitted: int
    fitting: str
    fit_epochs: intervals.Interval | None
    relative_time: intervals.Interval | None


@dataclass(frozen=True)
class Permutations:
    """The test errors of the network on true labels and of those on permuted labels.

    >>> Permutations(0.03, (0.9, 0.88, 0.91)).p_value
    0.25
    """

    observed: float
    permuted: tuple[float, ...]

    @property
    def p_value(self) -> float:
        """How often permuted labels err as rarely as the true ones.

        The true labeling counts as one of the permutations, which makes the p-value exact.
        """
        as_rarely = sum(error <= self.observed for error in self.permuted)
        return (1 + as_rarely) / (1 + len(self.permuted))

    @property
    def is_smallest(self) -> bool:
        """Whether no permutation did as well: then only more of them could give a smaller value."""
        return min(self.permuted) > self.observed


@dataclass(frozen=True)
class LeakCheck:
    """Whether test examples can have reached training.

    duplicates   test inputs that are training inputs too
    chance       the networks on random labels against guessing
    level        the p-value below which a leak is reported
    """

    duplicates: int
    test_examples: int
    chance: intervals.ChanceTest
    level: float

    @property
    def above_chance(self) -> bool:
        return self.chance.p_value <= self.level


@dataclass(frozen=True)
class Finding:
    """One sentence of the verdict. level: "good", "note" or "problem"."""

    name: str
    level: str
    text: str


@dataclass(frozen=True)
class Study:
    """A whole study.

    configuration   one digest of architecture, starts, seeds and training, which all conditions
                    share; None if they do not
    """

    architecture: str
    parameters: int
    data: str
    examples: int
    test_examples: int
    dimensions: int
    classes: int
    trained_by: str
    settings: StudySettings
    configuration: str | None
    conditions: tuple[ConditionResult, ...]
    permutations: Permutations | None
    leak: LeakCheck
    rademacher: Rademacher | None
    capacity: Capacity
    certificates: tuple[ConditionCertificate, ...]
    regularization: tuple[RegularizationRow, ...]
    findings: tuple[Finding, ...]
    networks: int
    seconds: float
    #: The test error of always answering its largest class; studies made before lack it.
    largest_class: float | None = None

    @property
    def guessing(self) -> float:
        return 1.0 - 1.0 / self.classes

    def condition(self, name: str) -> ConditionResult:
        return next(entry for entry in self.conditions if entry.name == name)

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "problem")

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        record["settings"] = self.settings.record()
        record["guessing"] = self.guessing
        if self.permutations is not None:
            record["permutations"]["p_value"] = self.permutations.p_value
        record["leak"]["p_value"] = self.leak.chance.p_value
        record["leak"]["above_chance"] = self.leak.above_chance
        for entry, shown in zip(self.certificates, record["certificates"], strict=True):
            shown["verdict"] = entry.verdict
        return {"format": "nonvacuous-randomization-study/1", **record}


def condition_result(
    name: str,
    outcomes: Sequence[Outcome],
    true: Sequence[Outcome],
    *,
    confidence: float,
) -> ConditionResult:
    """Put the networks of one condition together, beside those on true labels."""
    corruption = registry.parse_corruption(name).corruption
    mean = partial(intervals.over_networks, confidence=confidence)
    unfit = [outcome.fitting for outcome in outcomes if outcome.fitting != "fit"]
    own, base = (
        [float(one.fit_epoch) for one in some if one.fit_epoch is not None]
        for some in (outcomes, true)
    )
    fit_epochs = relative = None
    if len(own) == len(outcomes):
        fit_epochs = mean(own)
        if len(base) == len(true):
            relative = intervals.ratio_over_networks(own, base, confidence=confidence)
    examples = outcomes[0].test_examples
    test = intervals.error_rate([o.test_errors for o in outcomes], examples, confidence=confidence)
    gap = mean([o.gap for o in outcomes])
    # The training error is known exactly: the gap is as uncertain as the test error.
    shift = gap.value - test.value
    low, high = min(gap.low, test.low + shift), max(gap.high, test.high + shift)
    return ConditionResult(
        name=name,
        kind=corruption.what,
        description=corruption.description,
        noise=noise_of(name),
        outcomes=tuple(outcomes),
        train_error=mean([o.train_error for o in outcomes]),
        test_error=test,
        gap=intervals.Interval(gap.value, low, high, test.how),
        fitted=len(outcomes) - len(unfit),
        fitting=unfit[0] if unfit else "fit",
        fit_epochs=fit_epochs,
        relative_time=relative,
    )


def shared_configuration(conditions: Iterable[ConditionResult]) -> str | None:
    """One digest if the networks of equal seeds differ in their data only; None if not."""
    pairs = {(one.seed, one.configuration) for each in conditions for one in each.outcomes}
    if len({seed for seed, _ in pairs}) < len(pairs):
        return None
    text = "".join(f"{seed}:{digest}\n" for seed, digest in sorted(pairs))
    return hashlib.sha256(text.encode()).hexdigest()
