"""A randomization study for people: one page, its pictures, and results.json beside them."""

from __future__ import annotations

import itertools

from rich.console import Console
from rich.table import Table

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.randomization.results import ConditionResult, Study
from nonvacuous.report.study import StudyPage
from nonvacuous.report.wording import plural, printable
from nonvacuous.studies.randomization_sections import (
    capacity_section,
    certificates_section,
    conditions_section,
    curves_section,
    findings_section,
    leak_section,
    learning_section,
    regularization_section,
    same_section,
)


def page_of(study: Study, drawn: dict[str, str], *, command: str) -> StudyPage:
    """The whole page, in the order of a person's questions."""
    sections = [
        findings_section(study),
        conditions_section(study, drawn),
        curves_section(study, drawn),
        learning_section(study, drawn),
        leak_section(study),
        capacity_section(study),
        certificates_section(study, drawn),
        regularization_section(study),
        same_section(study),
    ]
    return StudyPage(
        title=f"Randomization: {study.architecture} on {study.data}",
        question="Does this network learn, or would it fit anything?",
        lead=lead(study),
        badges=_badges(study),
        sections=tuple(section for section in sections if section is not None),
        footer=(
            command,
            f"Seed {study.settings.seed}; {study.networks:,} networks trained by "
            f"{study.trained_by} in {study.seconds:,.0f} s.",
        ),
    )


def lead(study: Study) -> str:
    """The answer in one sentence."""
    if study.problems:
        first = study.problems[0]
        return f"Something is wrong: {first.name}."
    true, random = study.condition("true"), study.condition("random-labels")
    error = f"{100 * true.test_error.value:.1f} %"
    memorized = f"{100 * (1 - random.train_error.value):.0f} %"
    doubt = _doubt(study)
    if doubt:
        return f"Whether it learns is not shown: {error} test error, {doubt}."
    if not _learned(study):
        return (
            f"No sign of learning: {error} test error, which random labels do as well; it fits "
            f"{memorized} of those."
        )
    if random.fitted == len(random.outcomes):
        return (
            f"It learns, and could have memorized: {error} test error, and no training error on "
            "random labels."
        )
    return f"It learns: {error} test error; it can fit {memorized} of random labels."


def _learned(study: Study) -> bool:
    """The verdict of the permutation test; where none was made, of the interval."""
    error, permuted = study.condition("true").test_error, study.permutations
    if permuted is None:
        return error.high < study.guessing
    return error.low < study.guessing and permuted.p_value <= study.settings.failure


def _doubt(study: Study) -> str:
    """Why the numbers look like learning and do not show it; empty where that is not so."""
    error, permuted = study.condition("true").test_error, study.permutations
    if _learned(study) or error.low >= study.guessing:
        return ""
    if permuted is None:
        return "and guessing lies within its interval; no permutations were trained"
    if not permuted.is_smallest:
        return ""
    count = len(permuted.permuted)
    enough = next(n for n in itertools.count(count) if 1 / (n + 1) <= study.settings.failure)
    return (
        f"but {plural(count, 'permutation')} of the labels cannot tell (p = "
        f"{permuted.p_value:.3g}; {enough} could)"
    )


def _badges(study: Study) -> tuple[str, ...]:
    badges = [
        f"{plural(len(study.problems), 'problem')} found" if study.problems else "no leak found"
    ]
    if study.configuration is not None:
        badges.append(f"one configuration {study.configuration[:12]} in all conditions")
    if study.permutations is not None:
        badges.append(f"permutation p = {study.permutations.p_value:.3g}")
    badges.append(plural(study.settings.seeds, "seed"))
    return tuple(badges)


_MARKS = {"problem": "PROBLEM", "good": "found", "note": "note"}


def write_text(study: Study, console: Console) -> None:
    """The answer in one sentence, then what it rests on."""
    console.print(printable(lead(study)), style="bold", soft_wrap=True)
    console.print()
    console.print(_table(study))
    console.print(
        "Errors against the labels given (training) and the true ones (test); in brackets "
        f"{100 * study.settings.confidence:g} % intervals.",
        soft_wrap=True,
    )
    console.print()
    for finding in study.findings:
        text = f"{_MARKS[finding.level]:8}{finding.name}: {finding.text}"
        console.print(printable(text), soft_wrap=True)


def _table(study: Study) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("training data", no_wrap=True)
    headings = ["training", "test error", "fitted after"]
    if study.certificates:
        headings.append("certified")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    certified = {entry.condition: entry for entry in study.certificates}
    for entry in study.conditions:
        certificate = certified.get(entry.name)
        promise = None if certificate is None else certificate.risk_upper
        cells = [
            printable(entry.name),
            f"{100 * entry.train_error.value:.1f} %",
            entry.test_error.text(),
            _fitting(entry),
        ]
        if study.certificates:
            cells.append("-" if promise is None else shown_up(promise))
        table.add_row(*cells)
    return table


def _fitting(entry: ConditionResult) -> str:
    if entry.fitting != "fit":
        return {"learning rate exhausted": "rate exhausted"}.get(entry.fitting, entry.fitting)
    if entry.fit_epochs is None:
        return "fitted"
    epochs = f"{entry.fit_epochs.value:.0f} epochs"
    if entry.relative_time is None or entry.name == "true":
        return epochs
    return f"{epochs} ({entry.relative_time.value:.1f} x)"
