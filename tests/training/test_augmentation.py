"""Random changes of images: they stay images, differ by example, and are seeded by training."""

from __future__ import annotations

import pytest
import torch

from nonvacuous.errors import BadInput
from nonvacuous.training.augmentation import AUGMENTATIONS, augmented
from tests.training.calls import train
from tests.training.worlds import blobs, same_weights, small_cnn, stripes


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_changes_images_at_random_and_one_by_one(name: str) -> None:
    images = torch.rand(64, 3, 16, 16)
    before = images.clone()
    torch.manual_seed(0)
    first, second = augmented(images, (name,)), augmented(images, (name,))
    assert first.shape == images.shape and torch.equal(images, before)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(augmented(images, (name,)), first)
    # One image everywhere: not all copies are changed alike.
    copies = augmented(images[:1].expand(64, -1, -1, -1), (name,))
    assert len(torch.unique(copies.flatten(1), dim=0)) > 1


def test_a_crop_is_a_window_of_the_image() -> None:
    image = torch.arange(256.0).view(1, 1, 16, 16)
    for window in augmented(image.expand(50, -1, -1, -1), ("crop",)):
        down, right = (window[0, 8, 8] - image[0, 0, 8, 8]).item() // 16, 0
        right = (window[0, 8, 8] - image[0, 0, 8, 8]).item() - 16 * down
        if right > 8:
            down, right = down + 1, right - 16
        assert abs(down) <= 2 and abs(right) <= 2
        inner = window[0, 4:12, 4:12]
        rows, columns = slice(int(4 + down), int(12 + down)), slice(int(4 + right), int(12 + right))
        assert torch.equal(inner, image[0, 0, rows, columns])


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
@pytest.mark.parametrize("shape", [(1, 1, 9), (2, 3, 1)])
def test_images_of_a_single_row_are_changed_too(name: str, shape: tuple[int, ...]) -> None:
    images = torch.rand(4, *shape)
    assert augmented(images, (name,)).shape == images.shape


def test_a_flip_mirrors_half_of_the_images() -> None:
    images = torch.rand(400, 1, 4, 4)
    flipped = augmented(images, ("flip",))
    mirrored = (flipped == images.flip(3)).flatten(1).all(dim=1)
    assert ((flipped == images).flatten(1).all(dim=1) ^ mirrored).all()
    assert 150 < int(mirrored.sum()) < 250


def test_cutout_removes_one_square() -> None:
    removed = (augmented(torch.ones(100, 2, 16, 16), ("cutout",)) == 0).flatten(1).sum(dim=1)
    assert int(removed.max()) == 2 * 4 * 4 and int(removed.min()) >= 2 * 2 * 2


def test_training_repeats_with_its_seed_alone() -> None:
    options = {"epochs": 2, "batch_size": 16, "augmentation": ("affine", "flip")}
    first = train(small_cnn(), stripes(), seed=3, **options).module
    torch.rand(7)
    assert same_weights(first, train(small_cnn(), stripes(), seed=3, **options).module)
    assert not same_weights(first, train(small_cnn(), stripes(), seed=4, **options).module)


def test_unknown_names_and_inputs_that_are_no_images_are_refused() -> None:
    with pytest.raises(BadInput, match="no augmentation 'rotate'; there are affine"):
        train(small_cnn(), stripes(), augmentation=("rotate",))
    from tests.training.worlds import small_mlp

    with pytest.raises(BadInput, match=r"changes images.*\(4,\)"):
        train(small_mlp(), blobs(), augmentation=("flip",))
