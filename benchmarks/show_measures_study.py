"""The section of docs/results.md on the correlation study of measures."""

from __future__ import annotations

from typing import Any

#: So many from the top and from the bottom are shown; all are in the result file.
BEST, LAST = 15, 8
CHANCE = "random-numbers"


def section(results: dict[str, dict[str, Any]]) -> str:
    """Which measures order networks as their gaps, and how long it took."""
    study = results["measures-study"]
    settings, times = study["settings"], study["times"]
    measures = study["measures"]
    own = [entry for entry in measures if entry["name"] != CHANCE]
    counts = {
        verdict: sum(entry["verdict"] == verdict for entry in own)
        for verdict in ("predicts", "in part", "nothing", "inverted")
    }
    robust = [entry["name"] for entry in own if entry["worst_error"]["high"] < 0.5]
    shown = [*measures[:BEST], *(e for e in measures[BEST:] if e in measures[-LAST:])]
    if all(entry["name"] != CHANCE for entry in shown):
        shown += [entry for entry in measures if entry["name"] == CHANCE]
    axes = [
        name.replace("_", " ")
        for name, values in settings.items()
        if isinstance(values, list) and name != "measures" and len(values) > 1
    ]
    parts = [
        "## Which measures foretell the gap?",
        "",
        f"After Jiang et al. 2020 and Dziugaite et al. 2020: {study['networks']:,} perceptrons on "
        f"{settings['data']} ({', '.join(axes)} varied), trained to a cross-entropy of "
        f"{settings['stop_loss']:g}; left out because they never got there: "
        f"{study['left_out']:,}. Gaps from {100 * study['gap']['least']:.1f} to "
        f"{100 * study['gap']['most']:.1f} points.",
        "",
        f"Of {len(own)} measures {counts['predicts']} order networks as their gaps, overall and "
        "when one thing changes at a time, and are inverted for no hyper-parameter; "
        f"{counts['in part']} do so in part, {counts['nothing']} not at all, {counts['inverted']} "
        "are inverted. "
        + (
            f"Surely better than a coin in every kind of change: {', '.join(robust)}."
            if robust
            else "None is surely better than a coin in every kind of change."
        ),
        "",
        "*Wrong*: share of pairs differing in one hyper-parameter of which it names the wrong one; "
        "*at worst*: in the kind of change where that is most; *told*: normalized conditional "
        "mutual information, the least given two hyper-parameters. Best, last and random numbers:",
        "",
        "| measure | verdict | τ | granulated τ | wrong | at worst | told |",
        "|---|---|---|---|---|---|---|",
        *map(_row, shown),
        "",
        _time(times),
    ]
    return "\n".join(parts)


def _row(entry: dict[str, Any]) -> str:
    axis, before, after = entry["worst"]
    where = f"{axis.replace('_', ' ')} {before:g} to {after:g}" if axis else ""
    verdict = entry["verdict"]
    if entry["inverted_for"] and verdict == "in part":
        verdict += f", inverted for {', '.join(n.replace('_', ' ') for n in entry['inverted_for'])}"
    cells = (
        f"`{entry['name']}`",
        verdict,
        _interval(entry["tau"]),
        _interval(entry["granulated_mean"]),
        f"{entry['sign_error']['value']:.2f}",
        f"{entry['worst_error']['value']:.2f} ({where})",
        f"{entry['information']['value']:.3f}",
    )
    return f"| {' | '.join(cells)} |"


def _interval(entry: dict[str, float]) -> str:
    return f"{entry['value']:+.2f} ({entry['low']:+.2f} to {entry['high']:+.2f})"


def _time(times: dict[str, Any]) -> str:
    speedup = times["speedup"]
    faster = "" if speedup is None else f", **{speedup:.0f} times** as many as one at a time"
    if times["device"] != "cuda":
        # Absolute times are from the GPU only.
        return f"Trained many at once ({times['method']}){faster} in the same run."
    alone = times["per_minute_alone"]
    rate = "" if alone is None else f" ({alone:,.0f} per minute)"
    return (
        f"On one NVIDIA H200: {times['networks']:,} networks trained in {times['seconds']:.0f} s, "
        f"{times['per_minute']:,.0f} per minute{faster}{rate} in the same run, by the time of a "
        f"step of {times['alone_networks']} networks spread over the grid. Measuring took "
        f"{times['measuring_seconds']:.0f} s of processor time beside it; the statistics were "
        "computed from the table of networks on another machine."
    )
