"""The section of docs/results.md on certificates for convolutional networks."""

from __future__ import annotations

import math
from typing import Any


def section(results: dict[str, dict[str, Any]]) -> str:
    """One row per network: sparse, dense, the twin, and what the numbers are made of."""
    found = results["sparsity-conv"]
    first = found["cases"][0]
    lines = [
        "## Certificates for deterministic convolutional networks",
        "",
        f"MNIST, inputs of norm 1, no biases, Theorem E (docs/theory/sparsity.md, 10). Prior "
        f"learned on {first['prior_examples']:,} images also moved by a pixel, n = "
        f"{first['examples']:,}. failure {found['failure']:g}, and {found['sampling_failure']:g} "
        f"for Monte Carlo; every certificate pays for being the best of {found['choices']} "
        "(networks x variants x ten recipes: step sizes were settled on Fashion-MNIST, and one "
        "trial of each network on these examples, with other seeds, is among the ten). "
        "*held-out twin*: the prior itself, tested on the other examples: tighter in every row. "
        "`x/2`: stride 2; a linear layer follows.",
        "",
        "| convolutions | pull | sparse | dense | change | held-out twin | test error "
        "| KL, nats (sparse, dense) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in found["cases"]:
        sparse, dense = case["sparse"], case["dense"]
        change = sparse["risk_upper"] / dense["risk_upper"] - 1.0
        lines.append(
            f"| {case['network']} | {case['pull']:g} | **{_promise(sparse['risk_upper'])}** "
            f"| {_promise(dense['risk_upper'])} | {100 * change:+.1f} % "
            f"| {_promise(case['twin'])} | {case['test_errors'] / case['test_examples']:.4f} "
            f"| {sparse['kl_nats']:.0f}, {dense['kl_nats']:.0f} |"
        )
    return "\n".join(lines)


def _promise(value: float) -> str:
    """A bound, rounded up: what is printed must be true as printed."""
    return f"{math.ceil(value * 10_000 - 1e-9) / 10_000:.4f}"
