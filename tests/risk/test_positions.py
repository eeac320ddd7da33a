"""Noise at positions: its covariance is that of the noise of all weights, entry by entry."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nonvacuous.risk.layers import Weights, _patches
from nonvacuous.risk.positions import at_positions


def weights(*, scales: str, entries: int, outputs: int = 3) -> Weights:
    generator = torch.Generator().manual_seed(1)
    shape = (outputs, entries)
    scale = {
        "equal": torch.full(shape, 0.3),
        "rows": (0.1 + torch.rand(outputs, 1, generator=generator)).expand(shape).clone(),
        "multiples": (0.1 + torch.rand(outputs, 1, generator=generator))
        * (0.1 + torch.rand(1, entries, generator=generator)),
        "mixed": 0.1 + torch.rand(shape, generator=generator),
    }[scales]
    return Weights.of("weight", torch.zeros(shape), scale)


def covariance(patches: Tensor, given: Weights) -> Tensor:
    """(examples, outputs, positions, positions), from what unit vectors of noise become."""
    kind = at_positions(patches.shape[2], given)
    assert kind is not None
    roots = kind(patches.mT, given)
    examples, _, positions = patches.shape
    zero = torch.zeros(examples, positions, len(given.mean))
    moved = []
    for position in range(positions):
        unit = zero.clone()
        unit[:, position] = 1.0
        moved.append(kind.added(zero.clone(), unit, *roots).mT)
    root = torch.stack(moved, dim=3).double()
    return root @ root.mT


@pytest.mark.parametrize("kind", ["plain", "equal patches", "empty patches", "dead example"])
@pytest.mark.parametrize(
    ("scales", "positions"),
    [("equal", 9), ("rows", 9), ("multiples", 9), ("mixed", 4), ("mixed", 1)],
)
def test_the_covariance_is_that_of_drawn_weights(scales: str, positions: int, kind: str) -> None:
    given = weights(scales=scales, entries=20)
    patches = torch.rand(4, 20, positions, generator=torch.Generator().manual_seed(2))
    if kind == "equal patches":
        patches[:, :, -1] = patches[:, :, 0]
    elif kind == "empty patches":
        patches[:, :, 0] = 0.0
    elif kind == "dead example":
        patches[1] = 0.0
    exact = torch.einsum(
        "nkp,ok,nkq->nopq", patches.double(), given.variance.double(), patches.double()
    )
    assert torch.allclose(covariance(patches, given), exact, rtol=0, atol=2e-6 * float(exact.max()))


@pytest.mark.parametrize("kernel", [(3, 3), (1, 2)])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, (0, 2), 1), (1, 2, 2)])
def test_patches_times_kernels_are_a_convolution(kernel, stride, padding, dilation) -> None:
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(2, 3, 7, 6, generator=generator)
    mean = torch.rand(5, 3, *kernel, generator=generator)
    given = Weights.of("weight", mean, torch.ones_like(mean)).channels_last()
    patches, grid = _patches(images, kernel, stride, padding, dilation)
    outputs = (patches @ given.mean.mT).reshape(2, *grid, 5).permute(0, 3, 1, 2)
    expected = torch.conv2d(images, mean, None, stride, padding, dilation)
    assert torch.allclose(outputs, expected, atol=1e-5)


def test_rows_of_scales_are_multiples_only_up_to_rounding() -> None:
    assert weights(scales="multiples", entries=50).entry_variance is not None
    given = weights(scales="multiples", entries=50)
    given.scale[2, 7] *= 1 + 1e-5
    assert Weights.of("weight", given.mean, given.scale).row_variance is None


def test_weights_are_drawn_where_positions_are_many() -> None:
    assert at_positions(20, weights(scales="equal", entries=20)) is None
    assert at_positions(5, weights(scales="mixed", entries=100)) is None
    assert at_positions(4, weights(scales="mixed", entries=10)) is None
