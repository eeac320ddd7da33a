"""Images changed at random at each visit: windows, mirroring, colors; always on their device.

Images are stored with their channels last, (count, height, width, channels).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from nonvacuous.training.many_draws import uniforms

PADDING = 4
"""Black pixels put around images that are no larger than the window cut from them."""
STRENGTH = 0.3
"""Brightness, contrast and saturation are multiplied by 1 - STRENGTH to 1 + STRENGTH."""

_PLACE, _MIRROR, _COLOR = 101, 102, 103


def center_windows(images: Tensor, size: int | None) -> Tensor:
    """The central `size` by `size` pixels of each image; None leaves the images as they are."""
    if size is None:
        return images
    top, left = (images.shape[1] - size) // 2, (images.shape[2] - size) // 2
    return images[:, top : top + size, left : left + size]


def with_margin(images: Tensor, size: int | None) -> Tensor:
    """Images from which windows can be cut: padded if they are not larger than the window."""
    height, width = images.shape[1:3]
    if size is not None and (size < height or size < width):
        return images
    return pad(images, (0, 0, PADDING, PADDING, PADDING, PADDING))


def augmented(
    images: Tensor,
    chosen: Tensor,
    window: tuple[int, int],
    *,
    kind: str,
    seed: Tensor,
    step: Tensor,
) -> Tensor:
    """The images at the places `chosen`, each cut to a window at a random place.

    One lookup gathers, cuts and mirrors. `kind` is "crop" or "full".
    """
    count, (height, width) = len(chosen), window
    device = images.device
    places = uniforms(seed, step, _PLACE, (2, count))
    tops = (places[0] * (images.shape[1] - height + 1)).long()
    lefts = (places[1] * (images.shape[2] - width + 1)).long()
    columns = torch.arange(width, device=device).expand(count, width)
    if kind == "full":
        mirrored = uniforms(seed, step, _MIRROR, (count, 1)) < 0.5
        columns = torch.where(mirrored, width - 1 - columns, columns)
    rows = tops[:, None] + torch.arange(height, device=device)
    columns = lefts[:, None] + columns
    cut = images[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
    return _varied_colors(cut, seed, step) if kind == "full" else cut


def _varied_colors(images: Tensor, seed: Tensor, step: Tensor) -> Tensor:
    drawn = uniforms(seed, step, _COLOR, (3, len(images), 1, 1, 1))
    brightness, contrast, saturation = 1 + STRENGTH * (2 * drawn - 1)
    images = images * brightness
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = mean + contrast * (images - mean)
    if images.shape[3] == 3:
        gray = images.mean(dim=3, keepdim=True)
        images = gray + saturation * (images - gray)
    return images
