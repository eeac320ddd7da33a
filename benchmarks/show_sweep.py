"""The section of docs/results.md on sweeps and their site."""

from __future__ import annotations

from statistics import median
from typing import Any


def section(results: dict[str, dict[str, Any]]) -> str:
    """The cost of an empty cell by engine, beside a plain loop that took turns with them."""
    found = results["sweep"]
    site = found["site"]
    loop = found["loop_milliseconds_per_cell"]
    parts = [
        "## Sweeps",
        "",
        f"{found['cells']:,} cells that compute nothing: what is left is the cost of a cell, with "
        "its folder, lock, durable record and place in the queue. The plain loop writes an equally "
        "durable file per call, all into one folder. Waiting for the disk is most of it and varies "
        "with what else the machine does: loop and engines took turns, and medians of "
        f"{len(loop)} rounds stand here with the smallest and largest. Starting an engine is not "
        "in its time per cell.",
        "",
        "| engine | ms per cell | start, s | ms per cell when all had ended |",
        "|---|---|---|---|",
        f"| plain loop, no engine | {_spread(loop, 2)} | – | – |",
    ]
    for entry in found["engines"]:
        parts.append(
            f"| {entry['engine']} | {_spread(entry['milliseconds_per_cell'], 2)} | "
            f"{_spread(entry['start_seconds'], 1)} | "
            f"{_spread(entry['nothing_left_milliseconds_per_cell'], 2)} |"
        )
    parts += [
        "",
        f"The site of {site['runs']} runs, one page for each certificate, is written in "
        f"**{site['seconds']:.1f} s** (goal: 20 s); its table is a file of "
        f"{site['index_bytes'] / 1e6:.1f} MB.",
    ]
    return "\n".join(parts)


def _spread(values: list[float], digits: int) -> str:
    low, high = min(values), max(values)
    return f"{median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
