"""The section of docs/results.md about memorization."""

from __future__ import annotations

from typing import Any


def memorization(results: dict[str, dict[str, Any]]) -> str:
    found = results["memorization"]
    growth = found["time_per_point_over_smallest"]
    largest = found["sizes"][-1]
    rows = [
        f"| {entry['points']:,} | {entry['parameters']:,} | {entry['mismatches']} | {ratio:.2f} | "
        f"{entry['peak_bytes'] / 1e6:,.0f} MB |"
        for entry, ratio in zip(found["sizes"], growth, strict=True)
    ]
    deep = [
        f"| {entry['depth']} | {entry['width']:,} | {entry['parameters']:,} | "
        f"{entry['exact_error']:.1e} | {entry['forward_error']:.1e} | {entry['forward_wrong']} |"
        for entry in found["forward"]
    ]
    first = found["forward"][0]
    return "\n".join(
        [
            "## Memorizing MNIST with random labels",
            "",
            "Two layers with 2n + d weights, certified in exact rational arithmetic. *time per "
            "point*: processor time, smallest n = 1. *memory*: the whole process, data included; "
            f"goal 1 GB. The {largest['points']:,} points take less than "
            f"{largest['goal_seconds']:.0f} s on two cores: "
            f"{'yes' if largest['seconds'] < largest['goal_seconds'] else 'no'}.",
            "",
            "| n | weights | mismatches | time per point | memory |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "The float64 network at full size. *evaluated exactly*: the stored numbers in exact "
            "arithmetic; *unit by unit*: as a network computes it, goal "
            f"{found['goal_forward_error']:.0e} at the largest depth.",
            "",
            "| depth | width | weights | evaluated exactly | unit by unit | wrong labels |",
            "|---|---|---|---|---|---|",
            *deep,
            "",
            f"In float32, {first['float32_wrong']:,} labels would be wrong: refused. Binary search "
            f"is {first['times_faster_by_search']:,.0f} times faster than evaluating every unit.",
        ]
    )
