"""The table of a site in words: which columns, which marks, and what is said about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nonvacuous.experiments.runs import Run
from nonvacuous.report import view
from nonvacuous.report.view import Mark
from nonvacuous.report.wording import (
    clean,
    frequency,
    nats,
    percent,
    percent_up,
    plural,
    shortened,
    whole,
)

#: What certificates are compared by: column, title.
_CERTIFIED = (
    ("risk_upper", "Certificate"),
    ("twin", "Held-out twin"),
    ("test_error", "Test error"),
    ("empirical_risk", "Training error"),
    ("kl_nats", "KL, nats"),
)
_PERCENT = ("test_error", "empirical_risk", "guessing")
_PERCENT_UP = ("risk_upper", "twin")
#: Settings in which runs differ, and results of runs without a certificate: at most so many each.
_MOST = 8
_LETTERS = 60
#: Columns that are there in any case, or that the name and the status say better.
_KNOWN = ("name", "state", "status", "seed", "seconds", "error")
_LEGEND = (
    Mark("training", "Training error", 0.0, ""),
    Mark("test", "Test error", 0.0, "", "not part of the promise"),
    Mark("twin", "Held-out twin", 0.0, ""),
    Mark("certificate", "Certificate", 0.0, ""),
    Mark("guessing", "Guessing", 0.0, ""),
)


@dataclass(frozen=True)
class Column:
    """``kind``: name, strip, number or text; all but the strip can be sorted by."""

    name: str
    title: str
    kind: str


@dataclass(frozen=True)
class Entry:
    """What is shown, and what is sorted by; no key: there is nothing."""

    text: str
    key: float | int | str | None


@dataclass(frozen=True)
class Row:
    """One run. ``told`` says in words what its strip shows."""

    name: str
    link: str | None
    error: str
    promised: float | None
    marks: tuple[Mark, ...]
    told: str
    entries: Mapping[str, Entry] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        run: Run,
        *,
        marks: Sequence[Mark] = (),
        link: str | None = None,
        entries: Mapping[str, Entry] | None = None,
    ) -> Row:
        """The row of a run with these marks on its strip."""
        # The promise is drawn last: where marks touch, it stays on top.
        ordered = tuple(sorted(marks, key=lambda mark: mark.kind == "certificate"))
        promised = next((mark.value for mark in ordered if mark.kind == "certificate"), None)
        words = "; ".join(f"{mark.name} {mark.text}" for mark in ordered)
        told = f"On a scale from 0% to 100%: {words}."
        error = shortened(clean(run.error), 300)
        return cls(clean(run.name), link, error, promised, ordered, told, entries or {})


@dataclass(frozen=True)
class Table:
    """Everything that the page says."""

    title: str
    question: str
    lead: str
    badges: tuple[str, ...]
    notes: tuple[str, ...]
    legend: tuple[Mark, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def table(runs: Sequence[Run], *, title: str, links: Mapping[str, str]) -> Table:
    """The table of these runs; ``links`` leads from names to pages."""
    certified = [run for run in runs if run.certificate is not None]
    plain = [run.row() for run in runs]
    for row in plain:
        row["status"] = row.get("status") or row["state"]
    columns = _columns(runs, plain)
    rows = tuple(
        Row.of(
            run,
            marks=view.marks_of(run.certificate) if run.certificate is not None else (),
            link=links.get(run.name),
            entries={c.name: _entry(c.name, row.get(c.name)) for c in columns},
        )
        for run, row in zip(runs, plain, strict=True)
    )
    notes = []
    if len(certified) > 1:
        notes.append(
            "Picking the best of several certificates is a search. What the pick promises holds "
            "where the ledger of its failure probability pays for all of them; the page of each "
            "certificate shows its ledger."
        )
    return Table(
        title=clean(title),
        question="What is promised?" if certified else "What was found?",
        lead=_lead(runs, certified),
        badges=_badges(runs, certified),
        notes=tuple(notes),
        legend=_LEGEND if certified else (),
        columns=columns,
        rows=rows,
    )


def _lead(runs: Sequence[Run], certified: Sequence[Run]) -> str:
    promises = [run for run in certified if run.figures["risk_upper"] is not None]
    if not promises:
        return f"{plural(len(runs), 'run')}, and none of them promises anything."
    best = min(promises, key=lambda run: run.figures["risk_upper"])
    assert best.certificate is not None
    name = shortened(clean(best.name), _LETTERS)
    of = f"the smallest of {plural(len(promises), 'certificate')} is that of {name}"
    if best.certificate.is_vacuous:
        return f"No certificate is better than guessing: {of}."
    if best.certificate.loss.name != "zero-one":
        return f"A mean loss of at most {percent_up(best.figures['risk_upper'])}: {of}."
    return f"Wrong on {frequency(best.figures['risk_upper'])} new examples: {of}."


def _badges(runs: Sequence[Run], certified: Sequence[Run]) -> tuple[str, ...]:
    states = [run.state for run in runs]
    told = [plural(len(runs), "run")]
    if certified:
        told.append(f"{plural(len(certified), 'certificate')}")
        useful = sum(not run.certificate.is_vacuous for run in certified if run.certificate)
        told.append(f"{whole(useful)} non-vacuous")
    for state in ("failed", "running", "unfinished", "waiting", "invalid"):
        if state in states:
            told.append(f"{whole(states.count(state))} {state}")
    return tuple(told)


def _columns(runs: Sequence[Run], rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    certified = any(run.certificate is not None for run in runs)
    columns = [Column("name", "Run", "name")]
    if certified:
        columns.append(Column("strip", "0 to 100%", "strip"))
        columns += [Column(name, text, "number") for name, text in _CERTIFIED]
    asked = dict.fromkeys(name for run in runs for name in run.settings)
    found = dict.fromkeys(
        name
        for run, row in zip(runs, rows, strict=True)
        if run.certificate is None
        for name in row
        if name not in asked and name not in _KNOWN
    )
    for names in (_differing([*asked, "seed"], rows)[:_MOST], list(found)[:_MOST]):
        columns += [Column(name, clean(name), _kind(name, rows)) for name in names]
    columns.append(Column("seconds", "Seconds", "number"))
    columns.append(Column("status", "Status", "text"))
    return tuple(columns)


def _differing(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings in which runs differ; those that most runs have come first."""
    found = [name for name in names if len({repr(row.get(name)) for row in rows}) > 1]
    return sorted(found, key=lambda name: sum(row.get(name) is None for row in rows))


def _kind(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    values = [row.get(name) for row in rows if row.get(name) is not None]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return "number" if numbers and values else "text"


def _entry(name: str, value: Any) -> Entry:
    if value is None:
        return Entry("", None)
    if isinstance(value, bool):
        return Entry("yes" if value else "no", "yes" if value else "no")
    if isinstance(value, int | float):
        return Entry(_number(name, value), repr(value))
    text = clean(value if isinstance(value, str) else str(value))
    return Entry(shortened(text, _LETTERS), text)


def _number(name: str, value: float) -> str:
    if name in _PERCENT_UP:
        return percent_up(value)
    if name in _PERCENT:
        return percent(value)
    if name == "kl_nats":
        return nats(value)
    if name == "seconds":
        return f"{value:,.1f}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
