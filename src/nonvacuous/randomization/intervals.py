"""How sure a rate is: exact within one network, by Student's t over networks, by permutation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from nonvacuous.bounds import checks, holdout, holdout_lower
from nonvacuous.errors import BadInput

Confusion = Sequence[Sequence[int]]
#: Renamings drawn where there are too many to go through all of them.
_DRAWS = 9_999


@dataclass(frozen=True)
class ChanceTest:
    """Correct answers against chance. Small p-values speak against chance.

    binomial     P(at least so many correct | independent answers, each correct with 1/classes)
    relabeling   the same over random renamings of the classes of the answers; None where there are
                 too few renamings to tell anything
    student      one-sided t over the networks' accuracies, where renamings are too few
    """

    correct: int
    examples: int
    classes: int
    binomial: float
    relabeling: float | None
    student: float | None

    @property
    def p_value(self) -> float:
        """The largest: every test that could be done must speak against chance."""
        tests = (self.binomial, self.relabeling, self.student)
        return max(value for value in tests if value is not None)

    @property
    def accuracy(self) -> float:
        return self.correct / self.examples


def chance_test(confusions: Sequence[Confusion], *, level: float, seed: int) -> ChanceTest:
    """Test the answers of independently trained networks, taken together.

    confusions   one table for each network: rows are true classes, columns answers, entries counts
    level        the p-value that will be called significant: a test that cannot go below it is
                 left out
    """
    tables = [np.asarray(table, dtype=np.int64) for table in confusions]
    classes = len(tables[0])
    if any(table.shape != (classes, classes) for table in tables):
        raise BadInput("chance_test: every table must have one row and one column for each class")
    correct = sum(int(np.trace(table)) for table in tables)
    examples = sum(int(table.sum()) for table in tables)
    relabeling = _relabeling(tables, correct, level=level, seed=seed)
    return ChanceTest(
        correct=correct,
        examples=examples,
        classes=classes,
        binomial=float(stats.binom.sf(correct - 1, examples, 1.0 / classes)),
        relabeling=relabeling,
        student=None if relabeling is not None else _student(tables),
    )


def _student(tables: list[np.ndarray]) -> float | None:
    """Whether the mean accuracy is above chance by more than the networks differ."""
    if len(tables) < 3:
        return None
    rates = [float(np.trace(table)) / float(table.sum()) for table in tables]
    chance = 1.0 / len(tables[0])
    if len(set(rates)) == 1:
        return 0.0 if rates[0] > chance else 1.0
    return float(stats.ttest_1samp(rates, chance, alternative="greater").pvalue)


def _relabeling(tables: list[np.ndarray], correct: int, *, level: float, seed: int) -> float | None:
    classes, networks = len(tables[0]), len(tables)
    renamings = math.factorial(classes) ** networks
    if renamings < 1.0 / level:  # a product with so many would leave the floats
        return None
    rows = np.arange(classes)
    if renamings <= _DRAWS:
        names = np.array(list(itertools.permutations(range(classes))))
        # Every renaming of the first network with every one of the second, and so on.
        counts = np.zeros(1, dtype=np.int64)
        for table in tables:
            counts = np.add.outer(counts, table[rows, names].sum(axis=1)).ravel()
        return float((counts >= correct).mean())
    generator = np.random.default_rng(seed)
    drawn = np.zeros(_DRAWS, dtype=np.int64)
    for table in tables:
        names = generator.random((_DRAWS, classes)).argsort(axis=1)
        drawn += table[rows, names].sum(axis=1)
    return (1 + int((drawn >= correct).sum())) / (1 + _DRAWS)


@dataclass(frozen=True)
class Interval:
    """A value and the interval around it. ``how`` says what the interval rests on."""

    value: float
    low: float
    high: float
    how: str

    def text(self, *, percent: bool = True) -> str:
        """For a person: the value, and the interval in brackets.

        >>> Interval(0.031, 0.025, 0.04, "").text()
        '3.1 % (2.5 to 4.0)'
        """
        if not percent:
            return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


def exact_rate(errors: int, examples: int, *, confidence: float) -> Interval:
    """The share of errors of one fixed network, with the interval of Clopper and Pearson (1934).

    >>> exact_rate(9, 360, confidence=0.95).text()
    '2.5 % (1.1 to 4.7)'
    """
    failure = checks.failure_of(confidence) / 2
    return Interval(
        value=errors / examples,
        low=holdout_lower(errors=errors, examples=examples, failure=failure),
        high=holdout(errors=errors, examples=examples, failure=failure),
        how="exact binomial",
    )


def over_networks(values: Sequence[float], *, confidence: float) -> Interval:
    """The mean over independently trained networks, with Student's t interval.

    It says how much another choice of seeds would move the mean, not another test set.

    >>> over_networks([0.02, 0.03, 0.04], confidence=0.95).text()
    '3.0 % (0.5 to 5.5)'
    """
    if not values:
        raise BadInput("over_networks: there is no value to average; train at least one network")
    count, mean = len(values), math.fsum(values) / len(values)
    if count == 1:
        return Interval(mean, mean, mean, "one network: no interval over seeds")
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
    half = float(stats.t.ppf(0.5 + confidence / 2, count - 1)) * spread
    return Interval(mean, mean - half, mean + half, f"t over {count} seeds")


def error_rate(errors: Sequence[int], examples: int, *, confidence: float) -> Interval:
    """The mean share of errors of several networks on the same examples.

    One network: the exact interval. Several: the wider of the exact interval at the mean (which
    examples are in the set) and Student's t (which seed), never outside [0, 1].
    """
    total = round(math.fsum(errors) / len(errors))
    exact = exact_rate(total, examples, confidence=confidence)
    if len(errors) == 1:
        return exact
    seeds = over_networks([count / examples for count in errors], confidence=confidence)
    low, high = min(exact.low, seeds.low), max(exact.high, seeds.high)
    return Interval(
        seeds.value, max(0.0, low), min(1.0, high), f"exact binomial and {seeds.how}, the wider"
    )


def ratio_over_networks(
    numerators: Sequence[float], denominators: Sequence[float], *, confidence: float
) -> Interval:
    """The geometric mean of ratios paired by seed, with Student's t on the logarithms."""
    logs = [math.log(top / bottom) for top, bottom in zip(numerators, denominators, strict=True)]
    mean = over_networks(logs, confidence=confidence)
    return Interval(math.exp(mean.value), math.exp(mean.low), math.exp(mean.high), mean.how)
