"""Copies of users' networks: what has a graph is copied without it, the rest is explained."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import prune, spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from nonvacuous.certification.candidate import frozen_copy
from nonvacuous.data import Examples
from nonvacuous.distributions import priors
from nonvacuous.distributions.copying import copied_network
from nonvacuous.errors import BadInput
from tests.training.calls import train_posterior


@pytest.mark.parametrize(
    "change",
    [
        weight_norm,
        spectral_norm,
        lambda layer: prune.random_unstructured(layer, "weight", 0.3),
        lambda layer: setattr(layer, "last", layer(torch.ones(1, 4))) or layer,
        lambda layer: setattr(layer, "kept", {"all": [layer(torch.ones(1, 4))]}) or layer,
    ],
    ids=["weight norm", "spectral norm", "pruning", "activation", "activations"],
)
def test_tensors_with_a_graph_are_copied_without_it(change: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the older norms
        layer = change(nn.Linear(4, 3))  # type: ignore[operator]
    network = nn.Sequential(layer, nn.ReLU())
    network(torch.ones(2, 4))
    network.eval()
    copied = frozen_copy(network)
    inputs = torch.randn(5, 4)
    assert torch.equal(copied(inputs), network(inputs))
    assert not copied(inputs).requires_grad and network(inputs).requires_grad
    with torch.no_grad():
        next(copied.parameters()).add_(1.0)
    assert not torch.equal(next(copied.parameters()), next(network.parameters()))


@pytest.mark.slow
def test_what_cannot_be_copied_is_explained() -> None:
    locked = nn.Linear(4, 3)
    locked.lock = threading.Lock()  # type: ignore[assignment]
    scripted = torch.jit.trace(nn.Linear(4, 3), torch.ones(1, 4))
    for network, advice in (
        (locked, "plain values"),
        (scripted, "nn.Module that it was made from"),
        (nn.Sequential(scripted), "nn.Module that it was made from"),
        (nn.Sequential(nn.LazyLinear(3)), "'0.weight' has no shape yet"),
    ):
        with pytest.raises(BadInput, match=advice):
            copied_network(network)


@pytest.mark.slow
def test_checkpointed_networks_are_explained() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden = checkpoint(lambda x: self.first(x).relu(), inputs, use_reentrant=False)
            scores: torch.Tensor = self.last(hidden)
            return scores

    network = Checkpointed()
    data = Examples(torch.randn(20, 4), torch.arange(20) % 3, ("a", "b", "c"), "few")
    prior = priors.at_initialization(network).at(network, 1.0)
    with pytest.raises(BadInput, match="checkpointing"):
        train_posterior(network, prior, data, epochs=1, batch_size=10, failure=0.05)
