"""The section of docs/results.md on test reports, beside what one would pick instead."""

from __future__ import annotations

from typing import Any


def section(results: dict[str, dict[str, Any]]) -> str:
    """Intervals of error rates, upper ends of losses, and how long reports and monitors take."""
    found = results["evaluate"]
    lines = [
        "## Test reports",
        "",
        f"95 % intervals of an error rate from 50 examples, {found['worlds']:,} simulated tests at "
        "each of five risks at which 0 to 5 errors are common. Valid: covers often enough at every "
        "one of them. Two-sided; the last two are upper ends.",
        "",
        "| method | least coverage | width at 0 errors | at 1 | at 3 | at 5 | µs |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["intervals"]:
        widths = row["widths at 0 to 5 errors"]
        shown = " | ".join(f"{widths[k]:.4f}" for k in (0, 1, 3, 5))
        lines.append(
            f"| {row['method']} | {_coverage(row)} | {shown} | {row['microseconds']:,.1f} |"
        )
    lines += [
        "",
        f"95 % upper ends of the mean of 400 losses, {found['loss_worlds']:,} simulated tests of "
        "each kind: how far above the measured mean they are. MAPIE's *wsr* adds the largest gains "
        "of the two halves of the losses, which no theorem allows.",
        "",
        "| method | least coverage | skewed losses | thirds | rare ones | µs |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["losses"]:
        shown = " | ".join(f"{v:.4f}" for v in row["mean excess"].values())
        lines.append(
            f"| {row['method']} | {_coverage(row)} | {shown} | {row['microseconds']:,.1f} |"
        )
    lines += ["", "| report from parquet | rows | seconds | MB |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {entry['rows']:,} | {entry['seconds']:.1f} | {entry['megabytes']:.0f} |"
        for name, entry in found["scale"].items()
    ]
    speed = found["monitor"]
    lines += [
        "",
        "Wall seconds on a machine of two cores that others used as well. A monitor takes "
        f"{speed['in batches'] / 1e6:.1f} million labels in batches, and {speed['single']:,.0f} "
        "single ones, per second of processor time.",
    ]
    return "\n".join(lines)


def _coverage(row: dict[str, Any]) -> str:
    return f"{100 * row['least coverage']:.1f} %{'' if row['valid'] else ', not valid'}"
