"""The section of docs/results.md on what a fixed rescaling leaves on the table."""

from __future__ import annotations

from typing import Any


def section(results: dict[str, dict[str, Any]]) -> str:
    rows = results["lifted"]["rows"]
    shares = [row["fiber_gap"] / row["best_lambda_nats"] for row in rows]
    lines = [
        "## Rescaling: what the best fixed rescaling leaves",
        "",
        "The KL between networks as functions (*lifted*, ± its standard error) is the least that "
        "any rescaling can reach, even one chosen anew for every draw. Perceptrons trained on the "
        "digits, prior around zero, nats. Exact on the orbits of one hidden layer, sampled beyond "
        "(`nv.lifted_kl`). The best fixed rescaling leaves "
        f"{min(shares):.1%} to {max(shares):.1%} of its KL, more with every hidden layer: little "
        "beside what it takes away.",
        "",
        "| hidden layers | noise | prior scale | given | best rescaling | lifted | left |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['widths']} | {row['noise']:g} | {row['prior_scale']:g} "
            f"| {row['weight_space_nats']:,.0f} | {row['best_lambda_nats']:,.1f} "
            f"| {row['lifted_nats']:,.1f} ± {row['standard_error']:.1f} "
            f"| {row['fiber_gap'] / row['best_lambda_nats']:.1%} |"
        )
    return "\n".join(lines)
