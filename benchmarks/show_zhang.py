"""The sections of docs/results.md on the randomization paper."""

from __future__ import annotations

from typing import Any

#: Trained later than the rest: Inception with less weight decay, and without batch normalization
#: at a lower rate for longer, the two side by side on the GPU.
LATER = ("zhang-table-1-inception", "zhang-table-1-no-bn")


def table_section(results: dict[str, dict[str, Any]]) -> str:
    """Table 1: every row computed, on whichever machine."""
    parts = ["## Random labels: Table 1 of Zhang et al. (2017)", ""]
    found = with_later_rows(results)
    parts += [_table_lead(found, "one GPU"), "", *_rows(found), "", *_speed(found)]
    if "zhang-table-1-cpu" in results:
        found = results["zhang-table-1-cpu"]
        parts += [_table_lead(found, "two cores"), "", *_rows(found), ""]
    return "\n".join(parts).rstrip()


def with_later_rows(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The first run of the whole table, with the rows that were trained again by other recipes."""
    first = results["zhang-table-1"]
    rows = {row["number"]: row for row in first["rows"]}
    replaced = set()
    for name in LATER:
        for row in results.get(name, {"rows": ()})["rows"]:
            rows[row["number"]] = row
            replaced.add(row["number"])
    summary = {"rows": len(rows), "seconds": sum(row["seconds"] for row in rows.values())}
    for name in ("fits", "test_agrees", "at_chance"):
        told = [row[name] for row in rows.values() if row[name] is not None]
        summary[name] = {"yes": sum(told), "of": len(told)}
    return {
        "rows": [rows[number] for number in sorted(rows)],
        "summary": summary,
        "timings": first["timings"],
        "replaced": sorted(replaced),
    }


def figure_section(results: dict[str, dict[str, Any]]) -> str:
    """Figure 1: test error and time to fit by the share of labels redrawn."""
    found = results["zhang-figure-1"]
    networks = list(found["sweep"])
    levels = [point["level"] for point in found["sweep"][networks[0]]]
    lines = [
        "## Random labels: Figure 1 of Zhang et al. (2017)",
        "",
        "Test error in percent (with its 95 % interval) when the training labels are fitted, by "
        "the share of labels redrawn; in brackets, times the epochs that true labels need to "
        "reach 99 % on the training set.",
        "",
        "| share | " + " | ".join(networks) + " |",
        "|---|" + "---|" * len(networks),
    ]
    for place, level in enumerate(levels):
        cells = [_swept(found["sweep"][network][place]) for network in networks]
        lines.append(f"| {level:g} | " + " | ".join(cells) + " |")
    told = "; ".join(
        f"{network}: {'never falls' if entry['rises'] else 'falls'} beyond the intervals, "
        f"{'ends' if entry['ends_at_chance'] else 'does not end'} at guessing"
        for network, entry in found["summary"].items()
    )
    return "\n".join([*lines, "", f"{told}.", "", *_curves(found)])


#: Steps to a loss of .01 in an independent reproduction of the paper's Inception.
STEPS_ELSEWHERE = {
    "true": 5_700,
    "shuffled-pixels": 6_700,
    "gaussian": 9_900,
    "random-pixels": 13_000,
    "random-labels": 17_700,
}


def _curves(found: dict[str, Any]) -> list[str]:
    """Figure 1a: how fast each kind of data is fitted."""
    lines = [
        "Learning curves (Figure 1a), Inception without regularizers. *epochs*: the first one "
        "measured at which every training label is right; *steps*: to a cross-entropy of at most "
        ".01, with those of an independent reproduction of the paper in brackets. Destroyed inputs "
        "are fitted as surely as random labels, and faster.",
        "",
        "| data | training accuracy | epochs to fit | steps to a loss of .01 | test accuracy |",
        "|---|---|---|---|---|",
    ]
    for name, curve in sorted(found["curves"].items(), key=lambda item: item[1]["fit_epoch"]):
        steps = next((step for step, loss in curve["loss"] if loss <= 0.01), None)
        reached = "–" if steps is None else f"≤ {steps:,}"
        lines.append(
            f"| {name} | {_percent(curve['train_accuracy'])} | {curve['fit_epoch']} "
            f"| {reached} ({STEPS_ELSEWHERE[name]:,}) | {_percent(curve['test_accuracy'])} |"
        )
    return lines


def regularization_section(results: dict[str, dict[str, Any]]) -> str:
    """Regularizers on and off."""
    found = results["zhang-regularization"]
    lines = [
        "## Random labels: regularizers on and off",
        "",
        "CIFAR-10, one GPU, accuracies in percent. Regularizers add at most "
        + ", ".join(
            f"{gain:.1f} ({network})"
            for network, gain in found["gains"].items()
            if gain is not None
        )
        + " points of test accuracy."
        + _moved(found["settings"]["networks"]),
        "",
        "| network | augmentation | weight decay | true labels: test (paper) "
        "| stopping early would add | random labels: train (paper) |",
        "|---|---|---|---|---|---|",
    ]
    for switch in found["switches"]:
        paper = (
            "did not converge"
            if switch["published_random_fails"]
            else _percent(switch["published_random_train"])
        )
        lines.append(
            f"| {switch['network']} | {switch['augmentation']} "
            f"| {'on' if switch['weight_decay'] else 'off'} "
            f"| {_percent(switch['true_test'])} ({_percent(switch['published_true_test'])}) "
            f"| {_early(switch)} | {_percent(switch['random_train'])} ({paper}) |"
        )
    lines += [
        "",
        "ImageNet, quoted from the paper and not computed here (Inception v3, top-1): true labels "
        "with all regularizers 77.84 % test, with none 59.80 %; random labels 95.20 % training, "
        "0.1 % test.",
    ]
    return "\n".join(lines)


def _early(switch: dict[str, Any]) -> str:
    """Points of test accuracy at the best epoch in hindsight, beyond the last one."""
    points = switch["early_stopping_points"]
    return "–" if points is None else f"{points:.2f} (epoch {switch['best_epoch']})"


def _moved(recipes: dict[str, dict[str, Any]]) -> str:
    return "".join(
        f" {network.capitalize()} has {recipe['moved_epochs']} epochs for random labels on "
        f"augmented images, where {recipe['epochs']} are too few."
        for network, recipe in recipes.items()
        if recipe["moved_epochs"]
    )


def _table_lead(found: dict[str, Any], where: str) -> str:
    summary = found["summary"]
    told = ", ".join(
        f"{summary[name]['yes']} of {summary[name]['of']} {words}"
        for name, words in (
            ("fits", "fit their training labels to 99.3 % where the paper's do"),
            ("test_agrees", "are within 2.5 points of the published test accuracy"),
            ("at_chance", "random-label rows are within 1 point of guessing"),
        )
        if summary[name]["of"]
    )
    time = f", {summary['seconds']:.0f} s of training in all" if where == "one GPU" else ""
    later = found.get("replaced")
    apart = (
        f" Rows {later[0]} to {later[-1]} are of a second run with the recipes that the first one "
        "led to; its two groups shared the GPU, so that their seconds count twice."
        if later
        else ""
    )
    return (
        f"CIFAR-10, {summary['rows']} rows, {where}{time}: {told}. Percent; the paper's beside."
        f"{apart}"
    )


def _rows(found: dict[str, Any]) -> list[str]:
    lines = [
        "| row | network | labels | augmentation | weight decay | train (paper) | test (paper) |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cell, paper = row["cell"], row["published"] or {"train": None, "test": None}
        lines.append(
            f"| {row['number']} | {cell['network']} | {cell['corruption']} "
            f"| {cell['augmentation']} | {'on' if cell['decay'] else 'off'} "
            f"| {_percent(row['train_accuracy'])} ({_percent(paper['train'])}) "
            f"| {_percent(row['test_accuracy'])} ({_percent(paper['test'])}) |"
        )
    return lines


def _speed(found: dict[str, Any]) -> list[str]:
    told = [
        f"{entry['networks']} × {entry['network']} {entry['speedup']:.1f}× ({entry['method']})"
        for entry in found["timings"]
        if entry["speedup"] is not None
    ]
    if not told:
        return []
    text = "Time per network against one at a time, all in the first run: " + ", ".join(told) + "."
    return [text, ""]


def _swept(point: dict[str, Any]) -> str:
    slow = "–" if point["slowdown"] is None else f"{point['slowdown']:.1f}×"
    return (
        f"{100 * point['test_error']:.1f} ({100 * point['low']:.1f} to {100 * point['high']:.1f}) "
        f"[{slow}]"
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
