"""The last digits of the best point: the same in every gauge, and never a worse slope."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks import capture, scale_groups
from nonvacuous.rescaling.solver import kl_along_orbit, polished, push, rescale


def slope_of(Q: DiagonalGaussian, P: DiagonalGaussian, groups, moves: np.ndarray) -> np.ndarray:
    """The derivative by plain differences, from the function that certificates quote."""
    step = 1e-4
    values = []
    for place in range(groups.size):
        unit = np.zeros(groups.size)
        unit[place] = step
        up, down = (
            sum(kl_along_orbit(Q, P, groups, moves + sign * unit).values()) for sign in (1, -1)
        )
        values.append((up - down) / (2 * step))
    return np.array(values)


def case(kind: str) -> tuple[DiagonalGaussian, DiagonalGaussian, object]:
    torch.manual_seed(0)
    if kind == "convolutional":
        network: nn.Module = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(48, 5),
        )  # fmt: skip
        example = torch.zeros(1, 1, 8, 8)
    else:
        network = nn.Sequential(
            nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3)
        )
        example = torch.zeros(1, 6)
    network = network.double().eval()
    groups = scale_groups(capture(network, example.double()))
    Q = DiagonalGaussian.around(network, scale=0.05)
    if kind == "around other weights":
        means = {n: p + 0.2 * torch.randn_like(p) for n, p in Q.means.items()}
        return Q, DiagonalGaussian.from_means(means, 0.3), groups
    return Q, DiagonalGaussian.centered(network, scale=0.3), groups


@pytest.mark.slow_if("around other weights")
@pytest.mark.parametrize("kind", ["dense", "convolutional", "around other weights"])
def test_the_best_point_is_the_same_in_every_gauge(kind: str) -> None:
    Q, P, groups = case(kind)
    ends = []
    for seed in range(3):
        moves = np.random.default_rng(seed).normal(size=groups.size) * (seed > 0)
        moved = push(Q, groups, moves)
        ends.append(moves + polished(moved, P, groups, rescale(moved, P, groups).log_scales))
    for end in ends[1:]:
        assert end == pytest.approx(ends[0], abs=1e-11)
    assert slope_of(Q, P, groups, ends[0]) == pytest.approx(np.zeros(groups.size), abs=1e-5)


def test_far_from_the_best_point_it_does_no_harm() -> None:
    Q, P, groups = case("dense")
    far = np.random.default_rng(1).normal(size=groups.size) * 3
    found = polished(Q, P, groups, far)
    before, after = (np.abs(slope_of(Q, P, groups, point)).max() for point in (far, found))
    assert after <= before


def test_a_network_without_scales_stays_as_it_is() -> None:
    network = nn.Linear(3, 2).eval()
    groups = scale_groups(capture(network, torch.zeros(1, 3)))
    Q = DiagonalGaussian.around(network, scale=0.1)
    assert polished(Q, Q, groups, np.zeros(0)).size == 0
