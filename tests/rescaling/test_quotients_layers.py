"""Finding the last layer and the layers of interchangeable units in captured networks."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch import Tensor, nn

from nonvacuous.errors import NotYetSupported
from nonvacuous.models.cnn import Cnn, Mlp
from nonvacuous.networks import capture
from nonvacuous.rescaling.output_layer import OutputLayer, output_layer
from nonvacuous.rescaling.quotients import symmetries_of
from nonvacuous.rescaling.unit_layers import UnitLayer, unit_layers

IMAGE = torch.zeros(2, 3, 8, 8)
VECTOR = torch.zeros(2, 6)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.inner = nn.Conv2d(4, 5, 3, padding=1)
        self.back = nn.Conv2d(5, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = (x + self.back(self.inner(x).relu())).relu()
        return self.head(x.mean((2, 3)))


class TwoReaders(nn.Module):
    """Two layers read the same units, one through an extra activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left = nn.Linear(6, 5), nn.Linear(5, 4)
        self.right, self.last = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return self.last((self.left(x) + self.right(x.tanh())).relu())


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value, self.last = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.gate(x).sigmoid() * self.value(x))


class Tied(nn.Module):
    """The same layer twice in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.last = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        return self.last(self.again(self.again(x).relu()).relu())


class Transposed(nn.Module):
    """A flattening that does not keep the pixels of a channel together."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 4, 1), nn.Linear(4 * 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.conv(x).relu().permute(0, 2, 3, 1).flatten(1))


class TokenMixer(nn.Module):
    """A linear layer along the pixels, not along the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.last = nn.Conv2d(3, 4, 1), nn.Linear(64, 6), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.mix(self.conv(x).relu().flatten(2)).relu().flatten(1))


def sequential(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


NETWORKS: dict[str, tuple[nn.Module, Tensor, set[str]]] = {
    "mlp": (Mlp((6,), 3, widths=(5, 4)), VECTOR, {"layers.0", "layers.2"}),
    "cnn": (Cnn((3, 8, 8), 3, channels=(4, 5), hidden=(6,)), IMAGE,
            {"blocks.0", "blocks.3", "layers.0"}),
    "no bias, smooth": (
        sequential(nn.Linear(6, 5, bias=False), nn.GELU(), nn.Dropout(), nn.Linear(5, 3)),
        VECTOR, {"0"}),
    "residual": (Residual(), IMAGE, {"inner"}),
    "two readers": (TwoReaders(), VECTOR, {"first"}),
    "gated": (Gated(), VECTOR, set()),
    "tied": (Tied(), VECTOR, set()),
    "batch norm": (
        sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                   nn.Linear(256, 3)), IMAGE, set()),
    "layer norm": (
        sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 3)), VECTOR, set()),
    "grouped": (
        sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, 1, groups=2), nn.ReLU(),
                   nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)), IMAGE, set()),
    "slope per channel": (
        sequential(nn.Linear(6, 5), nn.PReLU(5), nn.Linear(5, 3)), VECTOR, set()),
    "pixels interleaved": (Transposed(), IMAGE, set()),
    "token mixer": (TokenMixer(), IMAGE, set()),
}  # fmt: skip


def reordered(module: nn.Module, layer: UnitLayer, order: Tensor) -> nn.Module:
    """A copy in which the blocks of a layer's units have changed places."""
    result = copy.deepcopy(module)
    parameters = dict(result.named_parameters())
    with torch.no_grad():
        for name, axis, entries in layer.tensors:
            tensor = parameters[name]
            split = tensor.unflatten(axis, (layer.units, entries))
            tensor.copy_(split.index_select(axis, order).flatten(axis, axis + 1))
    return result


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_are_found_and_any_order_of_their_units_gives_the_same_function(name: str) -> None:
    module, example, expected = NETWORKS[name]
    torch.manual_seed(0)
    module = copy.deepcopy(module).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    layers, _ = unit_layers(capture(module, example))
    assert {layer.name for layer in layers} == expected
    inputs = torch.randn(example.shape, dtype=torch.float64)
    module = module.double()
    before = module(inputs)
    for layer in layers:
        order = torch.randperm(layer.units)
        while bool((order == torch.arange(layer.units)).all()):
            order = torch.randperm(layer.units)
        torch.testing.assert_close(reordered(module, layer, order)(inputs), before)
        # The block is complete: leaving any tensor behind changes the function.
        for left_behind in layer.tensors:
            rest = tuple(t for t in layer.tensors if t != left_behind)
            part = UnitLayer(layer.name, layer.units, rest)
            assert not torch.allclose(reordered(module, part, order)(inputs), before)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gated", r"aten\.sigmoid|aten\.mul"),
        ("tied", "several places"),
        ("batch norm", "batch_norm"),
        ("layer norm", "layer_norm"),
        ("grouped", "groups"),
        ("slope per channel", "prelu"),
        ("pixels interleaved", "permute"),
        ("token mixer", "mixes positions"),
        ("residual", r"aten\.add"),
    ],
)
def test_refusals_name_the_reason(name: str, reason: str) -> None:
    module, example, _ = NETWORKS[name]
    _, refused = unit_layers(capture(module.eval(), example))
    assert any(re.search(reason, entry.reason) for entry in refused), refused


def test_the_last_layer_is_never_interchangeable() -> None:
    module, example, _ = NETWORKS["mlp"]
    _, refused = unit_layers(capture(module.eval(), example))
    assert [(entry.layer, "returns" in entry.reason) for entry in refused] == [("layers.4", True)]


def test_the_output_layer_is_found() -> None:
    module, example, _ = NETWORKS["cnn"]
    found = output_layer(capture(module.eval(), example))
    assert found == OutputLayer("layers.2.weight", "layers.2.bias")
    plain = sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3, bias=False), nn.LogSoftmax(-1))
    assert output_layer(capture(plain.eval(), VECTOR)) == OutputLayer("2.weight", None)


@pytest.mark.parametrize(
    ("module", "example", "reason"),
    [
        (sequential(nn.Linear(6, 3), nn.ReLU()), VECTOR, "not of a linear layer"),
        (sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()), IMAGE, "not of a"),
        (sequential(nn.Linear(6, 6), nn.Softmax(0)), VECTOR, "not of a linear layer"),
        (sequential(nn.Softmax(-1)), VECTOR, "not of a linear layer"),
    ],
)
def test_other_last_layers_are_refused(module: nn.Module, example: Tensor, reason: str) -> None:
    with pytest.raises(NotYetSupported, match=reason):
        output_layer(capture(module.eval(), example))


def test_symmetries_gathers_what_there_is() -> None:
    module, example, expected = NETWORKS["cnn"]
    found = symmetries_of(capture(module.eval(), example))
    assert found.output == OutputLayer("layers.2.weight", "layers.2.bias")
    assert {layer.name for layer in found.layers} == expected
    without = sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3), nn.ReLU())
    found = symmetries_of(capture(without.eval(), VECTOR))
    assert found.output is None
    assert [layer.name for layer in found.layers] == ["0"]
    assert "the scores" in [entry.layer for entry in found.refused]


def test_a_tied_last_layer_is_refused() -> None:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 6))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(nn.functional.linear(x, self.weight).relu(), self.weight)

    with pytest.raises(NotYetSupported, match="used elsewhere too"):
        output_layer(capture(Autoencoder().eval(), VECTOR))
