"""Do the starting weights follow from a seed? Build them again and compare every bit."""

from __future__ import annotations

from torch import Tensor, nn

from nonvacuous.distributions.attributes import attribute_tensors
from nonvacuous.recipes import Recipe, recipe_of


def irreproducible(start: nn.Module) -> str:
    """Why a seed does not account for these weights; nothing where it does."""
    recipe = recipe_of(start)
    if recipe is None:
        return "nothing says how they came about"
    whence = f"{recipe.name} at seed {recipe.seed}"
    try:
        again, other = recipe.made(), recipe.made(seed=recipe.seed + 1)
    except Exception as error:  # the user's code may raise anything
        return f"{whence} could not be built again ({type(error).__name__}: {error})"
    own, rebuilt = _tensors(start), _tensors(again)
    different = [name for name in own.keys() ^ rebuilt.keys()] + [
        name for name in own.keys() & rebuilt.keys() if not _same(own[name], rebuilt[name])
    ]
    if different:
        return f"{whence}, built again, has another {min(different)!r}"
    return "" if recipe.built_in else _constant(recipe, start, other)


def _constant(recipe: Recipe, start: nn.Module, other: nn.Module) -> str:
    """Weights that are the same from every seed come from elsewhere, unless they are all equal."""
    elsewhere = dict(other.named_parameters())
    for name, tensor in start.named_parameters():
        varied = bool((tensor != tensor.flatten()[0]).any()) if tensor.numel() else False
        if varied and name in elsewhere and _same(tensor, elsewhere[name]):
            return f"{recipe.name} gives the same {name!r} whatever the seed"
    return ""


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {
        **dict(network.named_parameters()),
        **dict(network.named_buffers()),
        **attribute_tensors(network),
    }


def _same(first: Tensor, second: Tensor) -> bool:
    """To the last bit, on whatever device, in the type of the first."""
    if first.shape != second.shape:
        return False
    return first.detach().cpu().equal(second.detach().cpu().to(first.dtype))
