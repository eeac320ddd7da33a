"""Noise at positions: its covariance is that of the noise of all weights, entry by entry."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nonvacuous.risk.positions import Positions, Vectors, Weights, Windows, root_at


def weights(*, scales: str, entries: int, outputs: int = 40) -> Weights:
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


def covariance(inputs: Tensor, where: Positions, given: Weights) -> Tensor:
    """(examples, outputs, positions, positions), from what unit vectors of noise become."""
    root = root_at(where, given)
    assert root is not None
    roots = root(where, inputs, given)
    zero = torch.zeros(len(inputs), where.count, len(given.mean))
    moved = []
    for position in range(where.count):
        unit = zero.clone()
        unit[:, position] = 1.0
        moved.append(root.added(zero.clone(), unit, *roots).mT)
    stacked = torch.stack(moved, dim=3).double()
    return stacked @ stacked.mT


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
    measured = covariance(patches.mT.contiguous(), Vectors(positions), given)
    assert torch.allclose(measured, exact, rtol=0, atol=2e-6 * float(exact.max()))


WINDOWS = [
    Windows((channels, height, width), kernel, stride, padding, dilation)
    for channels, height, width, kernel, stride, padding, dilation in (
        (8, 4, 4, (3, 3), (1, 1), (1, 1), (1, 1)),
        (8, 2, 2, (3, 3), (1, 1), (1, 1), (1, 1)),
        (1, 7, 6, (3, 3), (1, 1), (1, 1), (1, 1)),  # narrow patches
        (8, 5, 4, (1, 2), (2, 1), (0, 2), (1, 1)),
        (8, 5, 4, (2, 3), (2, 2), (1, 0), (1, 1)),
        (6, 6, 5, (3, 2), (1, 1), (2, 2), (2, 3)),
        (8, 2, 2, (2, 2), (1, 1), (0, 0), (1, 1)),
    )
]


def kernels(where: Windows, scales: str, rows: int = 40) -> Weights:
    generator = torch.Generator().manual_seed(3)
    shape = (rows, where.image[0], *where.kernel)
    mean = torch.rand(shape, generator=generator)
    scale = {
        "equal": torch.full(shape, 0.3),
        "channels": (0.1 + torch.rand(shape[:1], generator=generator))[:, None, None, None]
        * (0.1 + torch.rand(shape[1:2], generator=generator))[:, None, None],
        "entries": (0.1 + torch.rand(shape[:1], generator=generator))[:, None, None, None]
        * (0.1 + torch.rand(shape[1:], generator=generator)),
        "mixed": 0.1 + torch.rand(shape, generator=generator),
    }[scales]
    return Weights.of("weight", mean, scale.expand(shape).clone())


@pytest.mark.parametrize("where", WINDOWS, ids=str)
def test_patches_times_kernels_are_a_convolution(where: Windows) -> None:
    images = torch.rand(2, *where.image, generator=torch.Generator().manual_seed(4))
    given = kernels(where, "equal")
    expected = torch.conv2d(
        images, given.mean, None, where.stride, where.padding, where.dilation
    ).permute(0, 2, 3, 1)
    assert expected.shape[1:3] == where.grid
    expected = expected.reshape(2, where.count, -1)
    products = where.patches(images) @ where.ordered(given).mean.mT
    assert torch.allclose(products, expected, atol=1e-5)
    assert torch.allclose(where.means(images, given), expected, atol=1e-5)


@pytest.mark.parametrize("scales", ["equal", "channels", "entries"])
@pytest.mark.parametrize("where", WINDOWS, ids=str)
def test_products_of_pixels_add_up_to_those_of_patches(where: Windows, scales: str) -> None:
    images = torch.rand(2, *where.image, generator=torch.Generator().manual_seed(4))
    given = kernels(where, scales)
    profile = where.ordered(given).entry_variance
    patches = where.patches(images).double()
    weighted = patches if profile is None else patches * profile.double()
    assert torch.allclose(where.gram(images, given), weighted @ patches.mT, rtol=1e-12)


@pytest.mark.parametrize("scales", ["equal", "channels", "entries", "mixed"])
@pytest.mark.parametrize("where", [w for w in WINDOWS if w.count <= 4], ids=str)
def test_windows_over_the_edge_have_the_covariance_of_drawn_kernels(where, scales) -> None:
    images = torch.rand(2, *where.image, generator=torch.Generator().manual_seed(5))
    given = kernels(where, scales)
    patches = where.patches(images).double()
    exact = torch.einsum(
        "npk,ok,nqk->nopq", patches, where.ordered(given).variance.double(), patches
    )
    measured = covariance(images, where, given)
    assert torch.allclose(measured, exact, rtol=0, atol=2e-6 * float(exact.max()))


def test_rows_of_scales_are_multiples_only_up_to_rounding() -> None:
    assert weights(scales="multiples", entries=50).entry_variance is not None
    given = weights(scales="multiples", entries=50)
    given.scale[2, 7] *= 1 + 1e-5
    assert Weights.of("weight", given.mean, given.scale).row_variance is None


def test_weights_are_drawn_where_positions_are_many() -> None:
    assert root_at(Vectors(20), weights(scales="equal", entries=20)) is None
    assert root_at(Vectors(200), weights(scales="equal", entries=288, outputs=64)) is None
    assert root_at(Vectors(5), weights(scales="mixed", entries=100)) is None
    assert root_at(Vectors(4), weights(scales="mixed", entries=10)) is None
