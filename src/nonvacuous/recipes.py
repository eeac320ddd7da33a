"""Initial weights that follow from a seed, and that anybody can make again.

Whoever wants a promise from training data must show that the weights it starts from know nothing
of them. A function that builds the network, and a seed, show it: the audit builds it once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nonvacuous.errors import BadInput

#: No name that a network has for anything of its own.
_KEPT_AS = "_nonvacuous_recipe"


@dataclass(frozen=True)
class Recipe:
    """How initial weights are made.

    name       what a person calls it: mlp:600, or the name of a function
    make       builds the network, with random numbers of torch alone
    seed       what torch is seeded with before
    built_in   whether it is one of the library's own, which read nothing else
    """

    name: str
    make: Callable[[], Any]
    seed: int
    built_in: bool = False

    def made(self, *, seed: int | None = None) -> nn.Module:
        """The network, with torch's global random state left alone; it remembers the recipe."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed if seed is None else seed)
            network = self.make()
        if not isinstance(network, nn.Module):
            raise BadInput(
                f"{self.name}() returned a {type(network).__name__}, not a torch.nn.Module; name a "
                "function without arguments that builds the network"
            )
        return remembering(network, self)

    def __deepcopy__(self, _memory: object) -> Recipe:
        return self  # copies of the network were made in the same way


def seeded(build: Callable[[], Any], *, seed: int, name: str | None = None) -> nn.Module:
    """The network that a function without arguments builds, with weights that the seed decides.

    >>> network = seeded(lambda: nn.Linear(2, 1), seed=0)
    >>> recipe_of(network).seed
    0
    """
    if not callable(build) or isinstance(build, nn.Module):
        raise BadInput(
            "a network is given as a torch.nn.Module, or as a function without arguments that "
            f"builds one, not as {type(build).__name__}"
        )
    called = name or str(getattr(build, "__qualname__", type(build).__qualname__))
    try:
        return Recipe(called, build, seed).made()
    except BadInput:
        raise
    except Exception as error:  # the user's code may raise anything
        raise BadInput(
            f"{called}() raised {type(error).__name__}: {error}. It is called without arguments "
            "and must return a torch.nn.Module"
        ) from error


def remembering(network: nn.Module, recipe: Recipe | None) -> nn.Module:
    """The same network; whether its weights are those of the recipe is compared when it counts."""
    vars(network)[_KEPT_AS] = recipe
    return network


def recipe_of(network: nn.Module) -> Recipe | None:
    """How its initial weights were made, where it remembers."""
    recipe = vars(network).get(_KEPT_AS)
    return recipe if isinstance(recipe, Recipe) else None
