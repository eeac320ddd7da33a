"""Layers with one output position and padding: their kernel sees a shifted image, not a vector."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nonvacuous.data import Examples
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.conv_reading import read_network
from tests.sparsity.calls import certify_sparse


def _always_wrong() -> nn.Module:
    """Reads the middle of a 3 x 3 image through the corner of a padded kernel; narrowly wrong."""
    network = nn.Sequential(
        nn.Conv2d(1, 1, 1, bias=False), nn.ReLU(),
        nn.Conv2d(1, 2, 3, stride=3, padding=1, bias=False), nn.ReLU(),
        nn.Flatten(), nn.Linear(2, 2),
    )  # fmt: skip
    state = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
    state["0.weight"][:] = 1.0
    state["2.weight"][:, 0, 2, 2] = torch.tensor([1.0, 0.5])
    state["5.weight"][0, 0] = 1.0
    state["5.bias"][0] = -1.0000001
    network.load_state_dict(state)
    return network.eval()


@pytest.mark.slow_if("sparse")
@pytest.mark.parametrize("variant", ["sparse", "dense"])
def test_a_network_that_is_always_wrong_is_not_promised_to_be_right(variant: str) -> None:
    count = 1_000
    inputs = torch.zeros(count, 1, 3, 3)
    inputs[:, 0, 1, 1] = 1.0
    examples = Examples(inputs, torch.zeros(count, dtype=torch.int64), ("a", "b"), "one point")
    found = certify_sparse(
        _always_wrong(), _always_wrong(), examples, variant=variant, subset=200, passes=1
    )
    assert found.network_errors == count
    assert found.risk_upper == 1.0


@pytest.mark.parametrize(("size", "padding"), [(3, 1), (4, 0)])
def test_an_output_layer_that_does_not_cover_its_input_once_is_refused(
    size: int, padding: int
) -> None:
    network = nn.Sequential(
        nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 2, 3, stride=3, padding=padding), nn.Flatten()
    )
    with pytest.raises(BadInput, match="must cover its input"):
        read_network(network.eval(), torch.randn(2, 1, size, size))
