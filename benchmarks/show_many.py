"""The section of docs/results.md on networks trained together."""

from __future__ import annotations

from typing import Any


def section(results: dict[str, dict[str, Any]]) -> str:
    """Times per network against one at a time, in the same run and precision."""
    parts = [
        "## Many networks at once",
        "",
        "An epoch of 50,000 images of 3 × 28 × 28 pixels in batches of 128, per network, against "
        "the same networks trained one at a time by ordinary eager PyTorch in the same run and "
        "precision. Goals: 5 times for perceptrons, 2 times for convolutional networks.",
        "",
        "| network | precision | method | networks at once | seconds per epoch | faster |",
        "|---|---|---|---|---|---|",
    ]
    for case in results["many-cuda"]["cases"]:
        parts.append(
            f"| {case['network']} | {case['precision']} | {case['method']} | {case['networks']} | "
            f"{case['epoch_seconds']:.3f} | **{case['times_faster']:.1f}×** |"
        )
    return "\n".join(parts)
