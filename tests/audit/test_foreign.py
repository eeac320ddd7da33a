"""Tensors that a network uses without owning them are seen when they are used."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nonvacuous.audit.probing import WATCHED, Network, foreign_tensor
from nonvacuous.audit.watching import ALLOWED_NUMBERS
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


class Adding(nn.Module):
    """Adds what a function makes of the inputs."""

    def __init__(self, what: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: Tensor) -> Tensor:
        return x + self.what(x)


def seen(what: Callable[[Tensor], Tensor], inputs: Tensor) -> str | None:
    return foreign_tensor(Network.of(Adding(what)), inputs)


NUMBERS = [float(value) for value in range(2 * WATCHED)]
SCALARS = [torch.tensor(value) for value in NUMBERS]
PARTS = torch.tensor(NUMBERS).unbind()
FEW = ALLOWED_NUMBERS


@pytest.mark.parametrize(
    "table",
    [
        lambda count: torch.tensor(NUMBERS[:count]),
        lambda count: torch.stack([torch.tensor(value) for value in NUMBERS[:count]]),
        lambda count: torch.cat([torch.tensor([value]) for value in NUMBERS[:count]]),
        lambda count: torch.stack(SCALARS[:count]),
        lambda count: torch.from_numpy(np.asarray(NUMBERS[:count])).float(),
    ],
    ids=["one literal", "numbers", "rows", "tensors outside", "array outside"],
)
def test_few_numbers_may_be_brought_along_in_all(table: Callable[[int], Tensor]) -> None:
    for count, known in ((FEW, True), (FEW + 1, False)):
        found = seen(lambda x, count=count: table(count), torch.zeros(2, count))
        assert (found is None) is known


def test_parts_of_a_longer_storage_count_as_all_of_it() -> None:
    assert seen(lambda x: torch.stack(PARTS[:3]), torch.zeros(2, 3)) is not None


def test_the_same_number_again_and_a_tensor_of_one_number_count_once() -> None:
    def steps(x: Tensor) -> Tensor:
        for _ in range(3 * FEW):
            x = x * torch.tensor(0.5) + torch.tensor([1.0, 2.0])
        return x + torch.tensor([3] * len(x)).unsqueeze(1)

    assert seen(steps, torch.zeros(WATCHED, 2)) is None


def test_one_number_looked_up_for_each_example_is_too_many() -> None:
    labels = {float(value): value % 3 for value in range(WATCHED)}
    inputs = torch.arange(float(WATCHED)).unsqueeze(1)
    found = seen(lambda x: torch.tensor([[labels[row[0]]] for row in x.tolist()]), inputs)
    assert found is not None


def test_a_small_parameter_is_no_constant() -> None:
    class Past(nn.Module):
        def __init__(self, how: str) -> None:
            super().__init__()
            self.last = nn.Linear(4, 3)
            self.how, self.tied = how, [self.last.bias]

        def forward(self, x: Tensor) -> Tensor:
            again = self.tied[0].data if self.how == "data" else self.tied[0]
            scores: Tensor = self.last(x) + again
            return scores

    for how in ("itself", "data"):
        assert foreign_tensor(Network.of(Past(how)), torch.ones(2, 4)) is not None


@pytest.mark.nightly_if("resnet50")
@pytest.mark.slow_if("resnet50 folded", "resnet18 folded", "vgg folded")
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


def test_transformers_and_compiled_networks_own_what_they_use() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    transformer = nn.Sequential(
        nn.TransformerEncoder(layer, 1), nn.Flatten(), nn.Linear(24, 3)
    ).eval()
    inputs = torch.randn(WATCHED, 6, 4)
    assert foreign_tensor(Network.of(transformer), inputs) is None
    compiled = torch.compile(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), backend="eager")
    assert foreign_tensor(Network.of(compiled), inputs) is None  # type: ignore[arg-type]
