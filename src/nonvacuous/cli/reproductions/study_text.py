"""A study's table on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nonvacuous.cli.output import result_console

if TYPE_CHECKING:
    from nonvacuous.report.study import Table


def write_table(shown: Table, *, note: str = "") -> None:
    """Print the table with its caption, and a note below it."""
    from rich.table import Table as RichTable

    console = result_console()
    table = RichTable(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column, heading in enumerate(shown.headings):
        table.add_column(heading, justify="right" if shown.is_numeric(column) else "left")
    for row in shown.rows:
        table.add_row(*row)
    console.print(table)
    for text in (shown.caption, note):
        if text:
            console.print(text, soft_wrap=True)
