"""The section of docs/results.md on the convolutional network of the rescaling figure."""

from __future__ import annotations

from typing import Any


def section(results: dict[str, dict[str, Any]]) -> str:
    found = results["rescaling-cifar"]
    settings = found["settings"]
    lines = [
        "## Rescaling: the convolutional network of the paper",
        "",
        f"`{settings['architecture']}` on CIFAR-10, {found['weights']:,} weights, "
        f"{1 - found['test_error']:.1%} right on the test data (paper: 86 %), trained and "
        f"accounted for in {found['seconds']:.0f} s on one GPU. The paper does not describe its "
        "network; its bounds and ratios suggest "
        f"{found['inferred_weights'] / 1e6:.1f} million weights, which is an inference. Bounds "
        "are risk + sqrt(KL / 2n), before → after; all of them are vacuous. Squares of the "
        f"weights add up to {found['weights_squared']:,.0f} here, to about "
        f"{found['inferred_weights_squared']:,.0f} there.",
        "",
        "| prior scale | noise | published ratio | ratio | published bound | bound | risk |",
        "|---|---|---|---|---|---|---|",
    ]
    for point, ratio in zip(found["points"], found["kl_ratios"], strict=True):
        lines.append(
            f"| {point['prior_scale']:g} | {point['posterior_scale']:g} "
            f"| {point['published_kl_ratio']:.2f} | {ratio:.2f} "
            f"| {point['published_bound']:.2f} → {point['published_rescaled']:.2f} "
            f"| {point['bound']:.2f} → {point['rescaled']:.2f} "
            f"| {point['empirical_risk']:.2f} |"
        )
    return "\n".join(lines)
