"""Bias scales that grow with depth: how they are built, and what choosing the growth costs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.priors import ScaleGrid
from nonvacuous.errors import BadInput
from nonvacuous.models.cnn import Cnn, Mlp
from nonvacuous.networks import capture, scale_groups
from nonvacuous.rescaling.bias_prior import bias_depths, choose_bias_growth, geometric_bias_prior
from nonvacuous.rescaling.permutation import check_exchangeable
from nonvacuous.rescaling.solver import rescale
from nonvacuous.rescaling.unit_layers import unit_layers


def test_depths_follow_the_longest_way() -> None:
    graph = capture(Cnn((1, 8, 8), 3, channels=(2, 2), hidden=(4,)).eval(), torch.zeros(2, 1, 8, 8))
    assert bias_depths(graph) == {
        "blocks.0.bias": 0,
        "blocks.3.bias": 1,
        "layers.0.bias": 2,
        "layers.2.bias": 3,
    }

    class Shortcut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(3, 3) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x).relu()
            return self.c(x + self.b(x).relu())

    assert bias_depths(capture(Shortcut().eval(), torch.zeros(2, 3))) == {
        "a.bias": 0,
        "b.bias": 1,
        "c.bias": 2,
    }


def deep_network() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Mlp((20,), 5, widths=(16,) * 5).eval(), torch.zeros(2, 20)


def test_growth_frees_the_scales_of_a_deep_network() -> None:
    module, example = deep_network()
    graph = capture(module, example)
    groups, depths = scale_groups(graph), bias_depths(graph)
    Q = DiagonalGaussian.around(module, scale=0.01)

    def kl_nats(P: DiagonalGaussian) -> float:
        return rescale(Q, P, groups).kl_after

    grid = ScaleGrid((0.5, 1.0, 2.0, 4.0))
    chosen = choose_bias_growth(graph.parameters, depths, growths=grid, kl_nats=kl_nats)
    assert chosen.scales["bias growth"] > 1
    assert chosen.charge_nats == pytest.approx(math.log(4))
    assert chosen.charge_nats > 0
    flat = geometric_bias_prior(graph.parameters, depths)
    assert kl_nats(chosen.distribution) + chosen.charge_nats < kl_nats(flat)
    single = choose_bias_growth(
        graph.parameters, depths, growths=ScaleGrid((2.0,)), kl_nats=kl_nats
    )
    assert single.charge_nats == 0.0


def test_units_stay_interchangeable_under_growing_bias_scales() -> None:
    module, example = deep_network()
    graph = capture(module, example)
    P = geometric_bias_prior(graph.parameters, bias_depths(graph), growth=3.0, bias_scale=0.1)
    for layer in unit_layers(graph).layers:
        check_exchangeable(P, layer)
    assert float(P.scales["layers.4.bias"][0]) == pytest.approx(0.1 * 9)
    assert float(P.scales["layers.4.weight"][0, 0]) == 1.0
    P.check_covers(module)
    assert all(not bool(mean.any()) for mean in P.means.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"growth": 0.0}, "growth"),
        ({"scale": -1.0}, "scale"),
        ({"bias_scale": math.inf}, "bias_scale"),
    ],
)
def test_impossible_scales_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        geometric_bias_prior({"w": (2,), "b": (2,)}, {"b": 1}, **arguments)
    with pytest.raises(BadInput, match="not a parameter"):
        geometric_bias_prior({"w": (2,)}, {"b": 1})
