"""How the networks of the sparsity study are trained, and which ones there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.sparsity.training import ChainTraining
from nonvacuous.training.checks import whole_number


@dataclass(frozen=True)
class Recipe:
    """How a prior is learned, and how the network is trained toward it.

    start    gaussian or identity, see nonvacuous.sparsity.chains.initial_chain
    shifts   a learned prior also sees its images moved by up to so many pixels
    """

    prior: ChainTraining = field(default_factory=ChainTraining)
    network: ChainTraining = field(default_factory=ChainTraining)
    start: str = "gaussian"
    shifts: int = 0

    def shortened(self, *, steps: int) -> Recipe:
        """The same with fewer steps and no shifts, for trying out on images of 8 x 8 pixels."""
        return replace(
            self,
            shifts=0,
            prior=replace(self.prior, steps=min(steps, self.prior.steps), batch_size=64),
            network=replace(self.network, steps=min(steps, self.network.steps), batch_size=64),
        )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], *, where: str) -> Recipe:
        for name in record:
            if name not in ("prior", "network", "start", "shifts"):
                raise BadInput(f"{where}: {name!r} is none of prior, network, start and shifts")
        return cls(
            ChainTraining.from_dict(record.get("prior", {}), where=f"{where}, prior"),
            ChainTraining.from_dict(record.get("network", {}), where=f"{where}, network"),
            str(record.get("start", "gaussian")),
            whole_number("shifts", record.get("shifts", 0), least=0),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "prior": self.prior.to_dict(),
            "network": self.network.to_dict(),
            "start": self.start,
            "shifts": self.shifts,
        }


#: plain      the paper's objective, for the prior (without the pull) and for the network
#: robust     the prior is learned under weight noise, from images that are moved by up to a pixel;
#:            the network by the paper's objective
#: blind      the network itself is trained under weight noise: what a prior that has seen no
#:            example needs; blind-deep likewise for more hidden layers
#: sparse     an l1 penalty on activations, in both
#: stable     pre-activations are pushed away from zero, in both
#: spectral   like robust, and layers between hidden ones start as the identity and keep spectral
#:            norms small
RECIPES: Mapping[str, Recipe] = {
    "plain": Recipe(
        prior=ChainTraining(steps=3_000, learning_rate=0.1),
        network=ChainTraining(steps=800, learning_rate=0.05),
    ),
    "robust": Recipe(
        prior=ChainTraining(steps=3_000, learning_rate=0.15, noise=0.08),
        network=ChainTraining(steps=800, learning_rate=0.05),
        shifts=1,
    ),
    "blind": Recipe(
        network=ChainTraining(steps=4_000, learning_rate=0.3, noise=(0.2, 0.3)),
    ),
    "blind-deep": Recipe(
        network=ChainTraining(steps=4_000, learning_rate=0.1, noise=0.15),
    ),
    "sparse": Recipe(
        prior=ChainTraining(steps=3_000, learning_rate=0.1, activity=0.03),
        network=ChainTraining(steps=800, learning_rate=0.05, activity=0.03),
    ),
    "stable": Recipe(
        prior=ChainTraining(steps=3_000, learning_rate=0.1, stability=0.5, stability_level=0.1),
        network=ChainTraining(steps=800, learning_rate=0.05, stability=0.5, stability_level=0.1),
    ),
    "spectral": Recipe(
        prior=ChainTraining(
            steps=2_500, learning_rate=0.1, noise=0.05, decay=5e-4, spectral_limit=1.2
        ),
        network=ChainTraining(steps=600, learning_rate=0.05, spectral_limit=1.2),
        start="identity",
        shifts=1,
    ),
}


def _grid(
    hidden: Sequence[int],
    widths: Sequence[int],
    priors: Sequence[str],
    pulls: Sequence[float],
    recipes: Sequence[str],
    shares: Sequence[float] = (1.0,),
) -> dict[str, tuple[Any, ...]]:
    return {
        "hidden": tuple(hidden),
        "width": tuple(widths),
        "prior": tuple(priors),
        "pull": tuple(pulls),
        "recipe": tuple(recipes),
        "share": tuple(shares),
    }


_FIVE = "learned:0.05"
_BLIND = ("zero", "initialization")
_WEAK = 0.003

#: The questions and their networks; a network that several questions share is trained once.
DEFAULT_PARTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "goals": (
        _grid([1, 2], [100], [_FIVE], [1.0, 0.1], ["robust"]),
        _grid([5, 10], [100], [_FIVE], [1.0], ["spectral"]),
        _grid([1], [100], ["zero"], [_WEAK], ["blind"]),
        _grid([1], [500], [_FIVE], [1.0], ["robust"]),
    ),
    "sparsity": (
        _grid([1], [100], [_FIVE], [1.0], ["plain", "sparse", "stable"]),
        _grid([2], [100], [_FIVE], [0.1], ["plain", "sparse", "stable"]),
    ),
    "priors": (
        _grid([1], [100], _BLIND, [_WEAK], ["blind"]),
        _grid([2], [100], _BLIND, [_WEAK], ["blind-deep"]),
        _grid([1, 2], [100], [_FIVE, "learned:0.2", "learned:0.5"], [1.0], ["plain"]),
        _grid([1, 2], [100], [_FIVE], [0.1, 0.01], ["plain"]),
    ),
    "size": (_grid([1], [100], [_FIVE], [1.0], ["robust"], [0.2, 0.4, 0.6, 0.8, 1.0]),),
    "depth": (_grid([1, 2, 3, 5, 10], [100], [_FIVE], [1.0], ["spectral", "plain"]),),
    "width": (
        _grid([1, 2], [100, 500, 1_000], [_FIVE], [1.0], ["robust"]),
        _grid([1], [100, 500, 1_000], _BLIND, [_WEAK], ["blind"]),
        _grid([2], [100, 500, 1_000], _BLIND, [_WEAK], ["blind-deep"]),
    ),
}
QUICK_PARTS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "goals": (_grid([1], [20], ["learned:0.3"], [1.0], ["robust"]),),
    "sparsity": (_grid([1], [20], ["learned:0.3"], [1.0], ["plain", "sparse"]),),
    "priors": (_grid([1], [20], ["zero"], [0.01], ["blind"]),),
    "size": (_grid([1], [20], ["learned:0.3"], [1.0], ["robust"], [0.6, 1.0]),),
    "depth": (_grid([3], [20], ["learned:0.3"], [1.0], ["spectral"]),),
    "width": (_grid([1], [10, 20], ["learned:0.3"], [1.0], ["robust"]),),
}
