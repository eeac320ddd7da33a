"""Table 1 of the randomization paper: nineteen networks on CIFAR-10, true and random labels."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.papers.zhang import networks
from nonvacuous.papers.zhang.networks import Cell, CellResult, GroupTiming, Row, network_title
from nonvacuous.papers.zhang.settings import TableSettings, ZhangSettings
from nonvacuous.papers.zhang.training import NetworksStudy, percent, time_table, yes_or_no
from nonvacuous.report.study import Section, StudyPage, Table, or_dash
from nonvacuous.study.study import Context, Finished

#: What counts as reproduced, in percentage points: the training accuracy that the paper calls a
#: fit, how near a test accuracy must come, and how near to guessing random labels must stay.
FIT, TEST_TOLERANCE, CHANCE_TOLERANCE = 99.3, 2.5, 1.0
#: The accuracy of guessing among ten classes, in percent.
GUESSING = 10.0


@dataclass(frozen=True)
class RowResult:
    """One row, computed; judged where the paper has it for the same network and data."""

    printed: Row
    result: CellResult

    @property
    def judged(self) -> dict[str, Any]:
        """What is reproduced; None where the paper says nothing of the same network and data.

        fits, test_agrees, at_chance   whether labels are fitted where the paper fits them, test
                                       accuracies are near, and random labels at guessing
        test_difference                our test accuracy minus the published one, in points
        """
        train, test, ours = self.printed.train, self.printed.test, self.result
        gap = None if test is None else ours.test_accuracy - test
        random = test is not None and self.printed.cell.corruption == "random-labels"
        return {
            "fits": ours.train_accuracy >= FIT if (train or 0.0) >= FIT else None,
            "test_difference": gap,
            "test_agrees": None if gap is None else abs(gap) <= TEST_TOLERANCE,
            "at_chance": abs(ours.test_accuracy - GUESSING) <= CHANCE_TOLERANCE if random else None,
        }

    def to_dict(self) -> dict[str, Any]:
        train, test = self.printed.train, self.printed.test
        return {
            "number": self.printed.number,
            **self.result.to_dict(),
            "published": None if test is None else {"train": train, "test": test},
            **self.judged,
        }


@dataclass(frozen=True)
class TableResult:
    """The table, or the part of it that was asked for."""

    settings: TableSettings
    rows: tuple[RowResult, ...]
    timings: tuple[GroupTiming, ...]

    @property
    def summary(self) -> dict[str, Any]:
        counts = {}
        for name in ("fits", "test_agrees", "at_chance"):
            known = [value for row in self.rows if (value := row.judged[name]) is not None]
            counts[name] = {"yes": sum(known), "of": len(known)}
        seconds = sum(timing.seconds for timing in self.timings)
        return {"rows": len(self.rows), **counts, "seconds": seconds}

    def to_dict(self) -> dict[str, Any]:
        return {
            "settings": self.settings.record(),
            "summary": self.summary,
            "rows": [row.to_dict() for row in self.rows],
            "timings": [timing.to_dict() for timing in self.timings],
        }


def table_rows(settings: ZhangSettings) -> tuple[Row, ...]:
    """The rows of the paper's networks; for others, with and without weight decay and random."""
    comparable = settings.data == "cifar10" and settings.examples is None
    rows = [row for row in networks.TABLE_1 if row.cell.network in settings.networks]
    first = len(networks.TABLE_1) + 1 if rows else 1
    if not comparable:
        rows = [Row(row.number, row.cell) for row in rows]
    others = [
        cell
        for name in settings.networks
        if name not in networks.TITLES
        for cell in (Cell(name, decay=True), Cell(name), Cell(name, "random-labels"))
    ]
    return (*rows, *(Row(number, cell) for number, cell in enumerate(others, start=first)))


def chosen_rows(
    settings: ZhangSettings, *, only: Sequence[str] = (), numbers: Sequence[str] = ()
) -> tuple[Row, ...]:
    """Some rows: of networks whose names start like one of ``only``, or with these numbers.

    >>> [row.number for row in chosen_rows(ZhangSettings(), only=["mlp"], numbers=["15-16", "18"])]
    [15, 16, 18]
    """
    rows = table_rows(settings)
    names = tuple(dict.fromkeys(row.cell.network for row in rows))
    kept = set() if only else set(names)
    for word in only:
        # inception is itself a name, though inception-no-bn starts with it.
        matching = {word} & set(names) or {name for name in names if name.startswith(word)}
        if not matching:
            raise BadInput(f"only: there is no network {word!r} here; there are {', '.join(names)}")
        kept |= matching
    wanted = _numbers(numbers, {row.number for row in rows})
    return tuple(row for row in rows if row.cell.network in kept and row.number in wanted)


def _numbers(texts: Sequence[str], known: set[int]) -> set[int]:
    if not texts:
        return known
    chosen: set[int] = set()
    for text in texts:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not {first, last} <= known or last < first:
            raise BadInput(
                f"rows: {text!r} is not a row of the table; give numbers from {min(known)} to "
                f"{max(known)}, such as 15 or 9-13"
            )
        chosen |= set(range(first, last + 1))
    return chosen


def table(result: TableResult) -> Table:
    """The rows, accuracies in percent, published ones beside ours."""
    headings = (
        "row", "network", "labels", "crops", "decay", "train", "paper", "test", "paper", "diff.",
    )  # fmt: skip
    rows = tuple(
        (
            str(row.printed.number),
            network_title(row.printed.cell.network),
            networks.corruption_title(row.printed.cell.corruption).removesuffix(" labels"),
            yes_or_no(row.printed.cell.augmentation != "none"),
            yes_or_no(row.printed.cell.decay),
            percent(row.result.train_accuracy),
            percent(row.printed.train),
            percent(row.result.test_accuracy),
            percent(row.printed.test),
            or_dash(row.judged["test_difference"], "+.2f"),
        )
        for row in result.rows
    )
    return Table(headings, rows, caption=verdict(result))


def verdict(result: TableResult) -> str:
    """How many rows reach what, and which do not."""
    parts = []
    for name, words in (
        ("fits", f"training accuracy of {FIT:g} % or more where the paper has it"),
        ("test_agrees", f"test accuracy within {TEST_TOLERANCE:g} points of the published"),
        ("at_chance", f"random labels within {CHANCE_TOLERANCE:g} point of guessing"),
    ):
        count = result.summary[name]
        if count["of"]:
            missed = [str(one.printed.number) for one in result.rows if one.judged[name] is False]
            ending = f" (not: {', '.join(missed)})" if missed else ""
            parts.append(f"{words}: {count['yes']} of {count['of']}{ending}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else "Nothing to compare."


def tables(result: TableResult) -> tuple[Table, Table]:
    return table(result), time_table(result.timings)


def page(result: TableResult, command: str) -> StudyPage:
    said = (
        f"Table 1 of {networks.PAPER}. Accuracies in percent; training accuracy is measured "
        "without augmentation, against the labels that the network was given."
    )
    compared = {row.printed.number for row in result.rows if row.printed.test is not None}
    published = networks.TABLE_1 if compared else ()
    absent = [str(row.number) for row in published if row.number not in compared]
    missing = f"Not computed here: rows {', '.join(absent)} of the paper's table."
    return StudyPage(
        title="Networks that fit random labels",
        question="Can the same network, trained in the same way, fit labels drawn at random?",
        lead=_lead(result),
        badges=(f"{len(result.rows)} networks",),
        sections=(
            Section.of(
                "Every row beside the published one", said, missing if absent else "", table(result)
            ),
        ),
        footer=(command, f"seed {result.settings.seed}"),
    )


def _lead(result: TableResult) -> str:
    true, random = (
        [row for row in result.rows if row.result.cell.corruption == labels]
        for labels in ("true", "random-labels")
    )
    if not random:
        return f"{len(true)} networks on true labels; none on random labels was asked for."
    worst = min(row.result.train_accuracy for row in random)
    tests = [row.result.test_accuracy for row in random]
    share = f"{worst:.1f} % or more of them right"
    if worst < FIT:
        share = f"{worst:.1f} % of them right at the least"
    fit = f"Trained on random labels, the networks get {share}"
    answered = f"and answer {min(tests):.1f} to {max(tests):.1f} % of the test set correctly"
    if not true:
        return f"{fit}, {answered}."
    best = max(row.result.test_accuracy for row in true)
    return f"{fit}, {answered}; trained in the same way on true labels, up to {best:.1f} %."


class Table1(NetworksStudy[TableSettings, TableResult]):
    """Train the table's networks again, those of one kind at once, and compare with the paper.

    Needs CIFAR-10. All nineteen want a GPU; the perceptrons (--only mlp) take less than an hour on
    two processor cores.
    """

    name = "zhang-table-1"
    settings = TableSettings
    pages = __name__
    about_time = (
        "Networks of one kind are trained at once. The time of one network alone was measured in "
        "the same run, without its start."
    )

    def networks(self, settings: TableSettings) -> Sequence[Cell]:
        chosen = chosen_rows(settings, only=settings.only, numbers=settings.rows)
        if not chosen:
            raise BadInput("only and --rows together leave no row: give one of them")
        return [row.cell for row in chosen]

    def result(self, settings: TableSettings, finished: Finished, at: Context) -> TableResult:
        trained = self.trained(settings, finished)
        rows = tuple(
            RowResult(row, trained[row.cell]) for row in table_rows(settings) if row.cell in trained
        )
        return TableResult(settings, rows, self.timings(finished))

    def next_command(self, result: TableResult, folder: Path | None) -> str:
        quick = ["--quick"] * (result.settings.data == "digits")
        words = ["nonvacuous", "reproduce", "zhang-regularization", "--table", str(folder), *quick]
        return shlex.join(words)


STUDY = Table1()
