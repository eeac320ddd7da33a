"""A site of many runs: one sortable table, and one page for each certificate. Works from file://."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from nonvacuous import __version__
from nonvacuous.comparison import compare
from nonvacuous.errors import BadInput
from nonvacuous.records import OTHERS_LINE
from nonvacuous.report import html, view, write_report
from nonvacuous.report.measured import SHORT
from nonvacuous.report.view import Mark
from nonvacuous.report.wording import clean, nats, percent, percent_up, shortened
from nonvacuous.study.runs import Run, columns_of

INDEX, PAGES = "index.html", "certificates"
#: What else a certificate says of itself.
_FURTHER = {
    "training_error": "Training error",
    "kl_nats": "KL, nats",
    "parameters": "Parameters",
    "examples": "Examples",
    "mode": "Mode",
    "predictor": "Predictor",
    "bound": "Bound",
    "confidence": "Confidence",
    "baseline": "Largest class",
}
#: Said by the name, by other columns or by the page of the certificate.
_ELSEWHERE = ("name", "state", "error", "tested", "vacuous", "empirical_risk", "architecture")
#: Without certificates the table shows at most so many results and, with them, settings.
_RESULTS, _COLUMNS = 4, 6
#: Settings that differ, with certificates; with more columns the table scrolls in its own box.
_VARIED, _WIDE = 16, 8
#: Behind the table: at most so many columns, of however many there may be.
_BEHIND = 24


@dataclass(frozen=True)
class Column:
    """``kind``: name, promise (with its strip), status, number or text."""

    name: str
    title: str
    kind: str


#: What decides between certificates, after the promise; the first is there without any, too.
_DECISIVE = (
    Column("status", "Status", "status"),
    Column("twin", "Held-out twin", "number"),
    Column("test_error", "Test error", "number"),
    Column("data", "Data", "text"),
    Column("model", "Model", "text"),
)


def columns(
    runs: Sequence[Run], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[Column], list[Column], list[Column]]:
    """Those shown in the table, those behind it, and those equal in all runs: said once."""
    certified = [row for run, row in zip(runs, rows, strict=True) if run.certificate is not None]
    asked = dict.fromkeys(name for run in runs for name in (*run.settings, "seed"))
    names = dict.fromkeys([*asked, *columns_of(rows)])
    shown = [Column("name", "Run", "name")]
    if certified:
        shown.append(Column("risk_upper", "Certificate", "promise"))
    decisive = _DECISIVE if certified else _DECISIVE[:1]
    taken = {column.name for column in (*shown, *decisive)}
    same: list[Column] = []
    for column in decisive:
        if column.kind == "text" and _constant(column.name, certified):
            same.append(column)
        elif any(row.get(column.name) is not None for row in rows):
            shown.append(column)
    titles = {name: title for name, title in _FURTHER.items() if name in names}
    titles |= {name: clean(name) for name in names if name not in titles}
    titles["seconds"] = "Seconds"
    rest: list[Column] = []
    for name, title in titles.items():
        empty = all(row.get(name) is None for row in rows)
        if name in taken or name in _ELSEWHERE or empty:
            continue
        column = Column(name, title, _kind(name, rows))
        own = certified if name in _FURTHER else rows
        (same if _constant(name, own) else rest).append(column)
    settings = [column for column in rest if column.name in asked]
    if certified:  # what was varied is what is compared
        shown += [column for column in settings if _varied(column.name, rows)][:_VARIED]
    else:
        results = [column for column in rest if column.name not in (*asked, "seconds")][:_RESULTS]
        shown += [*results, *settings][:_COLUMNS]
    return shown, [column for column in rest if column not in shown], same


def _constant(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all of several rows have it, and have the same."""
    values = [row.get(name) for row in rows]
    return len(values) > 1 and None not in values and len({repr(value) for value in values}) == 1


def _varied(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    return len({repr(row[name]) for row in rows if row.get(name) is not None}) > 1


def _kind(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    values = [row.get(name) for row in rows if row.get(name) is not None]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return "number" if numbers and values else "text"


_PERCENT = ("test_error", "training_error", "baseline")
_PROMISE = "risk_upper"
_PERCENT_UP = (_PROMISE, "twin")
#: What only a certificate may say: a function's result of this name is shown as its own.
_PROMISED = ("status", "vacuous", *_PERCENT_UP)
_LETTERS = 60


@dataclass(frozen=True)
class Entry:
    """What is shown, and what is sorted by; no key: there is nothing."""

    text: str
    key: float | int | str | None
    note: str = ""


@dataclass(frozen=True)
class Row:
    """One run. ``words`` say what its strip shows."""

    name: str
    link: str | None
    error: str
    promised: float | None
    marks: tuple[Mark, ...]
    words: str
    entries: Mapping[str, Entry]


@dataclass(frozen=True)
class Table:
    """What the page tells of. ``columns`` are in the table, ``behind`` in the one after.

    same      names and values of what is equal in all of them
    left_out  how many columns there are besides
    """

    title: str
    runs: tuple[Run, ...]
    columns: tuple[Column, ...]
    behind: tuple[Column, ...]
    same: tuple[str, ...]
    left_out: int
    rows: tuple[Row, ...]

    @property
    def scrolls(self) -> bool:
        """Whether the table is wider than a screen."""
        return len(self.columns) > _WIDE

    @property
    def shared(self) -> int:
        """Among how many certificates the confidence is shared: the fewest that one of them says.

        What its ledger spends on others tells.
        """
        shares = []
        for run in self.runs:
            if run.certificate is not None and run.figures["risk_upper"] is not None:
                budget = run.certificate.budget
                others = sum(e.failure for e in budget.entries if e.name == OTHERS_LINE)
                shares.append(round(budget.failure / (budget.failure - others)))
        return min(shares)


def table(runs: Sequence[Run], *, title: str, links: Mapping[str, str]) -> Table:
    """The table of these runs; ``links`` leads from names to pages."""
    runs = sorted(runs, key=_rank)
    marks = [view.marks_of(run.certificate) if run.certificate is not None else () for run in runs]
    plain = [_values(run, own) for run, own in zip(runs, marks, strict=True)]
    shown, behind, same = columns(runs, plain)
    left_out, behind = len(behind[_BEHIND:]), behind[:_BEHIND]
    rows = []
    for run, row, own in zip(runs, plain, marks, strict=True):
        # The promise is drawn last: where marks touch, it stays on top.
        ordered = tuple(sorted(own, key=lambda mark: mark.kind == "certificate"))
        rows.append(
            Row(
                clean(run.name),
                link=links.get(run.name),
                error=shortened(clean(run.error), 300),
                promised=view.promised_on(ordered),
                marks=ordered,
                words=view.in_words(ordered),
                entries={c.name: _entry(c.name, row, own) for c in (*shown, *behind)},
            )
        )
    return Table(
        title=clean(title),
        runs=tuple(runs),
        columns=tuple(shown),
        behind=tuple(behind),
        same=tuple(_said_once(column, plain) for column in same),
        left_out=left_out,
        rows=tuple(rows),
    )


def _rank(run: Run) -> tuple[int, float]:
    """Best first: valid promises by their number, then conditional ones, then all the others."""
    promised = run.figures.get("risk_upper") if run.certificate is not None else None
    if run.certificate is None or promised is None:
        return 2, 0.0
    return int(run.certificate.status != "valid"), promised


def _values(run: Run, marks: Sequence[Mark]) -> dict[str, Any]:
    """A run's row. Only a certificate fills the columns of promises."""
    row = run.row()
    if run.certificate is None:
        row = {f"result_{k}" if k in _PROMISED else k: value for k, value in row.items()}
        row["status"] = run.state
        return row
    # What a bound starts from is not always the network's own error: the strip shows the latter.
    row["training_error"] = next((m.value for m in marks if m.kind == "training"), None)
    return row


def _said_once(column: Column, rows: Sequence[Mapping[str, Any]]) -> str:
    row = next(row for row in rows if row.get(column.name) is not None)
    return f"{column.title.lower()} {_entry(column.name, row).text}"


def _entry(name: str, row: Mapping[str, Any], marks: Sequence[Mark] = ()) -> Entry:
    value = row.get(name)
    if value is None:
        return Entry("", None)
    if isinstance(value, bool):
        return Entry("yes" if value else "no", "yes" if value else "no")
    if isinstance(value, int | float):
        # The promise reads as on its page: a declared threshold is not rounded.
        promised = (mark.text for mark in marks if (mark.kind, name) == ("certificate", _PROMISE))
        return Entry(next(promised, _number(name, value)), repr(value), _note(name, row))
    text = clean(value if isinstance(value, str) else str(value))
    return Entry(shortened(text, _LETTERS), text)


def _note(name: str, row: Mapping[str, Any]) -> str:
    """What a number must not be read without."""
    if name == "risk_upper" and row.get("vacuous"):
        return "not shown better than one class"
    other = row.get("tested") not in (None, SHORT.get(str(row.get("predictor"))))
    return str(row["tested"]) if name == "test_error" and other else ""


def _number(name: str, value: float) -> str:
    if name in _PERCENT_UP:
        return f"≤ {percent_up(value)}"
    # A function may call something a test error that is no frequency.
    if name in _PERCENT and 0.0 <= value <= 1.0:
        return percent(value)
    if name == "kl_nats":
        return nats(value)
    if name == "seconds":
        return f"{value:,.1f}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Site:
    """Where the site lies. ``pages``: one for each certificate."""

    index: Path
    pages: tuple[Path, ...]


def write_site(
    runs: Sequence[Run],
    folder: str | os.PathLike[str],
    *,
    title: str,
    progress: Callable[[str, int, int, str], None] | None = None,
) -> Site:
    """Write index.html and certificates/*.html into a folder, replacing an older site there."""
    target = Path(folder)
    index = target / INDEX
    if index.exists() and b'content="nonvacuous ' not in index.read_bytes()[:4000]:
        raise BadInput(
            f"{index} was not written by nonvacuous and is not overwritten; move it away, or "
            "collect the runs in another folder."
        )
    certified = [run for run in runs if run.certificate is not None]
    pages = {run.name: target / PAGES / page_name(run.name) for run in certified}
    for number, run in enumerate(certified, start=1):
        assert run.certificate is not None
        other = None if run.certificate.evaluation else compare(run.certificate)
        pages[run.name].parent.mkdir(parents=True, exist_ok=True)
        write_report(run.certificate, pages[run.name], comparison=other, run_folder=run.folder)
        if progress is not None:
            progress("pages", number, len(certified), "")
    links = {name: f"{PAGES}/{quote(page.name)}" for name, page in pages.items()}
    # The table comes last: it never links to a page that is not there yet.
    html.write(render(table(runs, title=title, links=links)), index)
    return Site(index, tuple(pages.values()))


def render(shown: Table) -> str:
    """The text of the index. What comes from data is escaped."""
    script = html.page("site.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return html.page(
        "site.html.jinja",
        site=shown,
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        generator=f"nonvacuous {__version__}",
    )


def page_name(name: str) -> str:
    """A file name for the page of a run, whatever letters the run's name has.

    >>> page_name("a/<b>")
    'a-b-428d8a50d9.html'
    """
    words = re.sub(r"[^A-Za-z0-9._=,]+", "-", name).strip("-.")[:80]
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:10]
    return f"{words}-{digest}.html" if words else f"{digest}.html"
