"""Corruptions by name: the registry, and what a corruption is given to work with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput, nearest
from nonvacuous.seeds import derived_seed

What = Literal["labels", "inputs", "nothing"]
ImageRule = Callable[[Tensor, np.random.Generator], Tensor]
"""One input and its own random generator in, the corrupted input out."""

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Setting:
    """What a corruption is given: the training examples, its strength, and its randomness.

    train      the clean training examples; not to be written to
    strength   the number after the colon, in [0, 1]; 1 for a corruption that takes none
    seed       of this corruption; use :meth:`generator` rather than the number
    """

    train: Examples
    strength: float
    seed: int

    def generator(self, purpose: str, index: int = 0) -> np.random.Generator:
        """Randomness that depends on the seed, the purpose and the index, and on nothing else.

        Neither the order in which examples are read nor the process that reads them matters.
        """
        key = np.array([derived_seed(self.seed, "corruption", purpose), index], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    @cached_property
    def channel_statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel of the training inputs, in float64.

        They have a shape that broadcasts over one input. Flat inputs have one channel per feature,
        inputs (height, width) a single one, others (channels, ...) those of their first axis.
        """
        axes = len(self.train.example_shape)
        own_axis = {1: 0, 2: None}.get(axes, 0)
        reduced = [axis for axis in range(axes) if axis != own_axis]
        count = len(self.train) * math.prod(self.train.example_shape[axis] for axis in reduced)
        chunks = self.train.inputs.split(2048)
        total = sum(_sum(chunk.double(), reduced) for chunk in chunks)
        means = torch.as_tensor(total) / count
        squares = sum(_sum((chunk.double() - means) ** 2, reduced) for chunk in chunks)
        return means, (torch.as_tensor(squares) / count).sqrt()


@dataclass(frozen=True)
class Corruption:
    """One way to destroy the relation between inputs and labels, or none of it.

    name             how it is asked for: "partial" in "partial:0.5"
    description      one line for people
    what             which part of the training set it changes
    apply            a function of a :class:`Setting`. For "labels" it returns the pair (new labels,
                     mask of the examples drawn anew); for "inputs" a function that takes one
                     input and its own random generator and returns the corrupted input
    takes_strength   whether a number in [0, 1] must follow the name
    independent      for "labels": whether at full strength the new labels tell nothing about the
                     old ones. The conformance suite tests it; False is for noise that is meant to
                     be systematic, with which a network that learns is not memorizing
    """

    name: str
    description: str
    what: What
    apply: Callable[[Setting], Any]
    takes_strength: bool = False
    independent: bool = True


CORRUPTIONS: dict[str, Corruption] = {}
"""Every corruption by name; filled by :func:`register_corruption`."""


def register_corruption(
    name: str,
    *,
    description: str,
    what: What,
    takes_strength: bool = False,
    independent: bool = True,
) -> Callable[[AnyFunction], AnyFunction]:
    """Add a corruption of your own, as a decorator; see :class:`Corruption` for the arguments.

    Then try it: :func:`nonvacuous.randomization.corruption_findings` lists what is wrong with it.
    """
    if not name or ":" in name or name != name.strip():
        raise BadInput(
            f"register_corruption: {name!r} cannot be a name; use words with hyphens, as in "
            "shuffled-pixels (a colon separates the name from the strength)"
        )
    if what not in ("labels", "inputs", "nothing"):
        raise BadInput(
            f"register_corruption: {name} has what = {what!r}; write 'labels' or 'inputs'"
        )
    if name in CORRUPTIONS:
        raise BadInput(
            f"register_corruption: there is a corruption {name} already; choose another name"
        )

    def register(function: AnyFunction) -> AnyFunction:
        CORRUPTIONS[name] = Corruption(
            name, description, what, function, takes_strength, independent
        )
        return function

    return register


@dataclass(frozen=True)
class Spec:
    """A corruption and its strength; ``str`` gives the text form."""

    corruption: Corruption
    strength: float = 1.0

    def __str__(self) -> str:
        name = self.corruption.name
        return f"{name}:{self.strength:g}" if self.corruption.takes_strength else name


def parse_corruption(text: str) -> Spec:
    """The corruption that a text such as "random-labels" or "partial:0.5" stands for."""
    name, colon, number = str(text).partition(":")
    corruption = CORRUPTIONS.get(name)
    if corruption is None:
        alike = name.replace("_", "-").lower()
        raise BadInput(
            f"there is no corruption {text!r}; known are {', '.join(CORRUPTIONS)}"
            + nearest(alike, CORRUPTIONS, "; did you mean {}?", ", as in partial:0.5")
        )
    if not corruption.takes_strength:
        if colon:
            raise BadInput(f"corruption {text}: {name} takes no strength; write {name}")
        return Spec(corruption)
    try:
        strength = float(number)
    except ValueError:
        strength = math.nan
    if not 0.0 <= strength <= 1.0:
        raise BadInput(
            f"corruption {text}: a number from 0 to 1 must follow {name}, as in {name}:0.5"
        )
    # Adding zero turns -0.0 into 0.0, so that equal corruptions have equal names.
    return Spec(corruption, float(f"{strength + 0.0:g}"))


def _sum(values: Tensor, axes: list[int]) -> Tensor:
    summed = values.sum(dim=0)
    return summed.sum(dim=axes, keepdim=True) if axes else summed


@register_corruption("true", description="true labels, inputs as they are", what="nothing")
def _true(setting: Setting) -> None:
    return None


@register_corruption(
    "partial",
    description="each label, with this probability, drawn anew from all classes",
    what="labels",
    takes_strength=True,
)
@register_corruption(
    "random-labels", description="every label drawn anew from all classes", what="labels"
)
def _redrawn_labels(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    count, old = len(setting.train), setting.train.labels.cpu().numpy()
    # Both are drawn for all examples whatever the strength: a stronger corruption under the same
    # seed then changes the same labels in the same way, and others besides.
    mask = setting.generator("which labels").random(count) < setting.strength
    new = setting.generator("new labels").integers(0, setting.train.classes, count)
    return np.where(mask, new, old), mask


@register_corruption(
    "shuffled-pixels",
    description="the pixels of all images, training and test, in one random order",
    what="inputs",
)
def _shuffled_pixels(setting: Setting) -> ImageRule:
    order = setting.generator("pixel order").permutation(_positions(setting))
    return lambda image, random: _reordered(image, order)


@register_corruption(
    "random-pixels",
    description="the pixels of each image in a random order of its own",
    what="inputs",
)
def _random_pixels(setting: Setting) -> ImageRule:
    positions = _positions(setting)
    return lambda image, random: _reordered(image, random.permutation(positions))


@register_corruption(
    "gaussian",
    description="Gaussian noise with the mean and variance of each channel, no image at all",
    what="inputs",
)
def _gaussian(setting: Setting) -> ImageRule:
    means, deviations = setting.channel_statistics

    def rule(image: Tensor, random: np.random.Generator) -> Tensor:
        noise = torch.from_numpy(random.standard_normal(tuple(image.shape))).to(means.device)
        return (means + deviations * noise).to(image.dtype)

    return rule


def _positions(setting: Setting) -> int:
    """How many pixels: the channels of an image (channels, height, width) move together."""
    shape = setting.train.example_shape
    return math.prod(shape[1:] if len(shape) > 2 else shape)


def _reordered(image: Tensor, order: np.ndarray) -> Tensor:
    places = torch.from_numpy(order).to(image.device)
    return image.reshape(-1, len(order))[:, places].reshape(image.shape)
