"""Convolutional networks whose squares vanish in float64 must not be promised anything."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nonvacuous.data import Examples
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.sparsity.conv_theorem import read_inputs
from nonvacuous.sparsity.noise import conv_pass, standard_noise


def _network(weight: float, layers: int) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Conv2d(1, 1, 1, bias=False), nn.ReLU()]
    network = nn.Sequential(*parts, nn.Flatten(), nn.Linear(4, 2, bias=False)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(weight)
        network[-1].weight[0] *= 2.0
    return network.eval()


def test_kernels_whose_squares_vanish_are_refused() -> None:
    with pytest.raises(BadInput, match=r"1e-70 as its largest weight"):
        read_network(_network(1e-70, 1), torch.ones(2, 1, 2, 2).double())


def test_images_whose_squares_vanish_count_as_losses() -> None:
    images = torch.ones(100, 1, 2, 2).double()
    chain = read_network(_network(1e-50, 4), images[:2])
    examples = Examples(images.float(), torch.zeros(100, dtype=torch.int64), ("a", "b"), "ones")
    inputs = read_inputs(chain, chain, examples)
    noise = standard_noise(chain, 100, torch.Generator().manual_seed(0))
    silent = [torch.zeros_like(part) for part in noise]
    found = conv_pass(chain, inputs, [1e-50] * 5, silent)
    assert bool(found.scores.isnan().all())
