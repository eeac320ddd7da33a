"""Starting weights that a seed accounts for, for networks that tests make by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from nonvacuous.recipes import recipe_of, seeded


def around(wrap: Callable[[nn.Module], nn.Module], network: nn.Module) -> nn.Module:
    """A built-in network inside another one, rebuilt from the same seed with all around it."""
    recipe = recipe_of(network)
    assert recipe is not None
    inner = recipe
    return seeded(lambda: wrap(inner.made(seed=torch.initial_seed())), seed=inner.seed)
