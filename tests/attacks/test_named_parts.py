"""What a user calls a part of a network changes nothing in what is measured."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.models.fronts import fixed_front
from nonvacuous.models.scattering import ScatteringNet
from nonvacuous.risk.pairs import estimate_risk


class Signs(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs > 0).float()


class Gated(nn.Module):
    """Looks at the inputs behind its front, too."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        setattr(self, name, Signs())
        self.head = nn.Linear(9, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs * getattr(self, self.name)(inputs))


def test_a_part_called_fixed_front_is_a_part_like_others() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(300, 9, generator=generator)
    labels = (inputs.sign().sum(1) > 0).long()
    counts = []
    for name in ("fixed_front", "gate"):
        network = Gated(name).eval()
        with torch.no_grad():
            network.head.weight.copy_(torch.tensor([[-1.0], [1.0]]).expand(2, 9))
            network.head.bias.copy_(torch.tensor([2.0, -2.0]))
        posterior = DiagonalGaussian.around(network, scale=0.1)
        options = {"trials": 2000, "generator": torch.Generator().manual_seed(0)}
        counts.append(estimate_risk(network, posterior, (inputs, labels), **options).errors)
    assert counts[0] == counts[1] > 0


def hooked(network: ScatteringNet) -> None:
    network.register_forward_pre_hook(lambda _, inputs: (1.0 - inputs[0],))


def patched(network: ScatteringNet) -> None:
    original = network.forward
    network.forward = lambda inputs: original(1.0 - inputs)


def replaced(network: ScatteringNet) -> None:
    network.fixed_front = nn.Conv2d(1, 81, 3)


def extended(network: ScatteringNet) -> None:
    network.fixed_front.offset = nn.Parameter(torch.zeros(()))


@pytest.mark.parametrize("alter", [hooked, patched, replaced, extended])
def test_a_network_of_ours_that_was_altered_is_a_user_s(alter) -> None:
    network = ScatteringNet((1, 8, 8), 2, width=2)
    assert fixed_front(network) is network.fixed_front
    alter(network)
    assert fixed_front(network) is None
