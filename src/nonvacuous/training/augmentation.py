"""Images changed at random at each visit, where they lie: for plain training on the prior part.

A certificate's risks are counted on the examples as they are; only training sees these. Each change
is a function of a batch of images (examples, channels, height, width) that draws from the global
generator, which training seeds anew at every step. To add one, write it and enter it here:

>>> sorted(AUGMENTATIONS)
['affine', 'crop', 'cutout', 'flip']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

from nonvacuous.errors import BadInput

_TURN, _ZOOM, _SHIFT, _SHEAR = math.radians(12.0), 0.12, 0.08, 0.12


def augmented(images: Tensor, names: Sequence[str]) -> Tensor:
    """The images after each of the named changes, in this order."""
    for name in names:
        images = AUGMENTATIONS[name](images)
    return images


def check_augmentation(names: Sequence[str], example_shape: Sequence[int]) -> None:
    """Raise unless every name is known and the inputs are images."""
    for name in names:
        if name not in AUGMENTATIONS:
            known = ", ".join(sorted(AUGMENTATIONS))
            raise BadInput(f"there is no augmentation {name!r}; there are {known}, and () for none")
    if names and len(example_shape) != 3:
        raise BadInput(
            f"augmentation {', '.join(names)} changes images of shape (channels, height, width); "
            f"these inputs have shape {tuple(example_shape)}: leave it out"
        )


def _uniform(images: Tensor, *shape: int) -> Tensor:
    return torch.rand(len(images), *shape, device=images.device)


def _cropped(images: Tensor) -> Tensor:
    """A window of the same size, shifted by up to an eighth in each direction, edges reflected."""
    height, width = images.shape[2:]
    shorter = min(height, width)
    margin = min(max(1, shorter // 8), shorter - 1)
    wide = pad(images, (margin,) * 4, mode="reflect")
    corners = (_uniform(images, 2) * (2 * margin + 1)).long()
    rows = corners[:, 0, None] + torch.arange(height, device=images.device)
    columns = corners[:, 1, None] + torch.arange(width, device=images.device)
    index = torch.arange(len(images), device=images.device)[:, None, None]
    # The indexed dimensions come first, so channels are last and go back to their own dimension.
    return wide[index, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _flipped(images: Tensor) -> Tensor:
    """Half of the images mirrored, left and right."""
    return torch.where(_uniform(images, 1, 1, 1) < 0.5, images.flip(3), images)


def _transformed(images: Tensor) -> Tensor:
    """Turned, zoomed, shifted and sheared a little; black comes in from outside."""
    turn, zoom_x, zoom_y, shear, right, down = (2 * _uniform(images, 6) - 1).unbind(1)
    cosine, sine = torch.cos(_TURN * turn), torch.sin(_TURN * turn)
    wide, tall, slant = 1 + _ZOOM * zoom_x, 1 + _ZOOM * zoom_y, _SHEAR * shear
    first = torch.stack([wide * cosine, tall * (slant * cosine - sine), 2 * _SHIFT * right], dim=1)
    second = torch.stack([wide * sine, tall * (slant * sine + cosine), 2 * _SHIFT * down], dim=1)
    grid = affine_grid(
        torch.stack([first, second], dim=1).to(images.dtype),
        list(images.shape),
        align_corners=False,
    )
    return grid_sample(images, grid, align_corners=False)


def _cut_out(images: Tensor) -> Tensor:
    """A square of a quarter of the width, anywhere, set to zero."""
    height, width = images.shape[2:]
    side = max(1, min(height, width) // 4)
    centers = _uniform(images, 2)

    def hit(length: int, center: Tensor) -> Tensor:
        start = (center[:, None] * length).long() - side // 2
        positions = torch.arange(length, device=images.device)
        return (positions >= start) & (positions < start + side)

    covered = (
        hit(height, centers[:, 0])[:, None, :, None] & hit(width, centers[:, 1])[:, None, None]
    )
    return images.masked_fill(covered, 0.0)


AUGMENTATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {"affine": _transformed, "crop": _cropped, "cutout": _cut_out, "flip": _flipped}
)
