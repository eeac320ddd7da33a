"""How much does the best rescaling leave on the table, with one, two and three hidden layers?

The chain lifted KL <= best fixed rescaling <= KL between weights, for perceptrons trained on the
digits. The lifted end is exact on the orbits of one hidden layer and sampled beyond.

    python benchmarks/lifted.py        # results/lifted.json, a few minutes
"""

from __future__ import annotations

import argparse

import torch
from provenance import write_result
from torch import nn

from nonvacuous import capture, data, lifted_kl, models, scale_groups
from nonvacuous.distributions import DiagonalGaussian

WIDTHS = ("16", "32", "16,16", "32,16", "16,16,16", "24,16,12")
#: Noise of the posterior, scale of the prior around zero: the paper's, and one near the best.
SCALES = ((0.03, 1.0), (0.06, 1.0), (0.06, 0.25))
SEED = 0


def trained(widths: str) -> tuple[nn.Module, torch.Tensor]:
    digits = data.load("digits").train
    network = models.build(f"mlp:{widths}", digits.example_shape, digits.classes, seed=SEED)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(digits.inputs), digits.labels).backward()
        optimizer.step()
    return network.eval(), digits.inputs[:2]


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    rows = []
    for widths in WIDTHS:
        network, example = trained(widths)
        groups = scale_groups(capture(network, example))
        for noise, scale in SCALES:
            Q = DiagonalGaussian.around(network, scale=noise)
            P = DiagonalGaussian.centered(network, scale=scale)
            chain = lifted_kl(Q, P, groups, draws=400, seed=SEED)
            rows.append({"widths": widths, "noise": noise, "prior_scale": scale, **vars(chain)})
    write_result("lifted", {"data": "digits", "rows": rows}, seed=SEED)


if __name__ == "__main__":
    main()
