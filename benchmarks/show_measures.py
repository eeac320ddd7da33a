"""The section of docs/results.md on the rescaling attack."""

from __future__ import annotations

from typing import Any


def section(results: dict[str, dict[str, Any]]) -> str:
    """What moved, by how many decades, in both networks."""
    study = results["measures-attack"]
    networks = study["networks"]
    attacks = [{e["name"]: e for e in n["attack"]["measures"]} for n in networks]
    names = sorted(
        attacks[0], key=lambda name: -max(_decades(attack[name]) for attack in attacks)
    )  # fmt: skip
    moving = [n for n in names if any(a[n]["verdict"] == "moves" for a in attacks)]
    still = [n for n in names if n not in moving]
    free = [n for n in still if attacks[0][n]["claims"]]
    lucky = [n for n in still if n not in free]
    heading = ["measure", *(f"`{n['model']}`" for n in networks)]
    rows = [[f"`{name}`", *(_told(attack[name]) for attack in attacks)] for name in moving]
    parts = [
        "## Measures under the rescaling attack",
        "",
        f"The same function in {networks[0]['attack']['gauges']} random gauges (logarithms of the "
        f"factors with standard deviation 1), networks trained on {study['examples']:,} examples "
        f"of {study['data']} until fitted: largest over smallest value, in decades. "
        "`nonvacuous measures --attack` does it for any network.",
        "",
        "| " + " | ".join(heading) + " |",
        "|" + "---|" * len(heading),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        "Gauge-free: " + _listed(free) + ".",
    ]
    if lucky:
        parts += ["", f"Did not move here, but may: {_listed(lucky)}."]
    return "\n".join(parts)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _decades(entry: dict[str, Any]) -> float:
    return entry["decades"] or 0.0


def _told(entry: dict[str, Any]) -> str:
    if entry["verdict"] != "moves":
        return "undefined" if entry["verdict"] == "undefined" else "0"
    if entry["decades"] is None:
        return "crosses 0"
    told = f"{entry['decades']:.2f}" if entry["decades"] >= 0.005 else f"{entry['decades']:.0e}"
    return f"{told}, undefined in {entry['missing']}" if entry["missing"] else told
