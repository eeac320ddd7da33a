"""Which columns the table of a site has: the few that decide, those behind them, and none twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nonvacuous.report.wording import clean
from nonvacuous.study.runs import Run

#: What decides between certificates, after the name and the promise: column, title, kind.
_DECISIVE = (
    ("status", "Status", "status"),
    ("twin", "Held-out twin", "number"),
    ("test_error", "Test error", "number"),
    ("data", "Data", "text"),
    ("model", "Model", "text"),
)
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
#: Told by the name, by other columns or by the page of the certificate.
_TOLD = ("name", "state", "error", "tested", "vacuous", "empirical_risk", "architecture")
#: Without certificates the table shows at most so many results and, with them, settings.
_RESULTS, _COLUMNS = 4, 6
#: Behind the table: at most so many columns, of however many there may be.
_BEHIND = 24


@dataclass(frozen=True)
class Column:
    """``kind``: name, promise (with its strip), status, number or text."""

    name: str
    title: str
    kind: str


@dataclass(frozen=True)
class Columns:
    """``shown`` in the table, ``behind`` it, and ``same``: equal in all runs, so said once.

    ``left_out`` counts those for which a page is no place.
    """

    shown: tuple[Column, ...]
    behind: tuple[Column, ...]
    same: tuple[Column, ...]
    left_out: int


def columns(runs: Sequence[Run], rows: Sequence[Mapping[str, Any]]) -> Columns:
    """The columns for these runs and their rows, of equal length."""
    certified = [row for run, row in zip(runs, rows, strict=True) if run.certificate is not None]
    asked = dict.fromkeys(name for run in runs for name in (*run.settings, "seed"))
    found = dict.fromkeys(name for row in rows for name in row if name not in asked)
    shown = [Column("name", "Run", "name")]
    same: list[Column] = []
    taken = {"status"}
    if certified:
        shown.append(Column("risk_upper", "Certificate", "promise"))
        taken |= {"risk_upper"}
        for name, title, kind in _DECISIVE:
            column = Column(name, title, kind)
            taken.add(name)
            if kind == "text" and _constant(name, certified):
                same.append(column)
            elif any(row.get(name) is not None for row in rows):
                shown.append(column)
    else:
        shown.append(Column("status", "Status", "status"))
    titles = {name: title for name, title in _FURTHER.items() if name in found or name in asked}
    titles |= {name: clean(name) for name in (*asked, *found) if name not in titles}
    titles["seconds"] = "Seconds"
    rest: list[Column] = []
    for name, title in titles.items():
        if name in taken or name in _TOLD or not any(row.get(name) is not None for row in rows):
            continue
        column = Column(name, title, _kind(name, rows))
        own = certified if name in _FURTHER else rows
        (same if _constant(name, own) else rest).append(column)
    if not certified:
        results = [column for column in rest if column.name not in (*asked, "seconds")][:_RESULTS]
        settings = [column for column in rest if column.name in asked]
        shown += [*results, *settings][:_COLUMNS]
    behind = [column for column in rest if column not in shown]
    left_out = len(behind[_BEHIND:])
    return Columns(tuple(shown), tuple(behind[:_BEHIND]), tuple(same), left_out)


def _constant(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all of several rows have it, and have the same."""
    values = [row.get(name) for row in rows]
    return len(values) > 1 and None not in values and len({repr(value) for value in values}) == 1


def _kind(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    values = [row.get(name) for row in rows if row.get(name) is not None]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return "number" if numbers and values else "text"
