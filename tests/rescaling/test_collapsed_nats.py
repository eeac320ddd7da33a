"""The KL from collapsed sums against the full tensors and against exact arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.rescaling.collapse import collapse, collapsed_nats
from nonvacuous.rescaling.reading import Reading, row_sums
from nonvacuous.rescaling.solver import kl_along_orbit, rescale, total_nats
from tests.rescaling.hand_groups import ARCHITECTURES, mlp
from tests.rescaling.problems import posterior, prior
from tests.rescaling.test_orbit import exact_nats, random_scales

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
        found = collapsed_nats(collapse(Reading.of(Q, P), groups), groups, moves)
        assert found is not None
        assert found == pytest.approx(kl_along_orbit(Q, P, groups, moves), rel=1e-10)


@given(seed=st.integers(0, 10_000), spread=st.sampled_from([0.0, 1e-3, 1.0, 20.0]))
def test_never_below_the_exact_value(seed: int, spread: float) -> None:
    groups = mlp(3, 4, 2, 2)
    dtype = torch.float32 if seed % 5 == 0 else torch.float64
    Q = posterior(groups, seed=seed, dtype=dtype)
    P = prior(groups, seed=seed, centered=seed % 2 == 0, dtype=dtype)
    if seed % 3 == 0:
        Q, P = (DiagonalGaussian.from_means(d.means, s) for d, s in ((Q, 0.05), (P, 0.3)))
    # Multiples of a power of two, so that sums of two log-scales are exact in float64.
    moves = np.round(random_scales(groups.size, seed=seed, spread=spread) * 2**40) / 2**40
    found = collapsed_nats(collapse(Reading.of(Q, P), groups), groups, moves)
    assert found is not None
    logs = {}
    padded = np.append(moves, 0.0)
    for name, shape in groups.shapes.items():
        logs[name] = np.zeros(shape)
        for scale in groups.exponents[name]:
            where = [1] * len(shape)
            where[scale.axes[0]] = -1
            logs[name] = logs[name] + scale.power * padded[scale.index].reshape(where)
    for name, exact in exact_nats(Q, P, logs).items():
        assert mpmath.mpf(found[name]) >= exact


def test_where_everything_cancels_the_tensors_are_read_again() -> None:
    groups = ARCHITECTURES["residual"]()
    P = prior(groups, seed=3, centered=False)
    Q = DiagonalGaussian(
        means={n: t * (1 + 1e-9) for n, t in P.means.items()},
        scales={n: t * (1 + 1e-9) for n, t in P.scales.items()},
    )
    unmoved = np.zeros(groups.size)
    assert collapsed_nats(collapse(Reading.of(Q, P), groups), groups, unmoved) is None
    assert rescale(Q, P, groups).kl_before == total_nats(kl_along_orbit(Q, P, groups, unmoved))


def test_factors_beyond_the_range_of_squares_are_left_to_the_full_tensors() -> None:
    groups = mlp(2, 2, 1)
    Q, P = posterior(groups, seed=1), prior(groups, seed=1)
    terms = collapse(Reading.of(Q, P), groups)
    assert collapsed_nats(terms, groups, np.full(2, 120.0)) is None
    assert collapsed_nats(terms, groups, np.full(2, 110.0)) is not None


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
        exact = torch.stack([(m0 / s0).square().sum(), logs.sum(), logs.abs().sum()])
        torch.testing.assert_close(numbers, exact, rtol=1e-12, atol=0)
