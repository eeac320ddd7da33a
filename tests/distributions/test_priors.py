"""Priors: members, prices, refusals, and the search over the grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nonvacuous.distributions import DiagonalGaussian, ScaleGrid, priors
from nonvacuous.errors import BadInput
from tests.examples import some

GRID = ScaleGrid((0.01, 0.1, 1.0))


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def test_zero_mean_prior(network: nn.Module) -> None:
    prior = priors.zero_mean(scale=0.5)
    member = prior.at(network, 0.5)
    assert all(torch.count_nonzero(mean) == 0 for mean in member.means.values())
    assert all(bool((scale == 0.5).all()) for scale in member.scales.values())
    assert prior.charge_nats(network) == 0.0
    assert prior.saw is None
    assert "zero" in prior.description and "0.5" in prior.description


def test_prior_at_initialization_keeps_the_initial_weights(network: nn.Module) -> None:
    prior = priors.at_initialization(network, grid=GRID)
    initial = {name: p.detach().clone() for name, p in network.named_parameters()}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    member = prior.at(network, 0.1)
    assert all(torch.equal(member.means[name], initial[name]) for name in initial)
    assert prior.charge_nats(network) >= math.log(3)
    assert prior.charge_nats(network) == pytest.approx(math.log(3))
    assert list(prior.grid.scales) == [0.01, 0.1, 1.0]


def test_learned_prior_records_what_it_saw(network: nn.Module) -> None:
    indices = np.array([5, 1, 3])
    prior = priors.learned(network, indices=indices, grid=GRID)
    assert prior.saw == priors.indices_digest([1, 3, 5])
    assert prior.saw == priors.indices_digest(torch.tensor([3, 5, 1]))
    assert prior.saw != priors.indices_digest([1, 3, 6])
    for bad in ([], [-1], [[1, 2]], [0.5]):
        with pytest.raises(BadInput):
            priors.learned(network, indices=bad)
    with pytest.raises(BadInput, match="saw"):
        priors.Prior(kind="learned", grid=GRID, means=prior.means)


def test_only_scales_of_the_grid(network: nn.Module) -> None:
    prior = priors.at_initialization(network, grid=GRID)
    with pytest.raises(BadInput, match="not in the grid"):
        prior.at(network, 0.2)
    free = priors.at_initialization(network, grid=GRID, per_tensor=True)
    assert free.charge_nats(network) == pytest.approx(4 * math.log(3))


def test_other_architectures_are_refused(network: nn.Module) -> None:
    prior = priors.at_initialization(network, grid=GRID)
    with pytest.raises(BadInput, match="lacks"):
        prior.at(nn.Linear(4, 3), 0.1)
    other = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    with pytest.raises(BadInput, match=r"'0\.weight' has shape"):
        prior.at(other, 0.1)


@pytest.mark.parametrize("per_tensor", [False, True])
def test_choose_finds_the_least_kl(network: nn.Module, per_tensor: bool) -> None:
    grid = ScaleGrid.geometric(1e-3, 10.0, 17)
    prior = priors.at_initialization(network, grid=grid, per_tensor=per_tensor)
    scales = {"0.weight": 0.3, "0.bias": 0.002, "2.weight": 0.05, "2.bias": 0.9}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.01)
    posterior = DiagonalGaussian.around(network, scale=scales)
    chosen = prior.choose(network, posterior)
    if per_tensor:
        for name in posterior.names:
            by_scale = [prior.at(network, s) for s in grid.scales]
            best = min(posterior.kl_to(member)[name] for member in by_scale)
            assert posterior.kl_to(chosen)[name] == best
    else:
        members = [prior.at(network, scale) for scale in prior.grid.scales]
        best = min(posterior.kl_nats(member) for member in members)
        assert posterior.kl_nats(chosen) == best


@settings(max_examples=some(120), deadline=None)
@given(st.floats(1e-6, 1e-1), st.floats(1.01, 1e6), st.integers(2, 50))
def test_geometric_grids(lowest: float, factor: float, count: int) -> None:
    grid = ScaleGrid.geometric(lowest, lowest * factor, count)
    assert len(grid) == count and grid.scales[0] == lowest
    assert grid.scales[-1] == lowest * factor
    ratios = [b / a for a, b in zip(grid.scales, grid.scales[1:], strict=False)]
    assert max(ratios) == pytest.approx(min(ratios), rel=1e-6)
    assert grid.charge_nats(choices=3) >= 3 * math.log(count) * (1 - 1e-15)


@pytest.mark.parametrize("scales", [(), (0.0,), (-1.0,), (math.nan,), (math.inf,), (1.0, 1.0)])
def test_bad_grids(scales: tuple[float, ...]) -> None:
    with pytest.raises(BadInput):
        ScaleGrid(scales)
    with pytest.raises(BadInput):
        ScaleGrid.geometric(1.0, 0.5, 4)
    with pytest.raises(BadInput):
        ScaleGrid((1.0,)).charge_nats(choices=0)
