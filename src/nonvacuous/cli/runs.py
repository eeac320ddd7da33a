"""``nonvacuous runs``: the table of runs below a folder, filtered, ordered, or asked in SQL."""

from __future__ import annotations

import csv as csv_module
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.cli.exits import DONE, CommandError, UsageError, command
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.output import result_console, say, write_json, write_next
from nonvacuous.errors import BadInput
from nonvacuous.report.wording import plural, printable, shortened

#: Columns that are upper bounds, also inside an expression such as min(risk_upper).
_BOUND = re.compile(r"(?<![A-Za-z0-9_])(risk_upper|twin)(?![A-Za-z0-9_])")
#: Texts keep at least so many letters, and the spaces and lines of a table take so many a column.
_LEAST, _FIRST, _BETWEEN = 12, 20, 3
#: Kept before others where room is scarce, although it stands last: why a run failed.
_URGENT, _POSITION = "error", 3


def print_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, known: Sequence[str] | None
) -> list[str]:
    """Print the table; return the columns that had no room.

    ``known`` are the columns of the table of runs where the rows answer a question in SQL: any
    other column may hold a bound under another name, and is printed with every digit.
    """
    cells = {
        name: [printable(_shown_in(row, name, known=known)) for row in rows] for name in columns
    }
    numeric = {
        name: all(isinstance(row.get(name), int | float | None) for row in rows) for name in columns
    }
    natural = {
        name: max(map(cell_len, [printable(name), *cells[name]]), default=0) for name in columns
    }
    console = result_console()
    if not console.is_terminal:
        # A file or a pipe has no width: lines are as long as they must be.
        console.width = 10_000
    widths = fitted(natural, numeric, room=console.width)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, width in widths.items():
        table.add_column(
            Text(shortened(printable(name), width)),
            justify="right" if numeric[name] else "left",
            min_width=width,
            max_width=width,
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in zip(*(cells[name] for name in widths), strict=True):
        table.add_row(*map(Text, map(shortened, row, widths.values())))
    console.print(table)
    return [name for name in columns if name not in widths]


def fitted(natural: Mapping[str, int], numeric: Mapping[str, bool], *, room: int) -> dict[str, int]:
    """A width for every column that has room, in their order; numbers have theirs whole.

    ``natural`` are the widths that nothing would be cut at.

    >>> fitted({"name": 40, "x": 6, "y": 6}, {"name": False, "x": True, "y": True}, room=34)
    {'name': 22, 'x': 6}
    """
    names = list(natural)
    if _URGENT in names[_POSITION + 1 :]:
        names.remove(_URGENT)
        names.insert(_POSITION, _URGENT)
    least = {
        name: width if numeric[name] else min(width, _FIRST if name == names[0] else _LEAST)
        for name, width in natural.items()
    }
    kept: list[str] = []
    left = room
    for name in names:
        if not kept or least[name] + _BETWEEN <= left:
            kept.append(name)
            left -= least[name] + _BETWEEN
    widths = {name: least[name] for name in natural if name in kept}
    # What is left over goes to the texts, the first one first: it is the name.
    for name in widths:
        more = max(0, min(natural[name] - widths[name], left))
        widths[name] += more
        left -= more
    return widths


def shown(name: str, value: Any, *, known: Sequence[str] | None = None) -> str:
    """A value in words. A bound is rounded up; what may be one under another name keeps all digits.

    >>> shown("risk_upper", 0.24752), shown("min(risk_upper)", 0.24752, known=["risk_upper"])
    ('0.2476', '0.2476')
    >>> shown("best", 0.24752229752899155, known=["risk_upper"])
    '0.24752229752899155'
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if _BOUND.search(name):
            return shown_up(value)
        return f"{value:.6g}" if known is None or name in known else repr(value)
    return str(value)


def _shown_in(row: Mapping[str, Any], name: str, *, known: Sequence[str] | None) -> str:
    """A value in words beside the others of its run: a threshold is shown as it was declared."""
    value = row.get(name)
    if name == "risk_upper" and row.get("gate") == "passed" and isinstance(value, float):
        return f"< {value!r}"
    return shown(name, value, known=known)


#: What a terminal has room for, where a run has them; then the settings in which runs differ.
_SHOWN = ("name", "state", "status", "gate", "risk_upper", "twin", "test_error")
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

    Args:
        folder: A folder with run folders in it, such as that of a sweep.
        state: Only runs in this state. invalid: the certificate contradicts itself.
        where: Only runs that meet a condition, such as risk_upper<0.1, model=mlp:64 or name~seed.
            Give it several times for several conditions.
        sort: The column to order by, smallest first.
        reverse: With --sort: largest first.
        columns: The columns to show, separated by commas; all shows every one.
        limit: How many runs to show at most.
        sql: A question in SQL about the table runs, such as "select model, min(risk_upper) from
            runs group by model". Needs the package duckdb.
        csv: Print the table as comma-separated values, every column.
    """
    if csv and json:
        raise UsageError("--csv and --json are two forms of the same table: give one of them.")
    if reverse and sort is None:
        raise UsageError("--reverse turns the order of --sort around: give both.")
    if limit is not None and limit < 0:
        raise UsageError("--limit is 0 or more.")
    from nonvacuous.study.runs import columns_of, ordered, query, read_runs, select

    rows: Sequence[Mapping[str, Any]]
    everything = read_runs(folder)
    if not everything:
        raise CommandError(f"{folder} holds no run.", instead="nonvacuous sweep --help")
    try:
        interesting = [name for run in everything for name in (*run.settings, "seed")]
        interesting += [n for run in everything if run.certificate is None for n in run.figures]
        rows = [run.row() for run in everything]
        names = columns_of(rows)
        rows = select(rows, [*([f"state={state}"] if state else []), *where])
        if sql is not None:
            rows = query(rows, sql)
        if sort is not None and rows:
            rows = ordered(rows, sort, reverse=reverse)
        rows = rows[:limit]
        shown = _columns(
            rows,
            columns,
            interesting=list(dict.fromkeys(interesting)),
            everything=sql is not None or csv or json,
        )
    except BadInput as error:
        error.instead = command("runs", folder, "--json")
        raise
    if json:
        chosen = [{name: row.get(name) for name in shown if name in row} for row in rows]
        write_json({"folder": str(folder), "runs": chosen})
    elif csv:
        writer = csv_module.writer(sys.stdout, lineterminator="\n")
        writer.writerow([_cell(name) for name in shown])
        writer.writerows([_cell(row.get(name)) for name in shown] for row in rows)
    elif left_out := print_table(rows, shown, known=None if sql is None else names):
        say(
            f"No room for {', '.join(left_out)}: --csv and --json have every column, "
            "--columns chooses, and a wider terminal or a file shows more."
        )
    if not (csv or json or sql):
        say(f"{len(rows):,} of {plural(len(everything), 'run')}")
        write_next(command("report", folder))
    return DONE


def _columns(
    rows: Sequence[Mapping[str, Any]],
    asked: str | None,
    *,
    interesting: Sequence[str],
    everything: bool,
) -> list[str]:
    """Those asked for; else what certificates are judged by, and in what the runs differ."""
    from nonvacuous.report.measured import SHORT
    from nonvacuous.study.runs import columns_of, known

    names = columns_of(rows)
    if asked == "all" or (asked is None and everything):
        return names
    if asked is not None:
        return [known(name.strip(), names) for name in asked.split(",") if name.strip()]
    shown = [name for name in _SHOWN if any(row.get(name) is not None for row in rows)]
    if all(row.get("state") == "done" and row.get("status") for row in rows) and rows:
        shown.remove("state")  # the status of a certificate says it
    # Where the test error is that of another predictor than the certified one.
    if any(row.get("tested") not in (None, SHORT.get(str(row.get("predictor")))) for row in rows):
        shown.insert(shown.index("test_error") + 1, "tested")
    differing = [
        name
        for name in interesting
        if name not in shown and len({repr(row.get(name)) for row in rows}) > 1
    ]
    last = [
        name
        for name in ("empirical_risk", "error")
        if name not in differing and any(row.get(name) is not None for row in rows)
    ]
    return [*shown, *differing[:_MORE_COLUMNS], *last]


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula stays a text."""
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else text
    return "" if value is None else value
