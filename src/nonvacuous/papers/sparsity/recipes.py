"""How the networks of the sparsity study are trained, and which ones there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from nonvacuous.sparsity.training import ChainTraining
from nonvacuous.study.settings import Frozen


class Recipe(Frozen):
    """How a prior is learned, and how the network is trained toward it.

    start      see nonvacuous.sparsity.training.initial_chain
    shifts     a learned prior also sees its images moved by up to so many pixels
    mirrored   and left to right
    """

    prior: ChainTraining = ChainTraining()
    network: ChainTraining = ChainTraining()
    start: str = "gaussian"
    shifts: int = Field(default=0, ge=0)
    mirrored: bool = False

    def changed(self, **given: Any) -> Recipe:
        return self.model_copy(update=given)

    def shortened(self, *, steps: int) -> Recipe:
        """The same with fewer steps and no shifts, for trying out on images of 8 x 8 pixels."""
        prior, network = (
            replace(training, steps=min(steps, training.steps), batch_size=64)
            for training in (self.prior, self.network)
        )
        return self.changed(shifts=0, mirrored=False, prior=prior, network=network)


#: Units of one block where activations are asked to be sparse in blocks.
_BLOCK = 10
_PLAIN = ChainTraining(steps=3_000, learning_rate=0.1)
_NEAR = ChainTraining(steps=800, learning_rate=0.05)
_CONTROLLED = ChainTraining(steps=2_500, learning_rate=0.1, noise=0.05, decay=5e-4)
_TOWARD = ChainTraining(steps=600, learning_rate=0.05)
_GENTLE = ChainTraining(steps=3_000, learning_rate=0.2, noise=0.03, decay=5e-4)
_SHORT = ChainTraining(steps=300, learning_rate=0.05)


def _both(prior: ChainTraining, network: ChainTraining, start: str = "", **habit: Any) -> Recipe:
    """Prior and network trained with the same habit; with a start, from moved images too."""
    recipe = Recipe(prior=replace(prior, **habit), network=replace(network, **habit))
    return recipe.changed(start=start, shifts=1) if start else recipe


#: plain       the paper's objective, for the prior (without the pull) and for the network
#: robust      the prior is learned under weight noise, from images that are moved by up to a pixel;
#:             the network by the paper's objective
#: gentle      with less noise, which wide networks need, and weight decay; for networks that stay
#:             close to their prior. long: four times as long; mirrored: from mirrored images too
#: blind       the network itself is trained under weight noise: what a prior that has seen no
#:             example needs; blind-deep likewise for more hidden layers
#: sparse      an l1 penalty on activations, in both; blocks: on blocks of ten units
#: stable      pre-activations are pushed away from zero, in both
#: spectral    like robust, and layers between hidden ones start as the identity and keep spectral
#:             norms below 1.2; contracting: below 1; contracting-quiet: without noise
#: residual    such a start, and no limit; orthogonal: rotations, and a penalty that keeps them such
RECIPES: Mapping[str, Recipe] = {
    "plain": Recipe(prior=_PLAIN, network=_NEAR),
    "robust": Recipe(
        prior=ChainTraining(steps=3_000, learning_rate=0.15, noise=0.08), network=_NEAR, shifts=1
    ),
    "gentle": Recipe(prior=_GENTLE, network=_SHORT, shifts=1),
    "long": Recipe(prior=replace(_GENTLE, steps=12_000), network=_SHORT, shifts=1),
    "mirrored": Recipe(
        prior=replace(_GENTLE, steps=12_000), network=_SHORT, shifts=1, mirrored=True
    ),
    "blind": Recipe(network=ChainTraining(steps=4_000, learning_rate=0.3, noise=(0.2, 0.3))),
    "blind-deep": Recipe(network=ChainTraining(steps=4_000, learning_rate=0.1, noise=0.15)),
    "sparse": _both(_PLAIN, _NEAR, activity=0.03),
    "blocks": _both(_PLAIN, _NEAR, activity=0.03, activity_block=_BLOCK),
    "stable": _both(_PLAIN, _NEAR, stability=0.5, stability_level=0.1),
    "spectral": _both(_CONTROLLED, _TOWARD, "identity", spectral_limit=1.2),
    "contracting": _both(_CONTROLLED, _TOWARD, "identity", spectral_limit=1.0),
    "contracting-quiet": _both(
        replace(_CONTROLLED, noise=0.0), _TOWARD, "identity", spectral_limit=1.0
    ),
    "residual": _both(_CONTROLLED, _TOWARD, "identity"),
    "orthogonal": _both(_CONTROLLED, _TOWARD, "orthogonal", orthogonal=0.1),
}


#: The recipes of learned priors that are paid for: every combination of these, for every shape of
#: SHAPES, is a candidate prior. How a network is trained toward its prior is not among them: the
#: theorems hold for all weights at once. `habit` is at most one penalty or limit, by name.
PRIOR_GRID: Mapping[str, Sequence[Any]] = {
    "steps": (2_000, 2_500, 3_000, 6_000, 12_000),
    "learning_rate": (0.05, 0.1, 0.15, 0.2),
    "noise": (0.0, 0.03, 0.05, 0.08, 0.1),
    "decay": (0.0, 5e-4),
    "habit": (
        None,
        *(("activity", value) for value in (0.003, 0.01, 0.03, 0.1)),
        *(("blocks", value) for value in (0.01, 0.03, 0.1)),
        *(("stability", value) for value in (0.1, 0.5, 1.0)),
        *(("spectral_limit", value) for value in (0.9, 1.0, 1.1, 1.2, 1.5)),
        *(("orthogonal", value) for value in (0.01, 0.1, 1.0)),
    ),
    "start": ("gaussian", "identity", "orthogonal"),
    "shifts": (0, 1, 2),
    "mirrored": (False, True),
}
SHAPES: Mapping[str, Sequence[Any]] = {
    "hidden": (1, 2, 3, 5, 10, 15, 20),
    "width": (100, 500, 1_000),
    "share": (0.2, 0.4, 0.6, 0.8, 1.0),
    "fraction": (0.05, 0.1, 0.2, 0.5),
    "centered": (False, True),
}


def _grid(*lists: Sequence[Any], shares: Sequence[float] = (1.0,)) -> dict[str, tuple[Any, ...]]:
    """Hidden layers, widths, priors, pulls and recipes: all combinations of them."""
    names = ("hidden", "width", "prior", "pull", "recipe", "share")
    return {name: tuple(values) for name, values in zip(names, (*lists, shares), strict=True)}


_FIVE = "learned:0.05"
_BLIND = ("zero", "initialization")
_LEARNED = (_FIVE, "learned:0.1", "learned:0.2", "learned:0.5")
_WEAK = 0.003
_CONTROLS = ("plain", "orthogonal", "residual", "spectral", "contracting")


def _varied() -> dict[str, Recipe]:
    """The recipe robust with one number changed, by name: what does each of them do?"""
    base = RECIPES["robust"]
    priors: dict[str, Sequence[Any]] = {
        "steps": (2_000, 6_000, 12_000),
        "learning_rate": (0.05, 0.1, 0.2),
        "noise": (0.0, 0.03, 0.05, 0.1),
        "decay": (5e-4,),
        "activity": (0.003, 0.01),
        "stability": (0.1, 1.0),
        "spectral_limit": (1.0, 1.5),
        "orthogonal": (0.1,),
    }
    networks: dict[str, Sequence[Any]] = {
        "steps": (200, 3_000), "learning_rate": (0.01, 0.2), "noise": (0.03,),
    }  # fmt: skip
    whole: dict[str, Sequence[Any]] = {
        "start": ("identity", "orthogonal"), "shifts": (0, 2), "mirrored": (True,),
    }  # fmt: skip
    varied = {}
    for prefix, part, lists in (("", "prior", priors), ("toward-", "network", networks)):
        for name, values in lists.items():
            for value in values:
                changed = replace(getattr(base, part), **{name: value})
                varied[f"robust,{prefix}{name}={value}"] = base.changed(**{part: changed})
    return varied | {
        f"robust,{name}={value}": base.changed(**{name: value})
        for name, values in whole.items()
        for value in values
    }


RECIPES = {**RECIPES, **_varied()}

#: The questions and their networks; a network that several questions share is trained once.
DEFAULT_PARTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "goals": (
        _grid([1, 2], [100], [_FIVE], [1.0, 0.1], ["robust"]),
        _grid([5, 10], [100], [_FIVE], [1.0], ["spectral"]),
        _grid([10], [100], [_FIVE], [10.0], ["contracting"]),
        _grid([1], [100], ["zero"], [_WEAK], ["blind"]),
        _grid([1], [500], [_FIVE], [1.0], ["robust"]),
    ),
    "best": (_grid([1, 2], [500], ["learned:0.5"], [10.0, 30.0], ["gentle", "long", "mirrored"]),),
    "sparsity": (
        _grid([1], [100], [_FIVE], [1.0], ["plain", "sparse", "stable", "blocks"]),
        _grid([2], [100], [_FIVE], [0.1], ["plain", "sparse", "stable", "blocks"]),
    ),
    "priors": (
        _grid([1], [100], _BLIND, [_WEAK], ["blind"]),
        _grid([2], [100], _BLIND, [_WEAK], ["blind-deep"]),
        _grid([1, 2], [100], [_FIVE, "learned:0.2", "learned:0.5"], [1.0], ["plain"]),
        _grid([1, 2], [100], [_FIVE], [0.1, 0.01], ["plain"]),
    ),
    "size": (_grid([1], [100], [_FIVE], [1.0], ["robust"], shares=SHAPES["share"]),),
    "depth": (
        _grid(SHAPES["hidden"], [100], [_FIVE], [1.0, 10.0], _CONTROLS),
        _grid([10, 15, 20], [100], [_FIVE], [10.0], ["contracting-quiet"]),
    ),
    "width": (
        _grid([1, 2], [100, 500, 1_000], [_FIVE], [1.0], ["robust"]),
        _grid([1], [100, 500, 1_000], _BLIND, [_WEAK], ["blind"]),
        _grid([2], [100, 500, 1_000], _BLIND, [_WEAK], ["blind-deep"]),
    ),
    "grid": (_grid([1, 2, 3], [100, 500, 1_000], _LEARNED, [10.0], ["gentle"]),),
    "sensitivity": (
        _grid([2], [100], [_FIVE], [0.01, 0.1, 1.0, 10.0, 30.0], ["robust"]),
        _grid([2], [100], [_FIVE], [1.0], list(_varied())),
    ),
}
QUICK_PARTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "goals": (_grid([1], [20], ["learned:0.3"], [1.0], ["robust"]),),
    "best": (_grid([1], [20], ["learned:0.3"], [10.0], ["robust"]),),
    "sparsity": (_grid([1], [20], ["learned:0.3"], [1.0], ["plain", "sparse"]),),
    "priors": (_grid([1], [20], ["zero"], [0.01], ["blind"]),),
    "size": (_grid([1], [20], ["learned:0.3"], [1.0], ["robust"], shares=[0.6, 1.0]),),
    "depth": (_grid([3], [20], ["learned:0.3"], [1.0], ["spectral"]),),
    "width": (_grid([1], [10, 20], ["learned:0.3"], [1.0], ["robust"]),),
    "grid": (_grid([1], [20], ["learned:0.3"], [10.0], ["robust"]),),
    "sensitivity": (_grid([1], [20], ["learned:0.3"], [1.0], ["robust,noise=0.0"]),),
}
