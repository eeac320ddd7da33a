"""Does a network do better than chance where it cannot? The test behind the leak check.

A network trained on labels that were drawn at random knows nothing of the true ones. Counting its
correct answers against a binomial law is exact only if its answers are independent: they are not,
since a network tends to answer alike on alike inputs. Renaming the classes of its answers is
exact: labels drawn uniformly treat all classes alike, and so does the network, over its random
start. With very few classes there are too few renamings; there the spread over independently
trained networks is taken instead (Student's t). A leak is believed only where both tests see it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
        found = (self.binomial, self.relabeling, self.student)
        return max(value for value in found if value is not None)

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
    from scipy import stats

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
    from scipy import stats

    rates = [float(np.trace(table)) / float(table.sum()) for table in tables]
    above = math.fsum(rates) / len(rates) - 1.0 / len(tables[0])
    spread = float(np.std(rates, ddof=1)) / math.sqrt(len(rates))
    if spread == 0.0:
        return 0.0 if above > 0 else 1.0
    return float(stats.t.sf(above / spread, len(rates) - 1))


def _relabeling(tables: list[np.ndarray], correct: int, *, level: float, seed: int) -> float | None:
    classes, networks = len(tables[0]), len(tables)
    renamings = math.factorial(classes) ** networks
    if renamings * level < 1.0:
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
