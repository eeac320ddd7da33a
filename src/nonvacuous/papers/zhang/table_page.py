"""The page of Table 1: every row beside the published one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nonvacuous.papers.zhang.networks import corruption_title, network_title
from nonvacuous.papers.zhang.pages import (
    MISSING,
    footer,
    percent,
    points,
    time_table,
    training_section,
    yes_or_no,
)
from nonvacuous.papers.zhang.published import (
    CHANCE_TOLERANCE,
    FIT,
    PAPER,
    TABLE_1,
    TEST_TOLERANCE,
)
from nonvacuous.report.study import Section, StudyPage, Table

if TYPE_CHECKING:
    from nonvacuous.papers.zhang.table import (
        RowResult,
        TableResult,
    )


def table(result: TableResult) -> Table:
    """The rows, accuracies in percent, published ones beside ours."""
    headings = (
        "row", "network", "labels", "crops", "decay", "train", "paper", "test", "paper", "diff.",
    )  # fmt: skip
    return Table(headings, tuple(_row(row) for row in result.rows), caption=verdict(result))


def _row(row: RowResult) -> tuple[str, ...]:
    cell, shown = row.result.cell, row.published
    return (
        str(row.number),
        network_title(cell.network),
        corruption_title(cell.corruption).removesuffix(" labels"),
        yes_or_no(cell.augmentation != "none"),
        yes_or_no(cell.decay),
        percent(row.result.train_accuracy),
        MISSING if shown is None else percent(shown.train),
        percent(row.result.test_accuracy),
        MISSING if shown is None else percent(shown.test),
        points(row.test_difference),
    )


def verdict(result: TableResult) -> str:
    """How many rows reach what, and which do not."""
    found = result.summary
    parts = []
    for name, words in (
        ("fits", f"training accuracy of {FIT:g} % or more where the paper has it"),
        ("test_agrees", f"test accuracy within {TEST_TOLERANCE:g} points of the published"),
        ("at_chance", f"random labels within {CHANCE_TOLERANCE:g} point of guessing"),
    ):
        if found[name]["of"]:
            missed = [str(row.number) for row in result.rows if getattr(row, name) is False]
            ending = f" (not: {', '.join(missed)})" if missed else ""
            parts.append(f"{words}: {found[name]['yes']} of {found[name]['of']}{ending}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else "Nothing to compare."


def page(result: TableResult) -> StudyPage:
    """The page of the table."""
    random = [row for row in result.rows if row.result.cell.corruption == "random-labels"]
    true = [row for row in result.rows if row.result.cell.corruption == "true"]
    return StudyPage(
        title="Networks that fit random labels",
        question="Can the same network, trained in the same way, fit labels drawn at random?",
        lead=_lead(true, random),
        badges=(
            f"{len(result.rows)} networks",
            f"{sum(timing.seconds for timing in result.timings):.0f} seconds",
            PAPER,
        ),
        sections=(
            Section(
                "Every row beside the published one",
                (
                    f"Table 1 of {PAPER}. Accuracies in percent; training accuracy is measured "
                    "without augmentation, against the labels that the network was given.",
                    *_incomplete(result),
                ),
                tables=(table(result),),
            ),
            Section(
                "How long did it take?",
                (
                    "Networks of one kind are trained at once. The time of one network alone was "
                    "measured in the same run, without its start.",
                ),
                tables=(time_table(result.timings),),
            ),
            training_section(result.settings),
        ),
        footer=footer(result.settings, "zhang-table-1"),
    )


def _lead(true: list[RowResult], random: list[RowResult]) -> str:
    if not random:
        return f"{len(true)} networks on true labels; none on random labels was asked for."
    worst = min(row.result.train_accuracy for row in random)
    tests = [row.result.test_accuracy for row in random]
    fit = (
        f"Trained on random labels, the networks get {worst:.1f} % or more of them right"
        if worst >= FIT
        else f"Trained on random labels, the networks get {worst:.1f} % of them right at the least"
    )
    answered = f"and answer {min(tests):.1f} to {max(tests):.1f} % of the test set correctly"
    if not true:
        return f"{fit}, {answered}."
    best = max(row.result.test_accuracy for row in true)
    return f"{fit}, {answered}; trained in the same way on true labels, up to {best:.1f} %."


def _incomplete(result: TableResult) -> tuple[str, ...]:
    compared = {row.number for row in result.rows if row.published is not None}
    absent = [str(row.number) for row in TABLE_1 if row.number not in compared]
    if not compared or not absent:
        return ()
    return (f"Not computed here: rows {', '.join(absent)} of the paper's table.",)
