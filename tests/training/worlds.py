"""Small worlds to train in: two or three blobs of points, tiny images, and networks for them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nonvacuous.data.examples import Examples


def blobs(count: int = 120, *, classes: int = 3, noise: float = 0.4, seed: int = 0) -> Examples:
    """Points around `classes` corners of a simplex in four dimensions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    centers = torch.eye(4)[:classes] * 2.0
    inputs = centers[labels] + noise * torch.randn(count, 4, generator=generator)
    return Examples(inputs, labels, tuple("abcd"[:classes]), "blobs")


def stripes(count: int = 80, *, seed: int = 0) -> Examples:
    """Images of 6 by 6 pixels with a bright row (class 0) or a bright column (class 1)."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    inputs = 0.3 * torch.randn(count, 1, 6, 6, generator=generator)
    places = torch.randint(0, 6, (count,), generator=generator)
    for index in range(count):
        if labels[index] == 0:
            inputs[index, 0, places[index]] += 1.0
        else:
            inputs[index, 0, :, places[index]] += 1.0
    return Examples(inputs, labels, ("row", "column"), "stripes")


def _seeded(build: type[nn.Module] | object, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()  # type: ignore[operator]


def small_mlp(*, seed: int = 0, classes: int = 3) -> nn.Module:
    return _seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, classes)), seed)


def everything_mlp(*, seed: int = 0) -> nn.Module:
    """With dropout (global random numbers) and batch normalization (buffers that change)."""
    return _seeded(
        lambda: nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
        ),
        seed,
    )


def small_cnn(*, seed: int = 0) -> nn.Module:
    return _seeded(
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)),
        seed,
    )


def same_tensors(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Whether two maps hold the same names and bits."""
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    return same_tensors(first.state_dict(), second.state_dict())
