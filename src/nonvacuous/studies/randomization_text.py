"""What ``nonvacuous randomize`` prints: the answer, a table, and the findings."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.randomization.results import ConditionResult, Study
from nonvacuous.report.terminal import printable
from nonvacuous.studies.randomization_page import lead

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
