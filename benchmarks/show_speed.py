"""The section of docs/results.md on speed against an earlier version."""

from __future__ import annotations

from typing import Any


def section(results: dict[str, dict[str, Any]]) -> str:
    from show import number, table

    rows = [
        [
            f"post-hoc certificate, {name}",
            f"{number(case['baseline_seconds'], 2)} s",
            f"{number(case['seconds'], 2)} s",
            f"**{case['times_faster']:.1f}×**",
            "–",
        ]
        for name, case in results["posthoc-speed"]["cases"].items()
    ]
    for device, words in (("cpu", "one core"), ("cuda", "one NVIDIA H200")):
        for name, case in results.get(f"posterior-speed-{device}", {}).get("networks", {}).items():
            rows.append(
                [
                    f"a step of posterior training, {name}, {words}",
                    f"{number(case['baseline_milliseconds'], 1)} ms",
                    f"{number(case['milliseconds'], 1)} ms",
                    f"**{case['times_faster']:.1f}×**",
                    f"{100 * case['share_of_floor']:.0f} %",
                ]
            )
    header = ["work", "before", "now", "times faster", "of the compute floor"]
    return "\n".join(
        [
            "## Speed against the version of 15 November 2026",
            "",
            "That version (26c4c74) and this one in one run, in processes that take turns, on "
            "the same networks and data; on a processor in its own time, with one thread. "
            "Goals: post-hoc certificates 2.5 times, training 1.5 times on a processor and 5 "
            "times on a GPU. Post-hoc certificates meet theirs in all four cases on an idle "
            "machine; beside another process a run gave 2.6, 2.4, 3.4 and 2.4 times. Drawing the "
            "trials, whose number is part of the promise, and trying noise are the largest parts "
            "of what is left. Under a prior around zero they now "
            "also forget the order of the units, which they did not before. Training meets its "
            "goals on a processor and on a GPU. There the earlier version waits for the processor "
            "that launches its kernels: a step of the largest network took it 4.8 ms on one day, "
            "5.6 and 6.7 on others, so that its times faster say as much about that processor. "
            "The floor is what the matrix products of a step would take at the rate of large "
            "ones, on a GPU that of TF32: such small networks stay far from it there, for "
            "pooling, sums and the optimizer take most of a step. On a processor that multiplies "
            "bfloat16, as this one, large linear layers train in it; the floor is that of float32 "
            "all the same.",
            "",
            table(header, rows),
        ]
    )
