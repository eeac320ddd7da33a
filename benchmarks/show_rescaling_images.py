"""The sections of docs/results.md on networks on images: the paper's panel, other architectures.

Each result file is one network: `rescaling-images-*.json` is written by `reproduction.py
rescaling-figure-1`, `rescaling-certificate-*.json` by `rescaling_certificates.py`, and
`rescaling-cifar.json` is the network that was first trained, with decay and reflections.
"""

from __future__ import annotations

import math
from typing import Any

from nonvacuous.papers.rescaling.images import inferred_weights

Results = dict[str, dict[str, Any]]
_RATIO = 0.25  # how near to a published ratio counts as near
_LEVEL = "0.03"  # the noise of the perceptrons' table


def panels(results: Results) -> list[dict[str, Any]]:
    """Every network of the panel by the squares of its weights."""
    found = [
        result
        for name, result in results.items()
        if name == "rescaling-cifar" or (name.startswith("rescaling-images-") and result["points"])
    ]
    return sorted(found, key=lambda result: float(result["weights_squared"]))


def nearest(results: Results) -> dict[str, Any]:
    """The network whose squares come nearest to those that the paper's numbers imply."""
    _, squares = inferred_weights()
    return min(panels(results), key=lambda r: abs(math.log(r["weights_squared"] / squares)))


def within(result: dict[str, Any]) -> int:
    """How many of the six ratios are near the published ones."""
    return sum(
        abs(ratio / point["published_kl_ratio"] - 1) <= _RATIO
        for ratio, point in zip(result["kl_ratios"], result["points"], strict=True)
    )


def farthest(result: dict[str, Any]) -> float:
    """How far the ratio that fits worst is from the published one."""
    return max(
        abs(ratio / point["published_kl_ratio"] - 1)
        for ratio, point in zip(result["kl_ratios"], result["points"], strict=True)
    )


def _training(settings: dict[str, Any]) -> str:
    if "training" not in settings:
        return "decay 0.0005, crops and reflections"
    gain = settings.get("gain")  # of networks from an earlier command
    start = "" if gain is None else f", initial variance {gain:g} / inputs"
    training = settings["training"]
    rate = f"{training['learning_rate']:g} for batches of {training['batch_size']}"
    return f"no decay, crops, learning rate {rate}{start}"


def section(results: Results) -> str:
    shown, (weights, squares) = nearest(results), inferred_weights()
    settings = shown["settings"]
    lines = [
        "## Rescaling: the convolutional network of the paper",
        "",
        f"`{settings['architecture']}` on CIFAR-10, {shown['weights']:,} weights, "
        f"{1 - shown['test_error']:.1%} right on the test data (paper: 86 %). The paper does not "
        f"describe its network; its bounds and ratios suggest {weights / 1e6:.1f} million weights "
        f"whose squares add up to about {squares:,.0f}, which is an inference. The network was "
        "trained at several learning rates; shown is the one whose squares come "
        f"nearest, {shown['weights_squared']:,.0f} ({_training(settings)}). {within(shown)} of 6 "
        f"ratios are within {_RATIO:.0%} of the published ones, the farthest off by "
        f"{farthest(shown):.1%}. Bounds are risk + sqrt(KL / 2n), "
        "before → after; all of them are vacuous, and ours are lower by the risk: this network "
        "errs less under the same noise than the published bounds imply. "
        "`nonvacuous reproduce rescaling-figure-1 --cifar --device cuda` runs it.",
        "",
        "| prior scale | noise | published ratio | ratio | published bound | bound | risk |",
        "|---|---|---|---|---|---|---|",
    ]
    for point, ratio in zip(shown["points"], shown["kl_ratios"], strict=True):
        lines.append(
            f"| {point['prior_scale']:g} | {point['posterior_scale']:g} "
            f"| {point['published_kl_ratio']:.2f} | {ratio:.2f} "
            f"| {point['published_bound']:.2f} → {point['published_rescaled']:.2f} "
            f"| {point['bound']:.2f} → {point['rescaled']:.2f} "
            f"| {point['empirical_risk']:.2f} |"
        )
    columns = [f"{p['prior_scale']:g}, {p['posterior_scale']:g}" for p in shown["points"]]
    lines += [
        "",
        "The ratios against the squares of the weights, one network a row (columns: prior scale, "
        "noise). *untrained*: initial weights of the same network, scaled. The squares decide the "
        "ratios: the larger the weights, the less there is to gain from moving them toward a prior "
        "that is too wide. Training moves them by a tenth or so at equal squares.",
        "",
        f"| squares | training | right on test | {' | '.join(columns)} | within {_RATIO:.0%} |",
        "|" + "---|" * (len(columns) + 4),
    ]
    untrained = [
        {**row, "points": shown["points"], "settings": None, "test_error": None}
        for row in results["rescaling-squares"]["rows"]
    ]
    for result in sorted(panels(results) + untrained, key=lambda r: float(r["weights_squared"])):
        ratios = " | ".join(f"{ratio:.2f}" for ratio in result["kl_ratios"])
        how = "untrained" if result["settings"] is None else _training(result["settings"])
        right = "–" if result["test_error"] is None else f"{1 - result['test_error']:.1%}"
        lines.append(
            f"| {result['weights_squared']:,.0f} | {how} | {right} | {ratios} "
            f"| {within(result)} of 6 |"
        )
    published = " | ".join(f"{p['published_kl_ratio']:.2f}" for p in shown["points"])
    lines.append(f"| about {squares:,.0f} | published | 86 % | {published} | – |")
    return "\n".join(lines)


# -- does rescaling still matter once the prior's scale is chosen? ---------------------------------


def architectures(results: Results) -> list[dict[str, Any]]:
    """Networks on images with every column."""
    named = (r for name, r in results.items() if name.startswith("rescaling-images-"))
    return [result for result in named if result["columns"]]


def saved(columns: list[dict[str, Any]], prior: str) -> float:
    """The part of the KL that rescaling saves under one prior, charges included."""
    by_name = {column["name"]: column for column in columns}
    given, moved = (_nats(by_name[name]) for name in (prior, f"{prior}, rescaled"))
    return 1 - moved / given


PRIORS = {
    "N(0, 1)": "around zero, prior scale 1",
    "best scale": "around zero, best prior scale",
    "a scale per tensor": "around zero, best prior scale per tensor",
    "at initialization": "around initial weights, best prior scale",
    "at initialization, per tensor": "around initial weights, best prior scale per tensor",
}


def _nats(column: dict[str, Any]) -> float:
    return float(column["kl_nats"] + column["charge_nats"])


def _up(value: float) -> str:
    return f"{math.ceil(value * 10_000) / 10_000:.4f}"


def _cell(columns: list[dict[str, Any]], prior: str) -> str:
    by_name = {column["name"]: column for column in columns}
    given, moved = by_name[prior], by_name[f"{prior}, rescaled"]
    return (
        f"{_nats(given):,.0f} → {_nats(moved):,.0f} ({saved(columns, prior):.1%}); "
        f"{_up(given['kl_inverse'])} → {_up(moved['kl_inverse'])}"
    )


def _quotients(columns: list[dict[str, Any]]) -> str:
    steps = [c for c in columns if "units" in c["name"] and "around zero" in c["name"]]
    return f"{_nats(steps[-1]):,.0f}; {_up(steps[-1]['kl_inverse'])}"


def architecture_section(results: Results) -> str:
    perceptrons = results["rescaling-figure-1"]["networks"]
    rows = [(entry["name"], _LEVEL, entry["columns"][_LEVEL]) for entry in perceptrons]
    images = [
        (result["settings"]["architecture"], level, columns)
        for result in architectures(results)
        for level, columns in result["columns"].items()
    ]

    def spread(prior: str, among: list[tuple[str, str, list[dict[str, Any]]]]) -> str:
        shares = [saved(columns, PRIORS[prior]) for *_, columns in among]
        return f"{min(shares):.1%} to {max(shares):.1%}"

    heads = ["network", "noise", *PRIORS, "with quotients"]
    lines = [
        "## Rescaling: does it still matter once the prior's scale is chosen?",
        "",
        "Perceptrons on MNIST; a convolutional network, a ResNet-20 (batch normalization folded "
        "into the weights) and a small vision transformer on CIFAR-10. The posterior is equal "
        "noise around the trained weights, kept and rescaled. Each cell: KL in nats with the "
        "charge of the grid, given → rescaled (what rescaling saves); then the bound (kl-inverse, "
        "confidence .95 by itself), given → rescaled. N(0, 1) is the paper's own accounting; "
        "*with quotients*: a scale per tensor around zero, rescaled, with the scale and the shift "
        "of the scores and the order of the units forgotten. Under the fixed prior rescaling saves "
        f"{spread('N(0, 1)', rows)} of the KL of the perceptrons and {spread('N(0, 1)', images)} "
        "of the networks on images; once a shared scale is chosen and paid for, "
        f"{spread('best scale', rows)} and {spread('best scale', images)}; once each tensor has "
        f"its own, {spread('a scale per tensor', rows)} and "
        f"{spread('a scale per tensor', images)}. Around the initial weights "
        f"it is {spread('at initialization', rows)} and {spread('at initialization', images)}: "
        "one scale that is chosen repairs most of what rescaling repairs, a scale for each tensor "
        "nearly all of it. What is left decides no bound on images: these are vacuous either way. "
        "`nonvacuous reproduce rescaling-figure-1 --architectures cnn resnet20 vit --device cuda` "
        "runs it.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
    ]
    for name, level, columns in rows + images:
        cells = [_cell(columns, prior) for prior in PRIORS.values()]
        lines.append(f"| {name} | {level} | {' | '.join(cells)} | {_quotients(columns)} |")
    told = []
    for result in architectures(results):
        risks = ", ".join(f"{risk:.3f} at {level}" for level, risk in result["risks"].items())
        right = f"{1 - result['test_error']:.1%} right on the test data"
        told.append(
            f"`{result['settings']['architecture']}` is {right}; randomized it errs {risks}"
        )
    return "\n".join([*lines, "", f"{'. '.join(told)}."])


# -- certificates ----------------------------------------------------------------------------------


def certificates(results: Results) -> list[dict[str, Any]]:
    """Certificates of residual networks and transformers, the smallest first."""
    found = [r for name, r in results.items() if name.startswith("rescaling-certificate-")]
    return sorted(found, key=lambda result: float(result["risk_upper"]))


def _post_hoc(results: Results) -> str:
    """What a post-hoc certificate could say at best, where none was issued."""
    if any(result["kind"] == "post hoc" for result in certificates(results)):
        return ""
    least = min(
        (_nats(column), column["kl_inverse"], result["settings"]["architecture"], level)
        for result in architectures(results)
        if not result["settings"]["architecture"].startswith("cnn")
        for level, columns in result["columns"].items()
        for column in columns
    )
    return (
        "Post hoc none was issued: no way of accounting for the ResNet-20 or the transformer in "
        f"the table above costs less than {least[0]:,.0f} nats (`{least[2]}`, noise {least[3]}), "
        f"which on 50,000 examples is a bound of {_up(least[1])}."
    )


def _verified(found: list[dict[str, Any]]) -> str:
    if all(result.get("verification", {}).get("verified") for result in found):
        return "Each was verified from its run folder, data and fresh trials included."
    return (
        "Those without a mark were not verified at full size. With --quick (digits, tiny "
        "networks of the same kinds) the residual network learned, the transformer learned and "
        "the transformer trained outside are verified."
    )


def certificate_section(results: Results) -> str:
    records = [
        (seed["risk_upper"], seed["held_out_twin"])
        for name in range(3)
        for seed in results[f"records-cifar-learned-{name}"]["seeds"]
    ]
    best, twin = min(records)
    found = certificates(results)
    lines = [
        "## Certificates for residual networks and transformers",
        "",
        "CIFAR-10. *learned*: prior trained on nine tenths of "
        "the examples by `nv.certify` itself. *trained outside*: a network trained on nine tenths "
        "by Adam, the prior around its weights. *post hoc*: trained on all examples, the prior "
        "around the initial weights with a scale per tensor. In all of them every weight is "
        "random. Confidence "
        f".95 shared with 20 attempts. {_verified(found)} "
        "*no rescaling*: weights in tensors that no rescaling moves (the last bias; positions and "
        "biases that write a stream which a normalization reads; where "
        "batch normalization is not folded, what it pins), and their share of the KL. The record "
        "with a learned prior is a residual network too: a ResNet-9 whose last layer alone is "
        f"random has {_up(best)} beside a twin of {_up(twin)} ({best / twin:.2f} times). "
        f"{_post_hoc(results)} `python benchmarks/rescaling_certificates.py --device cuda` runs "
        "them.",
        "",
        "| network | kind | certificate | held-out twin | KL, nats | KL as given, same prior "
        "| no rescaling: weights | their KL | verified |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in found:
        charged, moved = result["charged"], result["rescaling"]
        mark = " (vacuous)" if result["is_vacuous"] else ""
        beside = result["held_out_twin"]
        twin_text = "–" if beside is None else f"{_up(beside)}"
        if beside is not None:
            twin_text += f" ({result['risk_upper'] / beside:.2f}×)"
        checked = result.get("verification")
        lines.append(
            f"| `{result['architecture']}` | {result['kind']} "
            f"| **{_up(result['risk_upper'])}**{mark} | {twin_text} | {result['kl_nats']:,.4g} "
            f"| {'–' if moved is None else format(moved['kl_before'], ',.0f')} "
            f"| {charged['pinned_weights']:,} of {charged['weights']:,} "
            f"| {charged['pinned_nats'] / (charged['nats'] or 1.0):.2%} "
            f"| {'–' if checked is None else 'yes' if checked['verified'] else 'in part'} |"
        )
    return "\n".join(lines)
