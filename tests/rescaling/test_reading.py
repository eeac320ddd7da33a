"""The sums of a tensor, and the KL out of collapsed ones, against the full tensors."""

from __future__ import annotations

import pytest
import torch

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.rescaling.collapse import collapse
from nonvacuous.rescaling.reading import Reading, row_sums
from nonvacuous.rescaling.solver import kl_along_orbit, total_nats
from nonvacuous.rescaling.sweeps import Descent
from tests.rescaling.hand_groups import ARCHITECTURES
from tests.rescaling.problems import posterior, prior
from tests.rescaling.test_orbit import random_scales

BOTH = pytest.mark.parametrize("centered", [True, False], ids=["zero means", "other means"])


@BOTH
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_equals_the_kl_of_the_full_tensors(name: str, dtype: torch.dtype, centered: bool) -> None:
    groups = ARCHITECTURES[name]()
    Q = posterior(groups, seed=21, dtype=dtype)
    P = prior(groups, seed=21, centered=centered, dtype=dtype)
    if dtype == torch.float32:  # one scale for all weights of a tensor: the short way to the sums
        Q, P = (DiagonalGaussian.from_means(d.means, s) for d, s in ((Q, 0.05), (P, 0.3)))
    for spread in (0.0, 1.5):
        moves = random_scales(groups.size, seed=21, spread=spread)
        point = Descent(collapse(Reading.of(Q, P), groups), torch.from_numpy(moves))
        expected = total_nats(kl_along_orbit(Q, P, groups, moves))
        assert point.nats(point.totals()) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("axes", [[0, 1], [0], [1], [], [0, 2]])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@BOTH
def test_row_sums_whatever_the_axes_and_the_memory_format(
    axes: list[int], memory: torch.memory_format, centered: bool
) -> None:
    generator = torch.Generator().manual_seed(4)
    mean, other = (torch.randn(70, 40, 3, 3, generator=generator) for _ in range(2))
    center = torch.zeros_like(other) if centered else other
    for spread in (0.0, 0.1):  # one scale for all weights, then one for each
        noise = spread * torch.rand(mean.shape, generator=generator)
        Q = DiagonalGaussian({"w": mean.to(memory_format=memory)}, {"w": 0.05 + noise})
        P = DiagonalGaussian({"w": center}, {"w": 0.5 + noise})
        found, numbers = row_sums(Reading.of(Q, P), "w", axes)
        m, s, m0, s0 = (
            d.double() for d in (Q.means["w"], Q.scales["w"], P.means["w"], P.scales["w"])
        )
        summed = [axis for axis in range(4) if axis not in axes]
        squares = ((m.square() + s.square()) / s0.square()).sum(summed)
        torch.testing.assert_close(found.squares, squares, rtol=1e-13, atol=0)
        if not centered:
            products = (m * m0 / s0.square()).sum(summed)
            torch.testing.assert_close(found.products, products, rtol=1e-9, atol=1e-9)
        logs = 2 * (s / s0).log()
        exact = torch.stack([(m0 / s0).square().sum(), logs.sum()])
        torch.testing.assert_close(numbers, exact, rtol=1e-12, atol=0)
