"""Table 1 of the randomization paper: nineteen networks on CIFAR-10, true and random labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.papers.zhang.networks import Cell, CellResult, GroupTiming
from nonvacuous.papers.zhang.published import (
    CHANCE_TOLERANCE,
    FIT,
    TABLE_1,
    TEST_TOLERANCE,
    PublishedRow,
)
from nonvacuous.papers.zhang.settings import TableSettings, ZhangSettings
from nonvacuous.papers.zhang.training import NetworksStudy
from nonvacuous.report.study import StudyPage, Table
from nonvacuous.study.study import Context, Finished


@dataclass(frozen=True)
class TableRow:
    """One row to compute, with the published one where the network and the data are the paper's."""

    number: int
    cell: Cell
    published: PublishedRow | None


@dataclass(frozen=True)
class RowResult:
    """One row, computed."""

    number: int
    result: CellResult
    published: PublishedRow | None
    classes: int = 10

    @property
    def fits(self) -> bool | None:
        """Whether the training labels are fitted where the paper's network fits them."""
        if self.published is None or self.published.train < FIT:
            return None
        return self.result.train_accuracy >= FIT

    @property
    def test_difference(self) -> float | None:
        """Our test accuracy minus the published one, in points."""
        return None if self.published is None else self.result.test_accuracy - self.published.test

    @property
    def test_agrees(self) -> bool | None:
        """Within the tolerance of the published test accuracy."""
        gap = self.test_difference
        return None if gap is None else abs(gap) <= TEST_TOLERANCE

    @property
    def at_chance(self) -> bool | None:
        """For the paper's random labels: whether the test accuracy is that of guessing."""
        if self.published is None or self.published.labels != "random-labels":
            return None
        return abs(self.result.test_accuracy - 100.0 / self.classes) <= CHANCE_TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, the judgments included."""
        shown = self.published
        return {
            "number": self.number,
            **self.result.to_dict(),
            "published": None if shown is None else {"train": shown.train, "test": shown.test},
            "fits": self.fits,
            "test_difference": self.test_difference,
            "test_agrees": self.test_agrees,
            "at_chance": self.at_chance,
        }


@dataclass(frozen=True)
class TableResult:
    """The table, or the part of it that was asked for."""

    settings: TableSettings
    rows: tuple[RowResult, ...]
    timings: tuple[GroupTiming, ...]

    @property
    def summary(self) -> dict[str, Any]:
        """How many rows reach what."""
        return {
            "rows": len(self.rows),
            "fits": _counted(row.fits for row in self.rows),
            "test_agrees": _counted(row.test_agrees for row in self.rows),
            "at_chance": _counted(row.at_chance for row in self.rows),
            "seconds": sum(timing.seconds for timing in self.timings),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for a file."""
        return {
            "settings": self.settings.record(),
            "summary": self.summary,
            "rows": [row.to_dict() for row in self.rows],
            "timings": [timing.to_dict() for timing in self.timings],
        }


def table_rows(settings: ZhangSettings) -> tuple[TableRow, ...]:
    """The rows of the paper's networks; for others, with and without weight decay and random."""
    comparable = settings.data == "cifar10" and settings.examples is None
    rows: list[tuple[int, Cell, PublishedRow | None]] = []
    first = len(TABLE_1) + 1 if any(row.network in settings.networks for row in TABLE_1) else 1
    for name in settings.networks:
        shown = [row for row in TABLE_1 if row.network == name]
        for row in shown:
            augmentation = "crop" if row.crop else "none"
            cell = Cell(row.network, row.labels, augmentation, row.decay)
            rows.append((row.number, cell, row if comparable else None))
        if not shown:
            for cell in (Cell(name, decay=True), Cell(name), Cell(name, "random-labels")):
                rows.append((first, cell, None))
                first += 1
    return tuple(TableRow(*row) for row in sorted(rows, key=lambda row: row[0]))


def chosen_rows(
    settings: ZhangSettings, *, only: Sequence[str] = (), numbers: Sequence[str] = ()
) -> tuple[TableRow, ...]:
    """Some rows: of networks whose names start like one of ``only``, or with these numbers.

    >>> [row.number for row in chosen_rows(ZhangSettings(), only=["mlp"], numbers=["15-16", "18"])]
    [15, 16, 18]
    """
    rows = table_rows(settings)
    names = tuple(dict.fromkeys(row.cell.network for row in rows))
    kept = set(names)
    if only:
        kept = set()
        for word in only:
            # inception is itself a name, though inception-no-bn starts with it.
            matching = {word} & set(names) or {name for name in names if name.startswith(word)}
            if not matching:
                raise BadInput(
                    f"only: there is no network {word!r} here; there are {', '.join(names)}"
                )
            kept |= matching
    wanted = _numbers(numbers, {row.number for row in rows})
    return tuple(row for row in rows if row.cell.network in kept and row.number in wanted)


def _numbers(texts: Sequence[str], known: set[int]) -> set[int]:
    if not texts:
        return known
    chosen: set[int] = set()
    for text in texts:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else 0
        if not match or not {first, last} <= known or last < first:
            raise BadInput(
                f"rows: {text!r} is not a row of the table; give numbers from {min(known)} to "
                f"{max(known)}, such as 15 or 9-13"
            )
        chosen |= set(range(first, last + 1))
    return chosen


def _counted(judgments: Any) -> dict[str, int]:
    known = [judgment for judgment in judgments if judgment is not None]
    return {"yes": sum(known), "of": len(known)}


class Table1(NetworksStudy[TableSettings, TableResult]):
    """Train the table's networks again, those of one kind at once, and compare with the paper.

    Needs CIFAR-10. All nineteen want a GPU; the perceptrons (--only mlp) take less than an hour on
    two processor cores.
    """

    name = "zhang-table-1"
    settings = TableSettings

    def networks(self, settings: TableSettings) -> Sequence[Cell]:
        chosen = chosen_rows(settings, only=settings.only, numbers=settings.rows)
        if not chosen:
            raise BadInput("only and --rows together leave no row: give one of them")
        return [row.cell for row in chosen]

    def result(
        self, settings: TableSettings, finished: Sequence[Finished], at: Context
    ) -> TableResult:
        found = self.trained(settings, finished)
        rows = (row for row in table_rows(settings) if row.cell in found)
        return TableResult(
            settings,
            tuple(RowResult(row.number, found[row.cell], row.published) for row in rows),
            self.timings(finished),
        )

    def page(self, result: TableResult, command: str) -> StudyPage:
        from nonvacuous.papers.zhang.table_page import page

        return page(result)

    def tables(self, result: TableResult) -> Sequence[Table]:
        from nonvacuous.papers.zhang.pages import time_table
        from nonvacuous.papers.zhang.table_page import table

        return table(result), time_table(result.timings)

    def next_command(self, result: TableResult, folder: Path) -> str:
        quick = " --quick" if result.settings.data == "digits" else ""
        return f"nonvacuous reproduce zhang-regularization --table {folder}{quick}"


STUDY = Table1()
