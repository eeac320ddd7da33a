from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nonvacuous.data import Dataset, Examples
from nonvacuous.data.preprocessing import (
    center_crop,
    cropped,
    whiten_each_image,
)
from nonvacuous.errors import BadInput
from tests.examples import some


def test_center_crop_of_cifar_leaves_two_pixels_around() -> None:
    images = torch.arange(2 * 3 * 32 * 32).reshape(2, 3, 32, 32).float()
    assert torch.equal(center_crop(images, 28), images[:, :, 2:30, 2:30])
    assert torch.equal(center_crop(images, 32), images)
    assert torch.equal(center_crop(images[0], 28), images[0][:, 2:30, 2:30])


@settings(deadline=None, max_examples=some(100))
@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_crop_keeps_the_middle(height: int, width: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, min(height, width)))
    rows = torch.arange(height).reshape(1, -1, 1).expand(1, height, width)
    kept = center_crop(rows, size)
    assert kept.shape == (1, size, size)
    above, below = int(kept[0, 0, 0]), height - 1 - int(kept[0, -1, 0])
    assert below - above in (0, 1)


def test_whitening_against_numpy() -> None:
    images = torch.rand(5, 3, 28, 28, generator=torch.Generator().manual_seed(0)) * 9 - 2
    white = whiten_each_image(images)
    for image, result in zip(images.numpy(), white.numpy(), strict=True):
        values = image.astype(np.float64)
        expected = (values - values.mean()) / max(values.std(), 1 / math.sqrt(2352))
        np.testing.assert_allclose(result, expected, atol=2e-6)


def test_whitening_of_one_color_and_of_nearly_one() -> None:
    images = torch.full((2, 3, 28, 28), 0.3)
    images[1, 0, 0, 0] += 1e-3
    white = whiten_each_image(images)
    assert white[0].abs().max() < 1e-3
    # Its deviation is far below the floor 1 / sqrt(2352), so the floor divides.
    assert float(white[1, 0, 0, 0]) == pytest.approx(1e-3 * math.sqrt(2352), rel=1e-2)
    assert torch.isfinite(white).all()


def test_each_image_alone_decides() -> None:
    images = torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    together = whiten_each_image(images)
    alone = torch.cat([whiten_each_image(image[None]) for image in images])
    torch.testing.assert_close(together, alone)


def test_steps_are_recorded_for_both_parts() -> None:
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    part = Examples(images, torch.arange(6) % 2, ("a", "b"), "six", ("pixels / 255",))
    data = cropped(Dataset(part, part), 6)
    assert data.test is not None
    for made in (data.train, data.test):
        assert made.preprocessing == ("pixels / 255", "center crop 6")
        assert torch.equal(made.inputs, images[:, :, 1:7, 1:7])
    assert cropped(Dataset(part), 4).test is None
    assert part.inputs.shape[-1] == 8


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: center_crop(torch.zeros(1, 3, 8, 8), 9), "9 x 9 pixels cannot be cut out"),
        (lambda: center_crop(torch.zeros(1, 3, 8, 8), 0), "0 x 0 pixels cannot be cut out"),
        (lambda: center_crop(torch.zeros(8, 8), 4), r"of shape \(8, 8\)"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        call()
