"""The section of docs/results.md on certificates through sparsity."""

from __future__ import annotations

import math
from typing import Any


def section(results: dict[str, dict[str, Any]]) -> str:
    """Goals, dense against sparse, depth, and cost."""
    attempts = results.get("sparsity-mnist", {}).get("settings", {}).get("attempts", 1)
    parts = [
        "## Certificates for deterministic networks",
        "",
        "MNIST, inputs of norm 1, no biases, no noise in the certified network. failure .05, "
        f"and .01 for Monte Carlo, shared by all theorems and variants and by {attempts:,} "
        "candidate priors, so that the smallest of them may be taken. The recipes of the priors "
        "were settled while looking at certificates on these same examples; what is paid for is "
        "every combination of the numbers that a recipe may name (docs/theory/sparsity.md, 7). "
        "*held-out twin*: the learned prior itself, tested on the other examples: tighter "
        "in every row. Part of the distance to the prototype is a better prior, learned under "
        "noise from images also moved by a pixel: the prototype's twins were .0947, .0951 "
        "(width 500) and .0724 (2 hidden layers). `nonvacuous reproduce sparsity-mnist` runs "
        "it.",
        "",
    ]
    study = results.get("sparsity-mnist")
    if study is not None:
        parts += _goals(study) + _gains(study) + _networks(study)
    if "sparsity" in results:
        parts += _cost(results["sparsity"])
    if "sparsity-two-cores" in results:
        case = results["sparsity-two-cores"]["case"]
        parts += [
            "",
            f"The same case with two threads on two idle cores: {case['seconds']:.1f} s (goal "
            f"{case['goal_seconds']:g} s).",
        ]
    if "sparsity-cuda" in results:
        parts += ["", *_gpu(results["sparsity-cuda"])]
    return "\n".join(parts).rstrip()


def _goals(study: dict[str, Any]) -> list[str]:
    rows = [
        [
            goal["what"],
            f"{goal['goal']:g}",
            "–" if goal["prototype"] is None else f"{goal['prototype']:.3f}",
            f"**{_promise(goal['found'])}**",
            goal["by"],
            _promise(goal["twin"]),
        ]
        for goal in study["goals"]
    ]
    return [
        *_table(["network", "goal", "prototype", "certificate", "by", "held-out twin"], rows),
        "",
    ]


def _gains(study: dict[str, Any]) -> list[str]:
    if not study["gains"]:
        return []
    rows = [
        [
            f"`{gain['case']}`",
            gain["theorem"],
            _promise(gain["dense"]),
            _promise(gain["sparse"]),
            f"{100 * gain['change']:+.1f} %",
        ]
        for gain in study["gains"]
    ]
    text = "Does sparsity help? The dense and the sparse variant of each theorem:"
    paper = [gain for gain in study["gains"] if gain["theorem"] == "A"]
    helped = sum(gain["change"] < 0 for gain in paper)
    verdict = (
        f"In the paper's own form (Theorem A) sparsity helped in {helped} of {len(paper)} rows: "
        "the union over index sets costs more than the smaller norms give. It helps in "
        "the theorems whose good event may depend on the input (D, E, F), and most with "
        "two hidden layers."
    )
    headings = ["network", "theorem", "dense", "sparse", "change"]
    return [text, "", *_table(headings, rows), "", verdict, "", *_activity(study)]


def _activity(study: dict[str, Any]) -> list[str]:
    """The figure of activity ratios, as a table, for the networks of the comparison above."""
    compared = {gain["case"] for gain in study["gains"]}
    cases = [case for case in study["cases"] if case["key"] in compared]
    levels = list(cases[0]["activity"])
    rows = [
        [f"`{case['key']}`", *(f"{case['activity'][level]:.3f}" for level in levels)]
        for case in cases
    ]
    return [
        "Effective activity ratio (the share of weights between units that are not surely "
        "inactive), mean over test examples, when each layer may move by ε of its norms:",
        "",
        *_table(["network", *(f"ε = {level}" for level in levels)], rows),
        "",
    ]


def _networks(study: dict[str, Any]) -> list[str]:
    rows = [
        [
            f"`{case['key']}`",
            f"{case['test_errors'] / case['test_examples']:.4f}",
            _promise(case["twin"]),
            f"**{_promise(case['best'])}**",
            case["best_by"],
            f"{math.prod(case['spectral'][1:-1]):.3g}",
        ]
        for case in study["cases"]
    ]
    headings = ["network", "test error", "held-out twin", "certificate", "by", "norms multiplied"]
    return ["All networks:", "", *_table(headings, rows), ""]


def _cost(found: dict[str, Any]) -> list[str]:
    case = found["case"]
    parts = [
        "Cost: the full search and certificate of Theorem E (sparse) for 3 layers, width 100, "
        f"n = 57,000 took {case['processor_seconds']:.1f} processor seconds of one thread (goal "
        f"{case['goal_seconds']:g} s on two cores). Ratios against the same shape (width 100, two "
        "hidden layers) in each row:",
        "",
    ]
    for name, key in (("width", "width"), ("depth", "hidden"), ("size", "examples")):
        if name in found:
            head = "hidden layers" if key == "hidden" else key
            values = ", ".join(f"{entry[key]:,}: {entry['ratio']:.2g}" for entry in found[name])
            parts.append(f"- {head}: {values}")
    return parts


def _gpu(found: dict[str, Any]) -> list[str]:
    # The shape that all grids share is shown once.
    every = (*found.get("width", ()), *found.get("depth", ()), *found.get("size", ()))
    shapes = {(e["hidden"], e["width"], e["examples"]): e["seconds"] for e in every}
    parts = [
        "On a GPU (NVIDIA H200, float64), search and certificate of Theorem E (sparse), in seconds "
        "of the clock with moving the examples:",
        "",
        *_table(
            ["hidden layers", "width", "n", "seconds"],
            [
                [f"{hidden}", f"{width:,}", f"{examples:,}", f"{seconds:.2f}"]
                for (hidden, width, examples), seconds in shapes.items()
            ],
        ),
    ]
    beside = found.get("beside", ())
    for here, there in zip(beside[::2], beside[1::2], strict=True):
        parts += [
            "",
            f"{here['hidden']} hidden layers of width {here['width']:,}, n = {here['examples']:,}, "
            f"against {found['case']['threads']} threads of the processor beside it: "
            f"{here['seconds'] / there['seconds']:.0f} times faster ({there['seconds']:.1f} s).",
        ]
    return parts


def _promise(value: float | None) -> str:
    """A bound, rounded up: what is printed must be true as printed."""
    return "–" if value is None else f"{math.ceil(value * 10_000 - 1e-9) / 10_000:.4f}"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
