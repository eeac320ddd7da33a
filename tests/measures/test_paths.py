"""Path norms on a residual network, and depths at which plain products overflow."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from nonvacuous.measures import MEASURES, Value, panel
from nonvacuous.measures.paths import gonon_constant
from nonvacuous.networks import capture
from nonvacuous.rescaling.paths import log_path_norm, path_lifting, path_norm
from nonvacuous.rescaling.structure import structure_of
from tests.measures.worlds import world


@pytest.mark.parametrize("order", [1, 2])
def test_the_absolute_weights_identity_on_a_residual_network(order: int) -> None:
    """The network of |w|^order, run on ones, adds up all paths: no path needs to be listed."""
    subject = world("resnet")
    absolute = {name: w.abs() ** order for name, w in subject.weights.items()}
    module = copy.deepcopy(subject.module)
    # The mean over 5 x 5 positions has edges of weight 1/25, which are raised to the power too.
    average = (1 / 25) ** (order - 1)
    absolute["last.weight"] = absolute["last.weight"] * average
    with torch.no_grad():
        total = torch.func.functional_call(
            module, absolute, (torch.ones(1, 1, 5, 5, dtype=torch.float64),)
        ).sum()
    found = MEASURES[f"path-norm-{order}"](subject)
    assert isinstance(found, Value)
    assert found.number == pytest.approx(float(total) ** (1 / order), rel=1e-12)


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_against_every_path_listed(network: str) -> None:
    subject = world(network)
    lifting = path_lifting(subject.graph, dict(subject.weights))
    for order in (1, 2):
        found = MEASURES[f"path-norm-{order}"](subject)
        assert isinstance(found, Value)
        assert found.number == pytest.approx(lifting.norm(order), rel=1e-12)
        exact = path_norm(subject.graph, dict(subject.weights), order=order)
        assert found.number == pytest.approx(exact, rel=1e-12)


@pytest.mark.slow
def test_sixty_layers_of_large_weights_do_not_overflow() -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(3, 4)]
    for _ in range(60):
        layers += [nn.ReLU(), nn.Linear(4, 4)]
    module = nn.Sequential(*layers).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1e7)
    found = panel(module, torch.randn(4, 3), only=["norms", "paths", "capacity", "ranks"])
    matrices = [p.detach().double() for p in module.parameters() if p.ndim == 2]
    expected = sum(math.log(float(torch.linalg.matrix_norm(m, 2))) for m in matrices)
    product = found["spectral-product"]
    assert isinstance(product, Value) and product.number == math.inf
    assert product.log == pytest.approx(expected, rel=1e-12)
    path = found["path-norm-1"]
    assert isinstance(path, Value) and path.log is not None and path.log > 900
    # The same without biases, in exact logarithms: |W| ... |W| 1, rescaled at every layer.
    vector, log = torch.ones(3, dtype=torch.float64), 0.0
    for layer in module:
        if isinstance(layer, nn.Linear):
            # A bias is the same path with a constant 1 before it, exp(-log) by now.
            bias = layer.bias.detach().double().abs() * math.exp(-log)
            vector = layer.weight.detach().double().abs() @ vector + bias
            log += math.log(float(vector.max()))
            vector = vector / vector.max()
    assert path.log == pytest.approx(log + math.log(float(vector.sum())), rel=1e-12)
    second = found["path-norm-2"]
    assert isinstance(second, Value) and second.log is not None and second.log < path.log
    assert "e+" in str(path) and path.to_dict()["number"] is None


def test_a_network_without_a_live_path() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False)).eval()
    nn.init.zeros_(module[0].weight)
    graph = capture(module, torch.zeros(2, 2))
    assert log_path_norm(graph) == -math.inf
    assert panel(module, torch.zeros(2, 2), only=["path-norm-1"])["path-norm-1"] == Value.of(0.0)


def test_structure() -> None:
    found = structure_of(world("resnet").graph)
    # Stem, two convolutions and the last layer; batch normalization was folded.
    assert found.depth == 4 and found.pools == frozenset()
    assert structure_of(world("cnn").graph).pools == frozenset({4})
    assert structure_of(world("cnn").graph).depth == 5
    first, last = nn.Conv2d(1, 2, 2), nn.Sequential(nn.Flatten(), nn.Linear(2, 2))
    for middle in ([nn.ReLU(), nn.MaxPool2d(2)], [nn.MaxPool2d(2), nn.ReLU()]):
        module = nn.Sequential(first, *middle, last).eval()
        assert structure_of(capture(module, torch.zeros(2, 1, 3, 3))).depth == 3

    # Positive parts of finished neurons are neurons more, and so are maxima of sums of them.
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.last = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(torch.relu(self.one(x)) - torch.relu(self.two(x)))
            return self.last(torch.maximum(x + x, x))

    found = structure_of(capture(Twice().eval(), torch.zeros(2, 3)))
    assert found.depth == 5 and found.pools == frozenset({2})

    # The positive part of a maximum is a maximum of positive parts; of less than that, or of the
    # sum or mean of several, it is not: there it is a neuron above the maximum.
    class Between(nn.Module):
        def __init__(self, step: Callable[[torch.Tensor], torch.Tensor], left: int) -> None:
            super().__init__()
            self.one, self.last, self.step = nn.Conv2d(1, 2, 2), nn.Linear(left, 2), step

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pooled = nn.functional.max_pool2d(self.one(x), 2, stride=1)
            return self.last(torch.relu(self.step(pooled)).flatten(1))

    steps: list[tuple[Callable[[torch.Tensor], torch.Tensor], int, int]] = [
        (lambda pooled: pooled, 8, 3),
        (lambda pooled: pooled.transpose(2, 3), 8, 3),
        (lambda pooled: -pooled, 8, 4),
        (lambda pooled: (-pooled).neg(), 8, 4),
        (lambda pooled: pooled + pooled.transpose(2, 3), 8, 4),
        (lambda pooled: nn.functional.avg_pool2d(pooled, 2), 2, 4),
        # A maximum of negatives of maxima, and its positive part at once.
        (lambda pooled: nn.functional.max_pool2d(-pooled, 2), 2, 5),
    ]
    for step, left, depth in steps:
        found = structure_of(capture(Between(step, left).eval(), torch.zeros(2, 1, 4, 4)))
        assert found.depth == depth
    # Without pooling P = 0 and K = 1; with windows of 9, (3 + 2P) K = 45 choices per layer.
    plain = gonon_constant(depth=4, pools=0, window=1, inputs=25, outputs=3)
    assert plain**2 == pytest.approx(4 * math.log(3) + math.log(3 * 26 * 3), rel=1e-12)
    pooled = gonon_constant(depth=18, pools=1, window=9, inputs=150528, outputs=1000)
    expected = 18 * math.log(45) + math.log(2.5 * 150529 * 1000)
    assert pooled**2 == pytest.approx(expected, rel=1e-12)
