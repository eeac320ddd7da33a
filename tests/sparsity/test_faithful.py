"""A module that does not predict as its layers do is not certified through them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.certify import certify
from nonvacuous.data import Examples
from nonvacuous.distributions.priors import at_initialization
from nonvacuous.errors import BadInput, Refused
from nonvacuous.sparsity.conv_reading import misread, read_faithfully, read_network
from nonvacuous.sparsity.study import study


class _Perceptron(nn.Module):
    """Computes what it seems to; the others do so only while they are read."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.one = nn.Linear(6, 12)
            self.two = nn.Linear(12, 3)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.relu(self.one(x)))


class _OtherwiseInBatches(_Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        scores = super().forward(x)
        return scores.roll(1, 1) if len(x) > 64 else scores


class _OtherwiseOutsideOfExport(_Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        scores = super().forward(x)
        return scores if torch.compiler.is_exporting() else scores.roll(1, 1)


class _OtherwiseWithGradients(_Perceptron):
    def forward(self, x: Tensor) -> Tensor:
        scores = super().forward(x)
        if torch.compiler.is_exporting() or not torch.is_grad_enabled():
            return scores
        return scores.roll(1, 1)


def _examples(module: nn.Module, count: int = 300) -> Examples:
    inputs = torch.randn(count, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        labels = _Perceptron.forward(module, inputs).argmax(1)  # type: ignore[arg-type]
    return Examples(inputs, labels, ("a", "b", "c"), "points")


def test_an_honest_module_is_read_as_it_is() -> None:
    module = _Perceptron()
    assert misread(module, read_network(module, torch.zeros(2, 6)), _examples(module)) is None
    wide = _Perceptron().double()
    assert misread(wide, read_network(wide, torch.zeros(2, 6)), _examples(module)) is None


@pytest.mark.slow_if("_OtherwiseInBatches", "_OtherwiseOutsideOfExport")
@pytest.mark.parametrize(
    "kind", [_OtherwiseInBatches, _OtherwiseOutsideOfExport, _OtherwiseWithGradients]
)
def test_a_module_that_is_read_as_another_one(kind: type[_Perceptron]) -> None:
    module = kind()
    examples = _examples(module)
    with pytest.raises(BadInput, match="otherwise than the layers"):
        read_faithfully(module, examples)
    with pytest.raises(BadInput, match="otherwise than the layers"):
        study(module, examples)
    prior = at_initialization(copy.deepcopy(module))
    method = nv.Sparsity(prior=prior, pretrained="trained elsewhere", twin=False)
    if kind is _OtherwiseInBatches:  # seen before anything is computed
        with pytest.raises(Refused, match="batch of 300"):
            certify(module, examples, method=method)
    else:
        assert certify(module, examples, method=method).status == "refused"


def test_scores_that_overflow_in_single_precision() -> None:
    module = _Perceptron()
    examples = _examples(module)
    with torch.no_grad():
        module.one.weight *= 1e30
        module.two.weight *= 1e30
    layers = read_network(module, examples.inputs[:2])
    found = misread(module, layers, examples)
    assert found is not None and "not finite" in found


def test_scores_that_drown_in_rounding() -> None:
    """In single precision a large common term swallows what tells the classes apart."""
    module = _Perceptron()
    examples = _examples(module)
    with torch.no_grad():
        module.two.bias += 1e7
    layers = read_network(module, examples.inputs[:2])
    found = misread(module, layers, examples)
    assert found is not None and "hang on rounding" in found
    assert misread(module.double(), layers, examples) is None


def test_ternary_weights_tie_exactly_and_not_by_rounding() -> None:
    module = _Perceptron()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.sign() * 0.1 * (parameter.abs() > 0.2))
    inputs = torch.randint(0, 2, (300, 6), generator=torch.Generator().manual_seed(3)).float()
    examples = Examples(inputs, torch.arange(300) % 3, ("a", "b", "c"), "bits")
    assert misread(module, read_network(module, inputs[:2]), examples) is None


def test_networks_that_are_dead_on_an_example_tie_in_both() -> None:
    module = _Perceptron()
    examples = _examples(module)
    with torch.no_grad():
        module.one.bias -= 100.0
        module.two.bias.zero_()
    assert misread(module, read_network(module, examples.inputs[:2]), examples) is None


def test_convolutions_are_compared_too() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)
    ).eval()
    images = torch.randn(150, 1, 6, 6)
    labels = torch.randint(0, 3, (150,))
    examples = Examples(images, labels, ("a", "b", "c"), "images")
    chain = read_faithfully(module, examples)
    with torch.no_grad():
        module[4].weight.copy_(module[4].weight.roll(1, 0))
    found = misread(module, chain, examples)
    assert found is not None and "otherwise" in found
