"""The six ratios of the figure's right panel for untrained weights, scaled to given squares.

    python benchmarks/rescaling_squares.py

No training, no data: whatever the ratios have in common with those of trained networks of the same
size is owed to the squares of the weights alone.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from provenance import RESULTS, write_result

import nonvacuous as nv
from nonvacuous.papers.rescaling.images import ImageSettings, inferred_weights
from nonvacuous.papers.rescaling.settings import CNNS

SQUARES = (500.0, 1000.0, inferred_weights()[1], 4000.0, 6000.0)


def ratios(squares: float, *, seed: int) -> dict[str, Any]:
    """The KL before over the KL after rescaling, for each pair of scales of the figure."""
    module = nv.models.build(ImageSettings().architecture, (3, 32, 32), 10, seed=seed).eval()
    own = math.fsum(float(p.detach().double().square().sum()) for p in module.parameters())
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(math.sqrt(squares / own))
    groups = nv.scale_groups(nv.capture(module, torch.zeros(2, 3, 32, 32)))
    found = []
    for shown in CNNS:
        Q = nv.DiagonalGaussian.around(module, scale=shown.posterior_scale)
        P = nv.DiagonalGaussian.centered(module, scale=shown.prior_scale)
        moved = nv.rescale(Q, P, groups)
        found.append(moved.kl_before / moved.kl_after)
    return {"weights_squared": squares, "kl_ratios": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the JSON goes")
    arguments = parser.parse_args()
    rows = [ratios(squares, seed=arguments.seed) for squares in SQUARES]
    print(
        write_result(
            "rescaling-squares", {"rows": rows}, seed=arguments.seed, folder=arguments.folder
        )
    )


if __name__ == "__main__":
    main()
