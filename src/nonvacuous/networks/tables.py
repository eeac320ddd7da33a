"""Plain-text tables for graphs and groups."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of left-aligned text under a header and a rule."""
    widths = [max(len(row[k]) for row in (header, *rows)) for k in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
