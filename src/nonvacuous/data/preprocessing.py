"""Standardization: statistics given by the caller or fitted on the prior part, never on all data.

A transform fitted on examples that later enter the bound makes the prior depend on them, and the
certificate false. So fitting is always an explicit act on named examples, and the result remembers
which ones.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.data.examples import Dataset, Examples
from nonvacuous.errors import BadInput

_CHUNK = 2048
#: What the name of the step begins with, before the digest.
STANDARDIZED = "standardize:"


@dataclass(frozen=True)
class Standardize:
    """Subtract a mean and divide by a scale, for each channel (or each feature of flat inputs).

    means, scales   one number per entry of the inputs' second axis
    fitted_on       content hash of the examples the statistics come from; empty when they were
                    given by the caller, who thereby states that they do not come from this data
    """

    means: tuple[float, ...]
    scales: tuple[float, ...]
    fitted_on: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "means", tuple(float(value) for value in self.means))
        object.__setattr__(self, "scales", tuple(float(value) for value in self.scales))
        if not self.means or len(self.means) != len(self.scales):
            raise BadInput(
                f"Standardize: {len(self.means)} means and {len(self.scales)} scales; give one of "
                "each per channel"
            )
        if not all(math.isfinite(value) for value in self.means):
            raise BadInput(f"Standardize: means must be finite, not {self.means[:4]}")
        if not all(math.isfinite(value) and value > 0 for value in self.scales):
            raise BadInput(f"Standardize: scales must be finite and above 0, not {self.scales[:4]}")

    @classmethod
    def fit(cls, prior_part: Examples) -> Standardize:
        """Mean and standard deviation of the prior part, in float64.

        Pass only examples that no bound will be computed on: ``examples.subset(split.prior)``.
        A channel or feature that is constant there keeps its size (scale 1).
        """
        if len(prior_part) < 2:
            raise BadInput(
                f"{prior_part.name}: {len(prior_part)} examples are too few to standardize with; "
                "use a larger prior part, or give means and scales known in advance"
            )
        count = prior_part.inputs.numel() // prior_part.inputs.shape[1]
        channels = prior_part.inputs.shape[1]
        means = prior_part.inputs.new_zeros(channels, dtype=torch.float64)
        squares = torch.zeros_like(means)
        for chunk in _by_channel(prior_part.inputs):
            means += chunk.sum(dim=1) / count
        for chunk in _by_channel(prior_part.inputs):
            squares += ((chunk - means[:, None]) ** 2).sum(dim=1)
        flat = prior_part.inputs.transpose(0, 1).flatten(1)
        # Rounding can leave a tiny deviation on a constant channel; compare the values instead.
        constant = flat.amin(dim=1) == flat.amax(dim=1)
        scales = torch.where(constant, 1.0, (squares / count).sqrt())
        return cls(tuple(means.tolist()), tuple(scales.tolist()), prior_part.content_hash())

    def __call__(self, examples: Examples) -> Examples:
        """The examples with standardized inputs; the step is recorded in `preprocessing`."""
        if examples.example_shape[0] != len(self.means):
            raise BadInput(
                f"{examples.name}: inputs of shape {examples.example_shape} do not fit a "
                f"standardization of {len(self.means)} channels"
            )
        shape = (1, -1) + (1,) * (examples.inputs.ndim - 2)
        means = examples.inputs.new_tensor(self.means).reshape(shape)
        scales = examples.inputs.new_tensor(self.scales).reshape(shape)
        return examples.prepared((examples.inputs - means) / scales, self.step)

    @property
    def step(self) -> str:
        """Its entry in the preprocessing of examples."""
        return f"{STANDARDIZED}{self.digest()}"

    def digest(self) -> str:
        """sha256 over the exact means, scales and the hash of the examples they come from."""
        exact = {
            "means": [value.hex() for value in self.means],
            "scales": [value.hex() for value in self.scales],
            "fitted_on": self.fitted_on,
        }
        return hashlib.sha256(json.dumps(exact, sort_keys=True).encode()).hexdigest()


def _by_channel(inputs: Tensor) -> Iterator[Tensor]:
    # In pieces, so that the float64 copy of a large set never exists as a whole.
    for part in inputs.split(_CHUNK):
        yield part.transpose(0, 1).flatten(1).double()


def center_crop(inputs: Tensor, size: int) -> Tensor:
    """The middle size x size pixels of images (..., height, width), as a view.

    Where the margin is odd, the larger part of it is cut at the right and at the bottom.
    """
    height, width = inputs.shape[-2:]
    if inputs.ndim < 3 or not 1 <= size <= min(height, width):
        raise BadInput(
            f"center_crop: {size} x {size} pixels cannot be cut out of images of shape "
            f"{tuple(inputs.shape)}"
        )
    top, left = (height - size) // 2, (width - size) // 2
    return inputs[..., top : top + size, left : left + size]


def whiten_each_image(inputs: Tensor) -> Tensor:
    """Each image shifted and scaled to mean 0 and variance 1 over all its pixels and channels.

    (x - mean) / max(standard deviation, 1 / sqrt(number of values)): the floor keeps an image of
    one color from being divided by nothing. ``inputs`` has shape (examples, ...).
    """
    values = inputs.flatten(1)
    means = values.mean(dim=1, keepdim=True)
    deviations = values.std(dim=1, correction=0, keepdim=True)
    floor = 1.0 / math.sqrt(max(values.shape[1], 1))
    return ((values - means) / deviations.clamp(min=floor)).reshape(inputs.shape)


def cropped(dataset: Dataset, size: int) -> Dataset:
    """The data set with every image cropped; the step is recorded in `preprocessing`."""

    def stepped(part: Examples) -> Examples:
        return part.prepared(center_crop(part.inputs, size).contiguous(), f"center crop {size}")

    return Dataset(stepped(dataset.train), None if dataset.test is None else stepped(dataset.test))
