"""Which channels of a network scale together, and which weights they touch.

Multiply what writes a channel by λ and what reads it by 1/λ: the function stays the same. A
:class:`ScaleGroups` lists all such free scales of a network.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from nonvacuous.errors import BadInput
from nonvacuous.networks.layer_graph import Shape, table


@dataclass(frozen=True, eq=False)
class AxisScale:
    """Factors exp(power · log_scales[index]) of one weight, spread over the other axes.

    axes    the axes of the weight along which the factors vary
    index   an array over those axes: positions in log_scales, -1 where the factor is 1
    power   usually 1 (the weight writes the channel) or -1 (it reads it)
    """

    axes: tuple[int, ...]
    index: np.ndarray
    power: float

    def __post_init__(self) -> None:
        self.index.setflags(write=False)

    @property
    def moves(self) -> bool:
        """Whether it can change anything: not of power zero, not pinned everywhere."""
        return self.power != 0 and bool((self.index >= 0).any())

    def spread(self, dimensions: int) -> np.ndarray:
        """The index, broadcastable to a weight of so many dimensions."""
        ordered = np.ascontiguousarray(np.transpose(self.index, np.argsort(self.axes)))
        return np.expand_dims(ordered, [a for a in range(dimensions) if a not in self.axes])


@dataclass(frozen=True)
class Group:
    """A run of log_scales that belongs to one layer: log_scales[start : start + size].

    name          the layer, or the weight where a layer has several groups
    tensors       the weights that it touches: (name, axes, power)
    layer         the dotted name of the layer that writes these channels
    """

    name: str
    start: int
    size: int
    tensors: tuple[tuple[str, tuple[int, ...], float], ...]
    layer: str


@dataclass(frozen=True)
class Pinned:
    """Channels that keep the factor 1, and why."""

    what: str
    reason: str


@dataclass(frozen=True, eq=False)
class ScaleGroups:
    """All the free scales of a network.

    size        how many there are: log_scales is a vector of this length, 0 where nothing changes
    groups      the same scales layer by layer, as slices of the vector
    exponents   for every weight of the network how the scales multiply it: an element's factor is
                exp(sum of power · log_scales[index]) over the entries; () where nothing does
    pinned      channels without a free scale, and why
    shapes      the shape of every weight
    """

    size: int
    groups: tuple[Group, ...]
    exponents: Mapping[str, tuple[AxisScale, ...]]
    pinned: tuple[Pinned, ...]
    shapes: Mapping[str, Shape]

    def log_factors(self, log_scales: ArrayLike) -> dict[str, np.ndarray]:
        """The logarithm of each weight's factors, in float64, broadcastable to the weight."""
        scales = self.checked(log_scales)
        # One more entry, 0, is what index -1 looks up.
        lookup = np.append(scales, 0.0)
        result = {}
        for name, entries in self.exponents.items():
            shape = self.shapes[name]
            total = np.zeros((1,) * len(shape))
            for entry in entries:
                total = total + entry.power * lookup[entry.spread(len(shape))]
            result[name] = total
        return result

    def factors(self, log_scales: ArrayLike) -> dict[str, np.ndarray]:
        """Each weight's factors, in float64, broadcastable to the weight."""
        with np.errstate(over="ignore"):
            factors = {name: np.exp(log) for name, log in self.log_factors(log_scales).items()}
        for name, factor in factors.items():
            if not (np.isfinite(factor).all() and (factor > 0).all()):
                raise BadInput(
                    f"log_scales: the factors of {name} leave the range of float64; the largest "
                    f"entry is {np.abs(np.asarray(log_scales)).max():.3g} in magnitude, and a few "
                    "hundred are too many"
                )
        return factors

    def checked(self, log_scales: ArrayLike) -> np.ndarray:
        """The vector in float64, or BadInput when it is not one for these groups."""
        scales = np.asarray(log_scales, dtype=np.float64)
        if scales.shape != (self.size,):
            raise BadInput(
                f"log_scales has shape {scales.shape}; these groups need ({self.size},), one "
                "natural logarithm per free scale, and 0 where nothing changes"
            )
        for position in np.flatnonzero(~np.isfinite(scales)):
            raise BadInput(
                f"log_scales has entries that are not finite: log_scales[{position}] is "
                f"{scales[position]}; 0 leaves a channel as it is"
            )
        return scales

    def __str__(self) -> str:
        rows = []
        for g in self.groups:
            touched = (
                f"{name} [{','.join(map(str, a))}] ^{power:g}" for name, a, power in g.tensors
            )
            positions = f"{g.start}..{g.start + g.size - 1}"
            rows.append((g.name, str(g.size), positions, ", ".join(touched)))
        lines = [table(("group", "scales", "positions", "weights [axis] ^power"), rows)]
        lines.append(f"free: {self.size}, in groups: {len(self.groups)}")
        untouched = [name for name, entries in self.exponents.items() if not entries]
        if untouched:
            lines.append(f"not touched: {', '.join(untouched)}")
        if self.pinned:
            width = max(len(entry.what) for entry in self.pinned)
            lines += ["kept at 1:", *(f"  {p.what:<{width}}  {p.reason}" for p in self.pinned)]
        return "\n".join(lines)


# Move a network along its scales: other weights, the same function.


def rescaled(module: nn.Module, groups: ScaleGroups, log_scales: ArrayLike) -> nn.Module:
    """A copy of the network with every weight multiplied by its factors: the same function.

    The products are formed in float64 and rounded once, to the weights' own type, so in float32
    the outputs agree to rounding only.

    module       the network from which the groups were made; it is not changed
    log_scales   one natural logarithm per free scale, such as nv.rescale(...).log_scales
    """
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    if shapes != dict(groups.shapes):
        differing = sorted(
            name
            for name in shapes.keys() | groups.shapes.keys()
            if shapes.get(name) != groups.shapes.get(name)
        )
        raise BadInput(
            f"the groups belong to another network than this {type(module).__name__}: they "
            f"differ in {', '.join(differing[:5])}; capture this network and make its own groups"
        )
    factors = groups.factors(log_scales)
    result = copy.deepcopy(module)
    with torch.no_grad():
        for name, parameter in result.named_parameters():
            factor = torch.from_numpy(factors[name]).to(parameter.device)
            wide = torch.complex128 if parameter.is_complex() else torch.float64
            parameter.copy_((parameter.to(wide) * factor).to(parameter.dtype))
    return result
