"""Moving along the scales: a group action that leaves its argument alone."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nonvacuous.errors import BadInput
from nonvacuous.networks import capture, rescaled, scale_groups
from tests.networks.dense import mlp

MODULE = mlp(nn.ReLU).double().eval()
X = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
GROUPS = scale_groups(capture(MODULE, X))
VECTORS = st.lists(st.floats(-3, 3), min_size=GROUPS.size, max_size=GROUPS.size).map(np.array)


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@given(VECTORS, VECTORS)
def test_moving_twice_is_moving_by_the_sum(first: np.ndarray, second: np.ndarray) -> None:
    twice = rescaled(rescaled(MODULE, GROUPS, first), GROUPS, second)
    once = rescaled(MODULE, GROUPS, first + second)
    torch.testing.assert_close(weights(twice), weights(once), rtol=1e-13, atol=0)


@given(VECTORS)
def test_moving_back_and_the_function_on_the_way(scales: np.ndarray) -> None:
    there = rescaled(MODULE, GROUPS, scales)
    torch.testing.assert_close(there(X), MODULE(X), rtol=1e-12, atol=1e-12)
    back = rescaled(there, GROUPS, -scales)
    torch.testing.assert_close(weights(back), weights(MODULE), rtol=1e-13, atol=0)


def test_zero_moves_nothing_and_the_argument_is_never_changed() -> None:
    before = copy.deepcopy(MODULE.state_dict())
    same = rescaled(MODULE, GROUPS, np.zeros(GROUPS.size))
    assert torch.equal(weights(same), weights(MODULE))
    assert same is not MODULE
    rescaled(MODULE, GROUPS, np.ones(GROUPS.size))
    assert all(torch.equal(value, before[name]) for name, value in MODULE.state_dict().items())


def test_weights_keep_their_type_and_are_rounded_once() -> None:
    module = copy.deepcopy(MODULE).float()
    scales = np.random.default_rng(0).normal(size=GROUPS.size)
    moved = rescaled(module, GROUPS, scales)
    factors = GROUPS.factors(scales)
    for name, parameter in moved.named_parameters():
        assert parameter.dtype == torch.float32
        exact = module.get_parameter(name).detach().double().numpy() * factors[name]
        assert np.array_equal(parameter.detach().numpy(), exact.astype(np.float32))


def test_a_tied_weight_is_scaled_once_and_stays_tied() -> None:
    module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False))
    last = nn.Linear(4, 2)
    module = nn.Sequential(*module, nn.ReLU(), last).double().eval()
    module[2].weight = module[0].weight
    groups = scale_groups(capture(module, X))
    moved = rescaled(module, groups, np.ones(groups.size))
    assert moved[0].weight is moved[2].weight
    torch.testing.assert_close(moved(X), module(X), rtol=1e-12, atol=1e-12)


def test_groups_of_another_network_are_refused() -> None:
    with pytest.raises(BadInput, match=r"another network.*0\.weight"):
        rescaled(nn.Linear(4, 2), GROUPS, np.zeros(GROUPS.size))
