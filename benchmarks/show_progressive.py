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
    if "progressive-subsets" in results:
        parts += ["", *_subsets(results["progressive-subsets"]["cases"])]
        parts += ["", *_real_gates(results["progressive-subsets"])]
    return "\n".join(parts)


def _up(value: float) -> str:
    return f"{math.ceil(value * 10_000) / 10_000:.4f}"


def _gate(found: dict[str, Any]) -> list[str]:
    cases = found["cases"]
    lower = sum(case["gate"] <= case["held_out"] for case in cases)
    two = sum(case["two"] > case["held_out"] for case in cases)
    same = sum(case["two_at_held_out_share"] > case["held_out"] for case in cases)
    at_half = sum(case["gate_at_half"] <= case["held_out"] for case in cases)
    said = "higher in every row" if not lower else f"not higher in {lower} of {len(cases)} rows"
    rows = [
        f"| {case['examples']:,} | {case['threshold']:g} | {case['curve']['floor']:.2g} + c a^-"
        f"{case['curve']['slope']:g} | {case['held_out']:.3f} ({case['held_out_share']:g}) | "
        f"**{case['gate']:.3f}** ({case['gate_start']:g}) | {case['gate_at_half']:.3f} | "
        f"**{case['two']:.3f}** ({case['two_start']:g}) | {case['two_at_held_out_share']:.3f} |"
        for case in cases
    ]
    return [
        f"The gate (`nv.Progressive(threshold=...)`, {found['batches']} batches, or two, which are "
        "held to the exact tail: docs/theory/progressive.md, 3) against a "
        "held-out gate on the same examples and the same threshold: the chance to certify, failure "
        f"{found['failure']:g}, on learning curves a ↦ floor + c a^-slope with c such that the "
        "best held-out split passes half of the time. Exact, all at the best share for training "
        f"(in brackets), the gate also simulated with {found['data_sets']:,} data sets. With its "
        f"best first part the gate's chance is {said}. With a first part of one half, the default, "
        f"it is not higher than that of the best held-out split in {at_half} of {len(cases)}: "
        "steep curves want a larger first part, flat ones a smaller one. Two batches are better "
        f"than the best held-out split in {two} of {len(cases)} rows at their best share, and in "
        f"{same} at the very share of that split: as many tests, half of them on a network that "
        "has seen more.",
        "",
        "| examples | threshold | curve | held-out gate | gate | gate, first part 0.5 "
        "| two batches | two batches, share of the held-out gate |",
        "|---|---|---|---|---|---|---|---|",
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


def _name(name: str, case: dict[str, Any]) -> str:
    data, _, total = name.rpartition("-")
    network = case["network"]
    kind = network if isinstance(network, str) else "hidden layer" if network else "features"
    return f"{data.removesuffix('-images')} {int(total):,}, {kind}"


def _subsets(cases: dict[str, Any]) -> list[str]:
    """Many subsets: bounds at the best share of each kind, and at one that nobody chose."""
    rows, below, small = [], set(), set()
    for name, case in cases.items():
        for failure, row in case["tests"].items():
            best = row["progressive"]
            if float(failure) <= 0.01:
                small.add((name, failure))
                if best["difference"] + 2 * best["standard_error"] < 0:
                    below.add((name, failure))
            rows.append(
                f"| {_name(name, case)} | {case['subsets']} | {failure} | {_up(row['held_out'])} "
                f"({row['held_out_share']:g}) | {_up(best['mean'])} ({best['start']:g}) | "
                f"{_change(best, row['held_out'])} | {_change(row['fixed'], row['held_out'])} |"
            )
    data = [n for n in cases if all(pair in below for pair in small if pair[0] == n)]
    named = "; ".join(_name(name, cases[name]) for name in data) or "none"
    return [
        "The same on many random subsets, with finer batches: one network after every fortieth of "
        "the examples (every twentieth for resnet9), each trained from its start; the tilt from "
        "the two parts before the first test, each predicted by the network before it. The share "
        "for the first part is the best on average in hindsight for both kinds (in brackets); "
        "*first part .6*: that share in every row. At failures of .01 and smaller the progressive "
        "bound is below the best held-out split by more than two standard errors in "
        f"{len(below)} of {len(small)} rows; in all of its rows on: {named}. All rows are shown; "
        "the last 1,000 subsets of fashion 1,000 were drawn because the first 600 came close to "
        "two standard errors (on those alone: [when it helps](theory/progressive.md)). Digits and "
        "cifar 50,000 are orders of all examples, not samples of more: their standard errors say "
        "how much the order matters.",
        "",
        "| data | subsets | failure | best held-out split | progressive | change | first part .6 |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]


def _change(entry: dict[str, Any], held_out: float) -> str:
    change, error = (100 * entry[key] / held_out for key in ("difference", "standard_error"))
    return f"{change:+.1f} ± {error:.1f} %"


def _real_gates(found: dict[str, Any]) -> list[str]:
    gates = [
        (name, case, row) for name, case in found["cases"].items() for row in case.get("gates", ())
    ]
    best = [max((row["many"], row["two"]), key=lambda gate: gate["passes"]) for *_, row in gates]
    higher = sum(gate["difference"] > 2 * gate["standard_error"] for gate in best)
    equal = sum(gate["difference"] == 0 for gate in best)
    lower = sum(gate["difference"] < 0 for gate in best)
    alone = sum(row["many"]["difference"] < 0 for *_, row in gates)
    return [
        "The gate on the same subsets: the part of them that is certified to err less than the "
        f"threshold, failure {found['failure']:g}, at thresholds where the best held-out gate "
        "passes about a quarter, half and three quarters of the time; all at their best share in "
        "hindsight. *many*: a checkpoint for every fortieth of the examples, by Theorem 2. *two*: "
        "two batches by the exact tail, the first of them a fortieth (the counts that were kept "
        "allow no other; of equal batches speaks the table above). The better of both passes more "
        f"often than the best held-out gate by more than two standard errors in {higher} of "
        f"{len(gates)} rows, as often in {equal} and less often in {lower}; many batches alone "
        f"less often in {alone}: where the threshold is tight, a late checkpoint is needed.",
        "",
        "| data | subsets | threshold | held-out gate | many | two | change, better of both |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {_name(name, case)} | {case['subsets']} | {row['threshold']:.4f} | "
            f"{row['held_out']:.3f} ({row['held_out_share']:g}) "
            + "".join(
                f"| {'**' * (row[kind] is gate)}{row[kind]['passes']:.3f}"
                f"{'**' * (row[kind] is gate)} ({row[kind]['start']:g}) "
                for kind in ("many", "two")
            )
            + f"| {gate['difference']:+.3f} ± {gate['standard_error']:.3f} |"
            for (name, case, row), gate in zip(gates, best, strict=True)
        ),
    ]
