"""Features: what a kernel gets to see of an image. None of them looks at a label."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.interpolation.features.distances import standardizer
from nonvacuous.interpolation.features.random_patches import (
    GaborBank,
    RandomPatches,
    random_patches,
)

__all__ = [
    "FEATURES",
    "FeatureMap",
    "Features",
    "GaborBank",
    "RandomPatches",
    "features_of",
    "random_patches",
    "register_features",
]


@dataclass(frozen=True, eq=False)
class Features:
    """Features of training and test inputs, and what they are.

    constant   coordinates that are the same at all training points: no kernel here can see them
    """

    train: Tensor
    test: Tensor | None
    description: str
    constant: int


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """A function from inputs to (inputs, features).

    standardized   whether its features shall get mean zero and unit variance on the training
                   inputs
    """

    function: Callable[[Tensor], Tensor]
    description: str
    standardized: bool = False


#: Makes a map of the training inputs, a number (or None) and a seed.
Factory = Callable[[Tensor, int | None, int], FeatureMap]


def _raw(inputs: Tensor, number: int | None, seed: int) -> FeatureMap:
    _no_number("raw", number)
    return FeatureMap(lambda x: x.reshape(len(x), -1), "raw values")


def _gabor(inputs: Tensor, number: int | None, seed: int) -> FeatureMap:
    _no_number("gabor", number)
    bank = GaborBank()
    return FeatureMap(bank, bank.description)


def _patches(inputs: Tensor, number: int | None, seed: int) -> FeatureMap:
    made = random_patches(inputs, filters=1000 if number is None else number, seed=seed)
    return FeatureMap(made, f"{made.description}, standardized", standardized=True)


#: Features by name.
FEATURES: dict[str, Factory] = {"raw": _raw, "gabor": _gabor, "patches": _patches}


def register_features(name: str, factory: Factory) -> None:
    """Make features known by name; a name that is taken is refused."""
    if name in FEATURES:
        raise BadInput(f"there are features {name!r} already; choose another name")
    FEATURES[name] = factory


def parse_features(spec: str) -> tuple[str, int | None]:
    """The name of the features and the number after it, if the text has one.

    >>> parse_features("patches:1000"), parse_features("raw")
    (('patches', 1000), ('raw', None))
    """
    found = re.fullmatch(r"([a-z-]+)(?::(\d+))?", spec)
    if found is None or found[1] not in FEATURES:
        raise Unrecognized(
            f"there are no features {spec!r}; there are {', '.join(FEATURES)}, and patches:NUMBER "
            "with so many filters"
        )
    return found[1], int(found[2]) if found[2] else None


def features_of(
    spec: str,
    train: Tensor,
    test: Tensor | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Features:
    """Features by a text such as raw, gabor or patches:1000 (with 1000 filters)."""
    name, number = parse_features(spec)
    inputs = train.to(device)
    chosen = FEATURES[name](inputs, number, seed)
    made = chosen.function(inputs)
    other = None if test is None else chosen.function(test.to(device))
    if chosen.standardized:
        standardize = standardizer(made)
        made, other = standardize(made), None if other is None else standardize(other)
    constant = int((made == made[0]).all(0).sum())
    return Features(
        made.cpu(), None if other is None else other.cpu(), chosen.description, constant
    )


def _no_number(name: str, number: int | None) -> None:
    if number is not None:
        raise BadInput(f"{name} features take no number; write {name}, not {name}:{number}")
