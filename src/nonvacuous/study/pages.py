"""Tables of studies as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from nonvacuous.report.study import Table


def markdown(table: Table) -> str:
    """A table as Markdown, its caption below it.

    >>> print(markdown(Table(("network", "test"), (("MLP", "50.1"),))))
    | network | test |
    |:---|---:|
    | MLP | 50.1 |
    <BLANKLINE>
    """
    rule = ["---:" if table.is_numeric(column) else ":---" for column in range(len(table.headings))]
    lines = [_line(table.headings), "|" + "|".join(rule) + "|", *map(_line, table.rows)]
    return "\n".join(lines) + "\n" + (f"\n{table.caption}\n" if table.caption else "")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
