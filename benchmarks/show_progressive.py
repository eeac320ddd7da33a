"""The section on progressive certificates of the page of results."""

from __future__ import annotations

import math
from typing import Any


def section(results: dict[str, dict[str, Any]]) -> str:
    parts = ["## Progressive certificates", ""]
    if "progressive-gate" in results:
        parts += _gate(results["progressive-gate"])
    if "progressive-tests" in results:
        parts += ["", *_tests(results["progressive-tests"])]
    return "\n".join(parts)


def _up(value: float) -> str:
    return f"{math.ceil(value * 10_000) / 10_000:.4f}"


def _gate(found: dict[str, Any]) -> list[str]:
    cases = found["cases"]
    lower = sum(case["gate"] <= case["held_out"] for case in cases)
    at_half = sum(case["gate_at_half"] <= case["held_out"] for case in cases)
    said = "higher in every row" if not lower else f"not higher in {lower} of {len(cases)} rows"
    rows = [
        f"| {case['examples']:,} | {case['threshold']:g} | {case['curve']['floor']:.2g} + c a^-"
        f"{case['curve']['slope']:g} | {case['held_out']:.3f} ({case['held_out_share']:g}) | "
        f"**{case['gate']:.3f}** ({case['gate_start']:g}) | {case['gate_at_half']:.3f} |"
        for case in cases
    ]
    return [
        f"The gate (`nv.Progressive(threshold=...)`, {found['batches']} batches) against a "
        "held-out gate on the same examples and the same threshold: the chance to certify, failure "
        f"{found['failure']:g}, on learning curves a ↦ floor + c a^-slope with c such that the "
        "best held-out split passes half of the time. Exact, both at the best share for training "
        f"(in brackets), the gate also simulated with {found['data_sets']:,} data sets. With its "
        f"best first part the gate's chance is {said}. With a first part of one half, the default, "
        f"it is not higher than that of the best held-out split in {at_half} of {len(cases)}: "
        "steep curves want a larger first part, flat ones a smaller one.",
        "",
        "| examples | threshold | curve | held-out gate | gate | gate, first part 0.5 |",
        "|---|---|---|---|---|---|",
        *rows,
    ]


def _tests(found: dict[str, Any]) -> list[str]:
    rows, better, clearly, count = [], 0, 0, 0
    for name, case in found["cases"].items():
        for failure, row in case["failures"].items():
            change = 100 * row["difference"] / row["held_out"]
            error = 100 * row["standard_error"] / row["held_out"]
            better, count = better + (change < 0), count + 1
            clearly += change + 2 * error < 0
            rows.append(
                f"| {name} | {failure} | {_up(row['held_out'])} | {_up(row['progressive'])} | "
                f"{change:+.1f} ± {error:.1f} % | {_up(row['held_out_best_of_each_seed'])} |"
            )
    seeds = next(iter(found["cases"].values()))["seeds"]
    return [
        "The progressive bound (first part "
        f"{found['start']:g}, {found['batches']} batches, tilt from the first part) against plain "
        "held-out tests of the very same checkpoints on all examples after them, at the share that "
        f"is best on average over {seeds} seeds, chosen in hindsight, which favors it. Means and "
        "standard errors of the change. *best of each seed*: the smallest of the five held-out "
        "bounds for each seed, which is no promise. The progressive bound is lower on average in "
        f"{better} of {count} rows, by more than two standard errors in {clearly}; elsewhere the "
        "plain test is as good or better.",
        "",
        "| data | failure | best held-out split | progressive | change | best of each seed |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
