"""Functions that fit the first training examples perfectly, good and bad: shown in two places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from nonvacuous.data import Dataset
from nonvacuous.errors import BadInput
from nonvacuous.interpolation.kernels import median_squared_distance
from nonvacuous.interpolation.perfect_fits import Judged, compare_interpolants
from nonvacuous.report.study import Figure, Section, Table
from nonvacuous.studies.interpolation import Task, chosen_kernel, distinct_examples
from nonvacuous.studies.interpolation_page import percent
from nonvacuous.study.settings import CellRecord, Frozen, StudySettings
from nonvacuous.study.study import Context


class Bad(Frozen):
    """Where such functions are shown: with how many examples, and with which kernel."""

    data: str
    examples: int
    test: int
    gamma: str


class BadSettings(StudySettings):
    """The same as settings."""

    bad_data: str = "mnist"
    """Where functions that fit and fail are shown."""
    bad_examples: int = Field(default=3000, description="How many examples they fit.")
    bad_test: int = Field(default=3000, description="How many examples they are tested on.")
    bad_gamma: str = Field(default="0.02", description="The width of their kernel.")

    @property
    def bad(self) -> Bad:
        """Those of them that decide one cell."""
        return Bad(**{name: getattr(self, f"bad_{name}") for name in Bad.model_fields})


#: What --quick takes instead.
QUICK_BAD: Mapping[str, Any] = {
    "bad_data": "digits",
    "bad_examples": 600,
    "bad_test": 200,
    "bad_gamma": "median:2",
}


class BadResult(CellRecord):
    """What became of them."""

    bad: tuple[Judged, ...]

    def lines(self) -> tuple[str]:
        return ("functions that fit and fail",)


def bad_interpolants(bad: Bad, at: Context, seed: int) -> BadResult:
    dataset, _ = distinct_examples(at.dataset(bad.data))
    if dataset.test is None:
        raise BadInput(f"{dataset.train.name} has no test set, which this comparison needs")
    train = first(dataset, bad.examples).train
    test = dataset.test.subset(np.arange(min(bad.test, len(dataset.test))))
    judged = compare_interpolants(
        train.inputs,
        train.labels.numpy(),
        test.inputs,
        test.labels.numpy(),
        kernel=chosen_kernel(Task(gamma=bad.gamma), median_squared_distance(train.inputs)),
        classes=train.classes,
        seed=seed,
    )
    return BadResult(bad=judged)


def first(dataset: Dataset, count: int | None) -> Dataset:
    """The data set with so many training examples, the first ones."""
    if count is None or count >= len(dataset.train):
        return dataset
    return Dataset(dataset.train.subset(np.arange(count)), dataset.test)


def bad_table(bad: Sequence[Judged]) -> Table:
    """Functions with no training error, and what they are worth."""
    return Table.of(
        {
            "function": entry.name,
            "norm": f"{entry.norm:,.1f}",
            "training errors": f"{entry.train_errors} of {entry.train_examples:,}",
            "test error": percent(entry.test_errors, entry.test_examples),
            "residual": f"{entry.residual:.0e}",
        }
        for entry in bad
    )


def bad_section(heading: str, words: str, bad: Sequence[Judged]) -> Section:
    """Norms and errors of the functions that fit perfectly."""
    return Section.of(
        heading,
        words,
        drawn_bars(
            "test error",
            {entry.name: 100 * entry.test_errors / entry.test_examples for entry in bad},
            "All of these functions make no error on the training examples.",
            "Errors on new examples",
            "per cent",
        ),
        drawn_bars(
            "norm",
            {entry.name: entry.norm for entry in bad},
            "Within one kernel, the functions that know nothing have the larger norm.",
            "Norms of functions that fit",
            "norm (logarithmic)",
            log=True,
        ),
        bad_table(bad),
    )


#: What is drawn for a number too small for a logarithmic axis.
FLOOR = 1e-18


def drawn_bars(
    what: str, bars: Mapping[str, float], caption: str, title: str, x_label: str, log: bool = False
) -> Figure:
    from nonvacuous.report import plots

    values = [max(value, FLOOR) if log else value for value in bars.values()]
    svg = plots.bars(list(bars), {what: values}, title=title, x_label=x_label, log=log)
    return Figure(svg, caption)
