"""A Gabor bank: how strongly every part of an image shows stripes of each direction and width.

Two filters a quarter of a wave apart see the same stripes at any shift, so the root of the sum of
their squares does not depend on where in a wave an edge lies. Averages over squares of 4 x 4 pixels
make it indifferent to small shifts of the whole image as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nonvacuous.errors import BadInput

#: Filter size, width of the bell (sigma) and wavelength, in pixels.
SCALES = ((9, 2.0, 5.0), (13, 3.2, 8.0))
ORIENTATIONS = 8
POOL = 4


@dataclass(frozen=True, eq=False)
class GaborBank:
    """Maps (images, channels, height, width) to (images, features); nothing in it is learned."""

    scales: tuple[tuple[int, float, float], ...] = SCALES
    orientations: int = ORIENTATIONS
    pool: int = POOL
    images_at_once: int = 500

    @property
    def description(self) -> str:
        return f"Gabor bank, {self.orientations} orientations x {len(self.scales)} scales"

    def __call__(self, images: Tensor) -> Tensor:
        if images.ndim != 4:
            raise BadInput(
                f"the Gabor bank needs images of shape (images, channels, height, width), not "
                f"{tuple(images.shape)}; take raw features for other data"
            )
        if min(images.shape[2:]) < self.pool:
            raise BadInput(
                f"images of {images.shape[2]} x {images.shape[3]} pixels are smaller than the "
                f"{self.pool} x {self.pool} squares that are averaged; take raw features"
            )
        parts = [self._some(part) for part in images.float().split(self.images_at_once)]
        return torch.cat(parts)

    def _some(self, images: Tensor) -> Tensor:
        # Every channel is an image of its own.
        planes = images.reshape(-1, 1, *images.shape[2:])
        found = []
        for size, sigma, wavelength in self.scales:
            even, odd = gabor_filters(size, sigma, wavelength, self.orientations)
            filters = torch.cat([even, odd])[:, None].to(planes)
            answers = F.conv2d(planes, filters, padding=size // 2)
            first, second = answers.chunk(2, dim=1)
            magnitude = (first.square() + second.square()).sqrt()
            found.append(F.avg_pool2d(magnitude, self.pool))
        return torch.cat(found, 1).reshape(len(images), -1)


def gabor_filters(
    size: int, sigma: float, wavelength: float, orientations: int
) -> tuple[Tensor, Tensor]:
    """Even and odd filters (orientations, size, size): a wave under a bell, of unit norm."""
    middle = (size - 1) / 2
    line = torch.arange(size, dtype=torch.float64) - middle
    down, across = torch.meshgrid(line, line, indexing="ij")
    bell = torch.exp(-(down.square() + across.square()) / (2 * sigma**2))
    even, odd = [], []
    for step in range(orientations):
        angle = math.pi * step / orientations
        along = (across * math.cos(angle) + down * math.sin(angle)) * (2 * math.pi / wavelength)
        cosine = bell * along.cos()
        # An even wave under a bell has a mean, which would answer to brightness.
        cosine = cosine - bell * (cosine.sum() / bell.sum())
        sine = bell * along.sin()
        even.append(cosine / cosine.norm())
        odd.append(sine / sine.norm())
    return torch.stack(even).float(), torch.stack(odd).float()
