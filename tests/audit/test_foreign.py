"""Tensors that a network uses without owning them are seen when they are used."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nonvacuous.audit.foreign import LONGEST_LITERAL, foreign_tensor
from nonvacuous.audit.probing import Network
from nonvacuous.distributions.attributes import attribute_tensors
from tests.networks.architectures import ARCHITECTURES

TABLE = torch.linspace(-1.0, 1.0, 4 * 40).reshape(4, 40)


class Reader(nn.Module):
    """Looks its table up in one of many places."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.last = nn.Linear(40, 3)
        self.place = place
        self.table = TABLE.clone()
        self.arrays = {"table": TABLE.numpy().copy()}
        self.register_buffer("buffer", TABLE.clone())
        self.state = SimpleNamespace(table=TABLE.clone())
        self.numbers = TABLE.tolist()
        self.tied = [self.last.weight]

    def forward(self, x: Tensor) -> Tensor:
        hidden = {
            "attribute": lambda: x @ self.table,
            "array": lambda: x @ torch.from_numpy(self.arrays["table"]),
            "part of an array": lambda: x[:, 1:] @ torch.from_numpy(self.arrays["table"][1:]),
            "buffer": lambda: x @ self.buffer,
            "literal": lambda: torch.cat([x * torch.tensor([1.0, 2.0, 3.0, 4.0])] * 10, 1),
            "number": lambda: torch.cat([torch.where(x > 0, x, 0.0) ** 2] * 10, 1),
            "computed": lambda: x @ torch.arange(160.0).reshape(4, 40).sin(),
            "global": lambda: x @ TABLE,
            "global array": lambda: x @ torch.from_numpy(GLOBAL),
            "object": lambda: x @ self.state.table,
            "long literal": lambda: x @ torch.tensor(self.numbers),
            "outside of torch": lambda: torch.from_numpy(x.numpy() @ GLOBAL),
            "past the parameter": lambda: torch.cat([x] * 10, 1) * self.tied[0][0],
        }[self.place]()
        scores: Tensor = self.last(hidden)
        return scores


GLOBAL: np.ndarray = TABLE.numpy().copy()
OWN = ("attribute", "array", "part of an array", "buffer", "literal", "number", "computed")
FOREIGN = (
    "global", "global array", "object", "long literal", "outside of torch", "past the parameter",
)  # fmt: skip


@pytest.mark.parametrize("place", OWN)
def test_what_the_network_owns_is_known(place: str) -> None:
    assert foreign_tensor(Network.of(Reader(place).eval()), torch.ones(5, 4)) is None


@pytest.mark.parametrize("place", FOREIGN)
def test_what_it_does_not_own_is_found(place: str) -> None:
    module = Reader(place).eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    found = foreign_tensor(Network.of(module), torch.ones(5, 4))
    assert found is not None and "shape" in found
    assert all(torch.equal(before[name], t) for name, t in module.state_dict().items())


def test_a_literal_is_short() -> None:
    class Written(nn.Module):
        def __init__(self, count: int) -> None:
            super().__init__()
            self.count = count

        def forward(self, x: Tensor) -> Tensor:
            return x + torch.tensor([1.0] * self.count)

    for count, known in ((LONGEST_LITERAL, True), (LONGEST_LITERAL + 1, False)):
        found = foreign_tensor(Network.of(Written(count)), torch.zeros(2, count))
        assert (found is None) is known


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda entry: entry.name)
def test_networks_of_all_kinds_own_what_they_use(architecture) -> None:
    module, example = architecture.made()
    assert attribute_tensors(module) == {}
    assert foreign_tensor(Network.of(module), example) is None


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_hold_their_weights_twice(kind: type[nn.RNNBase]) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = kind(4, 5, 2, batch_first=True), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.last(self.layer(x)[0][:, -1])
            return scores

    assert foreign_tensor(Network.of(Last().eval()), torch.randn(3, 6, 4)) is None
