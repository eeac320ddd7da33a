"""The table of ``nonvacuous runs`` in a terminal: as many columns as there is room for.

A number is shown whole or not at all; a long name loses its middle. What has no room is left out,
and the caller says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nonvacuous.cli.output import result_console

#: Columns that are upper bounds, also inside an expression such as min(risk_upper).
_BOUND = re.compile(r"(?<![A-Za-z0-9_])(risk_upper|twin)(?![A-Za-z0-9_])")
#: Texts keep at least so many letters, and the spaces and lines of a table take so many a column.
_LEAST, _FIRST, _BETWEEN = 12, 20, 3
#: Kept before others where room is scarce, although it stands last: why a run failed.
_URGENT, _PLACE = "error", 3


def print_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, known: Sequence[str] | None
) -> list[str]:
    """Print the table; return the columns that had no room.

    ``known`` are the columns of the table of runs where the rows answer a question in SQL: any
    other column may hold a bound under another name, and is printed with every digit.
    """
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    from nonvacuous.report.terminal import printable
    from nonvacuous.report.wording import shortened

    cells = {
        name: [printable(shown(name, row.get(name), known=known)) for row in rows]
        for name in columns
    }
    numeric = {name: _is_numeric([row.get(name) for row in rows]) for name in columns}
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
    for number in range(len(rows)):
        table.add_row(
            *(Text(shortened(cells[name][number], width)) for name, width in widths.items())
        )
    console.print(table)
    return [name for name in columns if name not in widths]


def fitted(natural: Mapping[str, int], numeric: Mapping[str, bool], *, room: int) -> dict[str, int]:
    """A width for every column that has room, in their order; numbers have theirs whole.

    ``natural`` are the widths that nothing would be cut at.

    >>> fitted({"name": 40, "x": 6, "y": 6}, {"name": False, "x": True, "y": True}, room=34)
    {'name': 22, 'x': 6}
    """
    names = list(natural)
    if _URGENT in names[_PLACE + 1 :]:
        names.remove(_URGENT)
        names.insert(_PLACE, _URGENT)
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
            from nonvacuous.bounds.rounding import shown_up

            return shown_up(value)
        return f"{value:.6g}" if known is None or name in known else repr(value)
    return str(value)


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) or value is None for value in values)
