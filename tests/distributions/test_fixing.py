"""Networks of which only a part is random."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.copying import last_layer, with_fixed
from nonvacuous.errors import BadInput
from nonvacuous.models import build
from nonvacuous.risk.pairs import estimate_risk


def test_the_rest_becomes_buffers_and_predictions_stay() -> None:
    network = build("resnet9:4", (1, 16, 16), 3, seed=0).eval()
    images = torch.rand(5, 1, 16, 16)
    names = last_layer(network, images[:2])
    assert names == ("output.weight", "output.bias")
    fixed = with_fixed(network, names)
    assert tuple(name for name, _ in fixed.named_parameters()) == names
    assert set(fixed.state_dict()) == set(network.state_dict())
    assert torch.equal(fixed(images), network(images))
    assert len(list(network.parameters())) > 2  # the caller's own is untouched


def test_the_last_layer_is_the_one_used_last_not_the_one_written_last() -> None:
    class Backward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)
            self.body = nn.Linear(3, 4)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(inputs).relu())

    assert last_layer(Backward(), torch.rand(2, 3)) == ("head.weight", "head.bias")


def test_a_layer_used_twice_is_no_last_layer() -> None:
    shared = nn.Linear(3, 3)
    with pytest.raises(BadInput, match="random='last'"):
        last_layer(nn.Sequential(shared, nn.ReLU(), shared), torch.rand(2, 3))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(BadInput, match=r"no parameter 'middle'"):
        with_fixed(nn.Linear(2, 2), ("middle",))


def test_the_noise_of_a_random_last_layer_follows_its_law() -> None:
    """Without fixed layers on the other side: the same predictor with a point for a posterior."""
    network = build("cnn:4", (1, 8, 8), 3, seed=0).eval()
    images, labels = torch.rand(40, 1, 8, 8), torch.arange(40) % 3
    fixed = with_fixed(network, last_layer(network, images[:2]))
    posterior = DiagonalGaussian.around(fixed, scale=0.5)
    everywhere = DiagonalGaussian(
        means={name: tensor.detach() for name, tensor in network.named_parameters()},
        scales={
            name: posterior.scales.get(name, torch.full_like(tensor, 1e-12)).detach()
            for name, tensor in network.named_parameters()
        },
    )
    risks = [
        estimate_risk(
            module,
            distribution,
            (images, labels),
            trials=40_000,
            generator=torch.Generator().manual_seed(1),
        ).risk
        for module, distribution in ((fixed, posterior), (network, everywhere))
    ]
    assert abs(risks[0] - risks[1]) < 0.012
