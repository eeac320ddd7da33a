"""``nonvacuous runs``: the table of runs below a folder, filtered, ordered, or asked in SQL."""

from __future__ import annotations

import csv as csv_module
import io
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from nonvacuous.cli.exits import DONE, CommandError, UsageError
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.output import narration_console, write_json, write_next
from nonvacuous.errors import BadInput
from nonvacuous.report.terminal import printable

#: What a terminal has room for, where a run has them; then the settings in which runs differ.
_SHOWN = ("name", "state", "status", "risk_upper", "twin", "test_error")
_MORE_COLUMNS = 6
_SEVERAL = Parameter(consume_multiple=False, negative=(), show_default=False)


def runs(
    folder: Path = Path("runs"),
    /,
    *,
    state: Literal["done", "failed", "running", "unfinished", "waiting", "invalid"] | None = None,
    where: Annotated[tuple[str, ...], _SEVERAL] = (),
    sort: str | None = None,
    reverse: Annotated[bool, SWITCH] = False,
    columns: str | None = None,
    limit: OptionalWholeNumber = None,
    sql: str | None = None,
    csv: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """List every run below a folder, finished or not, and choose among them.

    Parameters
    ----------
    folder
        A folder with run folders in it, such as that of a sweep.
    state
        Only runs in this state. invalid: the certificate contradicts itself.
    where
        Only runs that meet a condition, such as risk_upper<0.1, model=mlp:64 or name~seed. Give it
        several times for several conditions.
    sort
        The column to order by, smallest first.
    reverse
        With --sort: largest first.
    columns
        The columns to show, separated by commas; all shows every one.
    limit
        How many runs to show at most.
    sql
        A question in SQL about the table runs, such as "select model, min(risk_upper) from runs
        group by model". Needs the package duckdb.
    csv
        Print the table as comma-separated values, every column.
    """
    if csv and json:
        raise UsageError("--csv and --json are two forms of the same table: give one of them.")
    if reverse and sort is None:
        raise UsageError("--reverse turns the order of --sort around: give both.")
    if limit is not None and limit < 0:
        raise UsageError("--limit is 0 or more.")
    from nonvacuous.study.runs import columns_of, read_runs
    from nonvacuous.study.runs_filter import ordered, select

    rows: Sequence[Mapping[str, Any]]
    try:
        everything = read_runs(folder)
        asked = dict.fromkeys(name for run in everything for name in (*run.settings, "seed"))
        found_only = dict.fromkeys(
            name for run in everything if run.certificate is None for name in run.figures
        )
        rows = [run.row() for run in everything]
        names = columns_of(rows)
        if not rows:
            raise CommandError(f"{folder} holds no run.", next_command="nonvacuous sweep --help")
        found = len(rows)
        rows = select(rows, [*([f"state={state}"] if state else []), *where])
        if sql is not None:
            from nonvacuous.study.runs_sql import query

            rows = query(rows, sql)
        if sort is not None and rows:
            rows = ordered(rows, sort, reverse=reverse)
        rows = rows[:limit]
        shown = _columns(
            rows,
            columns,
            interesting=[*asked, *found_only],
            everything=sql is not None or csv or json,
        )
    except CommandError:
        raise
    except BadInput as error:
        raise CommandError(
            str(error), next_command=shlex.join(["nonvacuous", "runs", str(folder), "--json"])
        ) from error
    _write(rows, shown, folder, csv=csv, json=json, known=None if sql is None else names)
    if not (csv or json or sql):
        narration_console().print(f"{len(rows):,} of {found:,} runs", soft_wrap=True)
        write_next(shlex.join(["nonvacuous", "report", str(folder)]))
    return DONE


def _columns(
    rows: Sequence[Mapping[str, Any]],
    asked: str | None,
    *,
    interesting: Sequence[str],
    everything: bool,
) -> list[str]:
    """Those asked for; else what certificates are judged by, and in what the runs differ."""
    from nonvacuous.study.runs import columns_of
    from nonvacuous.study.runs_filter import known

    names = columns_of(rows)
    if asked == "all" or (asked is None and everything):
        return names
    if asked is not None:
        return [known(name.strip(), names) for name in asked.split(",") if name.strip()]
    told = [name for name in _SHOWN if any(row.get(name) is not None for row in rows)]
    if all(row.get("state") == "done" and row.get("status") for row in rows) and rows:
        told.remove("state")  # the status of a certificate says it
    if any(_of_another(row) for row in rows):
        told.insert(told.index("test_error") + 1, "tested")
    differing = [
        name
        for name in interesting
        if name not in told and len({repr(row.get(name)) for row in rows}) > 1
    ]
    last = [
        name
        for name in ("empirical_risk", "error")
        if name not in differing and any(row.get(name) is not None for row in rows)
    ]
    return [*told, *differing[:_MORE_COLUMNS], *last]


def _of_another(row: Mapping[str, Any]) -> bool:
    """Whether the test error is that of another predictor than the certified one."""
    from nonvacuous.report.measured import SHORT

    return row.get("tested") not in (None, SHORT.get(str(row.get("predictor"))))


def _write(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    folder: Path,
    *,
    csv: bool,
    json: bool,
    known: Sequence[str] | None,
) -> None:
    if json:
        chosen = [{name: row.get(name) for name in columns if name in row} for row in rows]
        write_json({"folder": str(folder), "runs": chosen})
    elif csv:
        text = io.StringIO()
        writer = csv_module.writer(text, lineterminator="\n")
        writer.writerow([_cell(name) for name in columns])
        writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
        sys.stdout.write(text.getvalue())
    else:
        from nonvacuous.cli.runs_table import print_table

        left_out = print_table(rows, columns, known=known)
        if left_out:
            narration_console().print(
                f"No room for {', '.join(left_out)}: --csv and --json have every column, "
                "--columns chooses, and a wider terminal or a file shows more.",
                soft_wrap=True,
            )


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula stays a text."""
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else text
    return "" if value is None else value
