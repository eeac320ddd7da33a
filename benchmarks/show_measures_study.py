"""The section of docs/results.md on the correlation study of measures."""

from __future__ import annotations

from typing import Any

from scipy.stats import kendalltau

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
        "## Which measures predict the gap?",
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
    if "measures-study-cnn" in results:
        parts += convolutional(results["measures-study-cnn"], study)
    return "\n".join(parts)


def convolutional(study: dict[str, Any], perceptrons: dict[str, Any]) -> list[str]:
    """All measures on convolutional networks, beside the perceptrons', and in their best gauge."""
    settings, gap = study["settings"], study["gap"]
    own = [entry for entry in study["measures"] if entry["name"] != CHANCE]
    before = {entry["name"]: entry for entry in perceptrons["measures"]}
    chance = next(entry for entry in study["measures"] if entry["name"] == CHANCE)
    beyond = [e for e in own if e["information"]["low"] > chance["information"]["high"]]
    left = "; ".join(
        f"{name.replace('_', ' ')}: "
        + ", ".join(f"{count} with {value}" for value, count in values.items())
        for name, values in study["left_out_by"].items()
        if len(settings[name]) > 1
    )
    rows = [f"{_row(e)} {_both(before.get(e['name']))} |" for e in study["measures"]]
    not_judged = "; ".join(f"`{name}` ({why})" for name, why in study["not_judged"].items())
    return [
        "",
        "### On convolutional networks",
        "",
        f"`nonvacuous reproduce measures-study --cnn --device cuda`: {study['networks']:,} "
        f"networks of the {study['planned']:,} of the grid, on CIFAR-10 averaged to 16 by 16 "
        f"pixels, {settings['examples'][0]:,} training and 10,000 test examples; blocks of "
        "convolution, ReLU and max-pooling, then a linear layer. Six hyper-parameters: "
        f"{', '.join(_varied(settings))}. Trained to a cross-entropy of "
        f"{settings['stop_loss']:g}; left out because they never got there in "
        f"{settings['epochs']} epochs: {study['left_out']:,}"
        + (f" ({left})" if left else "")
        + f". {study['networks'] - study['left_out']:,} are judged, with gaps from "
        f"{100 * gap['least']:.1f} to {100 * gap['most']:.1f} points, "
        f"{100 * gap['mean']:.1f} on average.",
        "",
        *_plainly(study, before),
        "**Under which measures are networks that generalize simple?** Small where the gap is "
        f"small, overall and when one thing changes, for no hyper-parameter the other way round: "
        f"{_names(own, 'predicts')}. The other way round, large where the gap is small: "
        f"{_names(own, 'inverted')}. No relation: {_names(own, 'nothing')}. The rest in part. "
        "Surely better than a coin in every kind of change: "
        f"{_listed([e for e in own if e['worst_error']['high'] < 0.5])}.",
        "",
        f"**Conditional independence.** Of {len(own)} measures {len(beyond)} tell more of the gap "
        "than random numbers do whatever two hyper-parameters are given (*told*, the normalized "
        "conditional mutual information of Jiang et al.: low end above the high end of random "
        f"numbers, {chance['information']['high']:.3f}); most: "
        f"{_listed(sorted(beyond, key=lambda e: -e['information']['value'])[:8])}.",
        "",
        f"**Beside the perceptrons.** Over the {len(before.keys() & {e['name'] for e in own})} "
        "measures judged on both, the order of the measures by τ agrees with Kendall's τ = "
        f"{_agreement(own, before, 'tau'):+.2f}, by granulated τ with "
        f"{_agreement(own, before, 'granulated_mean'):+.2f}.",
        "",
        "| measure | verdict | τ | granulated τ | wrong | at worst | told "
        "| perceptrons: τ, granulated |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        *([f"Not judged: {not_judged}.", ""] if not_judged else []),
        "**Do versions in the best gauge predict better?** "
        + _gauges(study)
        + "Rank correlation where the norm (or the divergence) is smallest over rescaling, minus "
        "that of the given weights; intervals of the difference (*better* or *worse*: where one "
        "of the two is surely not 0):",
        "",
        "| given | best gauge | then | τ changes by | granulated τ by |",
        "|---|---|---|---|---|",
        *(
            f"| `{e['given']}` | `{e['best']}` | {e['verdict']} | "
            f"{_interval(e['tau'], digits=3)} | {_interval(e['granulated'], digits=3)} |"
            for e in study["rescaled"]
        ),
        "",
        "Trained on an NVIDIA H200 that other work shared, in two runs: no times are given. After "
        "the first, of 162 networks, the step of training was split in another way, which changes "
        "rounding.",
    ]


#: Of which families the table by hyper-parameter shows one each.
SHOWN = (
    "flatness-relative", "input-margin", "margin-normalized", "gradient-norm", "sharpness-balanced",
    "rescaled-kl", "spectral-product", "path-norm-1", "distance", "parameter-count",
)  # fmt: skip


def _plainly(study: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """What was found, in words, and the rank correlations that they rest on."""
    own = {entry["name"]: entry for entry in study["measures"]}
    if not set(SHOWN) <= own.keys():
        return []
    axes = list(own[SHOWN[0]]["granulated"])

    def by(name: str, axis: str) -> str:
        return f"{own[name]['granulated'][axis]['value']:+.2f}"

    def tau(name: str, where: dict[str, Any] = own) -> str:
        return f"{where[name]['tau']['value']:+.2f}"

    best = own["flatness-relative"]
    return [
        "**Plainly.** Networks that generalize better are simple in the sense that they bear more "
        f"noise relative to their weights (`flatness-relative`, τ {tau('flatness-relative')}; "
        f"perceptrons {tau('flatness-relative', before)}): the only kind of measure that is right "
        "for every hyper-parameter on both kinds of networks; still it names the wrong network in "
        f"{100 * best['sign_error']['value']:.0f} % of coupled pairs and in "
        f"{100 * best['worst_error']['value']:.0f} % for its worst change. They are not simple in "
        "size, length or norm. Wider networks generalize better, so "
        f"parameters ({by('parameter-count', 'width')}) and divergence "
        f"(`rescaled-kl`, {by('rescaled-kl', 'width')}) are inverted there. Dropout helps and "
        "makes weights grow, so norms, path norms and the distance from the start are inverted "
        f"there ({by('spectral-product', 'dropout')}, {by('path-norm-1', 'dropout')}, "
        f"{by('distance', 'dropout')}), and over all pairs they say little "
        f"(τ {tau('spectral-product')}, {tau('path-norm-1')}, {tau('distance')}). What was best on "
        f"perceptrons, `input-margin` ({tau('input-margin', before)}), has {tau('input-margin')} "
        "here and is inverted for depth. Jiang et al. too found sharpness and flatness best and "
        "norms poor or inverted where training is random; their numbers are of larger networks, "
        "other optimizers and other variants of the measures, and are not repeated here.",
        "",
        f"| granulated τ | {' | '.join(axis.replace('_', ' ') for axis in axes)} |",
        f"|---|{'---|' * len(axes)}",
        *(f"| `{name}` | {' | '.join(by(name, axis) for axis in axes)} |" for name in SHOWN),
        "",
    ]


def _gauges(study: dict[str, Any]) -> str:
    found = study["rescaled"]
    if not found:
        return ""
    better = sum(entry["tau"]["low"] > 0 for entry in found)
    most = max(found, key=lambda entry: entry["tau"]["value"])
    norms = [abs(e["tau"]["value"]) for e in found if e["best"].endswith(("-sum", "-product"))]
    return (
        f"Over all pairs {better} of {len(found)} do, none is worse, and it is little: at most "
        f"{most['tau']['value']:+.3f} (`{most['best']}`). "
        if all(entry["tau"]["high"] >= 0 for entry in found)
        else f"Over all pairs {better} of {len(found)} do. "
    ) + (
        f"Norms hardly change at all (by {max(norms):.3f} or less): training leaves weights near "
        "the smallest norm of their function. "
        if norms
        else ""
    )


def _varied(settings: dict[str, Any]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {', '.join(f'{value:g}' for value in values)}"
        for name, values in settings.items()
        if isinstance(values, list) and name != "measures" and len(values) > 1
    ]


def _names(entries: list[dict[str, Any]], verdict: str) -> str:
    return _listed([entry for entry in entries if entry["verdict"] == verdict])


def _listed(entries: list[dict[str, Any]]) -> str:
    return ", ".join(f"`{entry['name']}`" for entry in entries) or "none"


def _both(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "–"
    return f"{entry['tau']['value']:+.2f}, {entry['granulated_mean']['value']:+.2f}"


def _agreement(own: list[dict[str, Any]], before: dict[str, Any], key: str) -> float:
    """Kendall's rank correlation of one statistic over the measures that both studies judge."""
    pairs = [
        (entry[key]["value"], before[entry["name"]][key]["value"])
        for entry in own
        if entry["name"] in before
    ]
    return float(kendalltau(*zip(*pairs, strict=True)).statistic)


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
        _interval(entry["information"], sign="", digits=3),
    )
    return f"| {' | '.join(cells)} |"


def _interval(entry: dict[str, float], *, sign: str = "+", digits: int = 2) -> str:
    value, low, high = (f"{entry[key]:{sign}.{digits}f}" for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


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
