"""Priors: distributions over weights that the bound data had no part in.

A prior says where its means come from, which scales may be chosen later (a grid fixed before the
data, paid for by a union bound), and which examples it has seen. Exported as ``nonvacuous.priors``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.distributions.attributes import attribute_tensors
from nonvacuous.distributions.copying import low_rank, parameters_named, update_names, with_fixed
from nonvacuous.distributions.gaussian import DiagonalGaussian, check_same_tensors
from nonvacuous.distributions.grids import DEFAULT_GRID, ScaleGrid
from nonvacuous.errors import BadInput
from nonvacuous.kinds import CENTERS
from nonvacuous.recipes import Recipe, recipe_of
from nonvacuous.settings import sentence

__all__ = [
    "Prior",
    "ScaleGrid",
    "at_initialization",
    "indices_digest",
    "learned",
    "low_rank",
    "pretrained",
    "zero_mean",
]

Kind = Literal["zero-mean", "initialization", "learned", "pretrained"]
Indices = Sequence[int] | np.ndarray | Tensor


@dataclass(frozen=True, eq=False)
class Prior:
    """A family of Gaussians with common means, one member for every scale of a grid.

    With ``per_tensor`` every parameter tensor may take its own scale from the grid, at the price
    of one charge per tensor. ``saw`` is the digest of the indices of the examples that shaped the
    means (see :func:`indices_digest`), or None when no example did.
    """

    kind: Kind
    grid: ScaleGrid
    means: Mapping[str, Tensor] | None = None
    saw: str | None = None
    per_tensor: bool = False
    #: Buffers (such as batch-norm statistics) of the network that the means come from, and tensors
    #: that it keeps as plain attributes: a network whose own ones differ has learned them from
    #: data that no KL accounts for.
    fixed: Mapping[str, Tensor] | None = None
    #: How the initial weights were made, where the network remembered.
    recipe: Recipe | None = None
    #: Where pretrained weights come from, in the user's words.
    source: str | None = None

    def __post_init__(self) -> None:
        if (self.kind == "zero-mean") != (self.means is None):
            raise BadInput(f"a {self.kind} prior must {'not ' if self.means else ''}carry means")
        if (self.kind == "learned") != (self.saw is not None):
            raise BadInput(
                "a learned prior, and only a learned one, records the examples that it saw; use "
                "priors.zero_mean, priors.at_initialization or priors.learned"
            )
        if (self.kind == "pretrained") != (self.source is not None):
            raise BadInput("a pretrained prior says where it comes from; use priors.pretrained")
        if self.means is not None:
            # Building a Gaussian checks and copies the means.
            object.__setattr__(self, "means", DiagonalGaussian.from_means(self.means, 1.0).means)

    @property
    def description(self) -> str:
        """One sentence for a person."""
        return described(self.kind, self.grid.scales, per_tensor=self.per_tensor)

    def at(self, module: nn.Module, scale: float) -> DiagonalGaussian:
        """The member of the family for one scale of the grid."""
        if scale not in self.grid.scales:
            raise BadInput(
                f"scale {scale!r} is not in the grid that was fixed before the data "
                f"({self.grid.scales}); choose one of these"
            )
        return DiagonalGaussian.from_means(self._means_for(module), scale)

    def charge_nats(self, module: nn.Module) -> float:
        """Nats for choosing freely from the grid: ln(its size), per tensor where each chooses."""
        tensors = sum(1 for _ in module.named_parameters())
        return self.grid.charge_nats(choices=tensors if self.per_tensor else 1)

    def choose(self, module: nn.Module, posterior: DiagonalGaussian) -> DiagonalGaussian:
        """The member with the least KL from the posterior.

        ``charge_nats`` must be added to the KL: it is what makes the choice honest.
        """
        posterior.check_covers(module)
        means = self._means_for(module)
        energies = {}
        for name, mean in means.items():
            own, scale = posterior.means[name].double(), posterior.scales[name].double()
            shift = own - mean.to(own.device).double()
            energies[name] = float(shift.square().sum() + scale.square().sum())
        sharing = [[name] for name in means] if self.per_tensor else [list(means)]
        weights = {name: mean.numel() for name, mean in means.items()}
        scales = self.grid.cheapest_for(sharing, energies, weights)
        return DiagonalGaussian.from_means(means, scales)

    def _means_for(self, module: nn.Module) -> dict[str, Tensor]:
        parameters = {name: p.detach() for name, p in module.named_parameters()}
        if self.means is None:
            return {name: torch.zeros_like(p) for name, p in parameters.items()}
        check_same_tensors("the prior", self.means, "the module", parameters)
        return {
            name: self.means[name].to(device=parameter.device, dtype=parameter.dtype)
            for name, parameter in parameters.items()
        }


def described(kind: str, scales: Sequence[float], *, per_tensor: bool) -> str:
    """A family of priors in one sentence.

    >>> described("zero-mean", (0.1,), per_tensor=False)
    'Gaussian centered on zero, with scale 0.1 fixed before the data.'
    """
    center = f"centered on {CENTERS['zero' if kind == 'zero-mean' else kind]}"
    if len(scales) == 1:
        return f"Gaussian {center}, with scale {scales[0]:g} fixed before the data."
    whose = "one for each parameter tensor" if per_tensor else "one for all weights"
    return (
        f"Gaussian {center}, with a scale ({whose}) chosen among {len(scales)} from "
        f"{scales[0]:g} to {scales[-1]:g} that were fixed before the data."
    )


def zero_mean(
    scale: float = 1.0, *, grid: ScaleGrid | None = None, per_tensor: bool = False
) -> Prior:
    """Centered on zero; one scale fixed beforehand, or a grid to choose from."""
    chosen = grid if grid is not None else ScaleGrid((scale,))
    return Prior(kind="zero-mean", grid=chosen, per_tensor=per_tensor)


def at_initialization(
    initial: nn.Module, *, grid: ScaleGrid | None = None, per_tensor: bool = False
) -> Prior:
    """Centered on the weights the network had before training (they must not depend on data).

    To show that they do not, let a seed decide them: a network of ``nv.models.build``, or
    ``nv.models.seeded(function, seed=0)`` with the function that builds your own.
    Without a grid, 25 scales from 0.001 to 1 may be chosen from, for ln 25 = 3.2 nats.
    """
    recipe = recipe_of(initial)
    return _around("initialization", initial, grid, per_tensor, recipe=recipe)


def learned(
    trained: nn.Module,
    *,
    indices: Indices,
    grid: ScaleGrid | None = None,
    per_tensor: bool = False,
) -> Prior:
    """Centered on weights trained on the prior part of the data, which ``indices`` names.

    The bound may only use examples outside ``indices``; their digest travels with the prior so
    that this can be checked.
    """
    return _around("learned", trained, grid, per_tensor, saw=indices_digest(indices))


def pretrained(
    module: nn.Module,
    *,
    source: str,
    random: str | Sequence[str] | None = None,
    head: Literal["given", "zero"] = "given",
    grid: ScaleGrid | None = None,
    per_tensor: bool = False,
) -> Prior:
    """Centered on weights that were trained on other, independent data; most of them fixed.

    Only what is random has a price: all other weights stay as they are, and a certificate may count
    all examples. A network of ``nv.priors.low_rank`` moves in few directions of its layers, too.

    source   a sentence on where the weights come from, which the certificate quotes: nobody can
             check that they have not seen the examples
    random   names of layers or parameters; by default the layer that was registered last, and all
             low-rank updates
    head     whether the random weights (low-rank updates aside) are centered where they are, or on
             zero
    """
    declared = sentence("source", source)
    if head not in ("given", "zero"):
        raise BadInput(f"head must be 'given' or 'zero', not {head!r}")
    updates = update_names(module)
    names = parameters_named(module, random)
    fixed = with_fixed(module, names)
    means = {
        name: torch.zeros_like(p) if head == "zero" and name not in updates else p.detach()
        for name, p in fixed.named_parameters()
    }
    return _around("pretrained", fixed, grid, per_tensor, means=means, source=declared)


def indices_digest(indices: Indices) -> str:
    """SHA-256 (hex) of a set of example indices; the order in which they come does not matter."""
    raw = indices.detach().cpu().numpy() if isinstance(indices, Tensor) else np.asarray(indices)
    if raw.size == 0:
        raise BadInput("a learned prior saw no example; use priors.at_initialization instead")
    if raw.ndim != 1 or not np.issubdtype(raw.dtype, np.integer):
        raise BadInput(f"indices must be a flat list of integers, got {raw.dtype} {raw.shape}")
    if int(raw.min()) < 0:
        raise BadInput(f"an example index is negative: {int(raw.min())}")
    return hashlib.sha256(np.unique(raw).astype("<i8").tobytes()).hexdigest()


def _around(
    kind: Kind, module: nn.Module, grid: ScaleGrid | None, per_tensor: bool, **origin: Any
) -> Prior:
    """Centered on the weights of a network; ``origin`` says where these come from."""
    fixed = dict(module.named_buffers()) | attribute_tensors(module)
    origin.setdefault("means", {name: p.detach() for name, p in module.named_parameters()})
    return Prior(
        kind=kind,
        grid=grid if grid is not None else DEFAULT_GRID,
        per_tensor=per_tensor,
        fixed=MappingProxyType({name: tensor.detach().clone() for name, tensor in fixed.items()}),
        **origin,
    )
