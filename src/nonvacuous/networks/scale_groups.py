"""Which channels of a network scale together, and which weights they touch.

Multiply what writes a channel by λ and what reads it by 1/λ: the function stays the same. A
:class:`ScaleGroups` lists all such free scales of a network.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from nonvacuous.errors import BadInput
from nonvacuous.networks.capture import Example, capture
from nonvacuous.networks.layer_graph import LayerGraph, Shape, table


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
        shape = [1] * dimensions
        for axis, length in zip(sorted(self.axes), ordered.shape, strict=True):
            shape[axis] = length
        return ordered.reshape(shape)


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
        rows = [
            (g.name, str(g.size), f"{g.start}..{g.start + g.size - 1}", ", ".join(_touched(g)))
            for g in self.groups
        ]
        lines = [table(("group", "scales", "positions", "weights [axis] ^power"), rows)]
        lines.append(f"free: {self.size}, in groups: {len(self.groups)}")
        untouched = [name for name, entries in self.exponents.items() if not entries]
        if untouched:
            lines.append(f"not touched: {', '.join(untouched)}")
        if self.pinned:
            width = max(len(entry.what) for entry in self.pinned)
            lines += ["kept at 1:", *(f"  {p.what:<{width}}  {p.reason}" for p in self.pinned)]
        return "\n".join(lines)


def scale_groups(graph: LayerGraph, *, frozen: Sequence[str] = ()) -> ScaleGroups:
    """Find every free scale of a captured network.

    frozen   names of weights that are not random, and so must not be moved: a tensor that is
             deterministic under prior and posterior pins every group that touches it

    >>> import torch
    >>> from nonvacuous.networks import capture
    >>> network = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)
    ... ).eval()
    >>> print(scale_groups(capture(network, torch.zeros(2, 4))))
    group  scales  positions  weights [axis] ^power
    -----  ------  ---------  ------------------------------------------------
    0      3       0..2       0.weight [0] ^1, 0.bias [0] ^1, 2.weight [1] ^-1
    free: 3, in groups: 1
    not touched: 2.bias
    kept at 1:
      2 (2 channels)  it is what the network returns
    """
    # The solution builds the records of this module, so it can only be imported afterward.
    from nonvacuous.networks.solution import solved_groups

    unknown = [name for name in frozen if name not in graph.parameters]
    if unknown:
        raise BadInput(
            f"frozen: the network has no weight {unknown[0]!r}; it has "
            f"{', '.join(list(graph.parameters)[:6])}, ..."
        )
    return solved_groups(graph, frozen)


def _touched(group: Group) -> list[str]:
    return [
        f"{name} [{','.join(map(str, axes))}] ^{power:g}" for name, axes, power in group.tensors
    ]


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


def preservation_error(
    module: nn.Module,
    example: Example,
    *,
    groups: ScaleGroups | None = None,
    spread: float = 1.0,
    draws: int = 3,
    seed: int = 0,
) -> float:
    """How far random scales change the outputs, relative to the largest output, in float64.

    A correct set of rules gives a few times 1e-15; a wrong one gives something like 1. Every rule
    for an operator must pass this test.
    """
    arguments = example if isinstance(example, tuple) else (example,)
    if groups is None:
        groups = scale_groups(capture(module, arguments))
    arguments = tuple(
        a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in arguments
    )
    module = copy.deepcopy(module).double()
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        expected = _outputs(module(*arguments))
        worst = 0.0
        for _ in range(draws):
            log_scales = generator.normal(scale=spread, size=groups.size)
            moved = _outputs(rescaled(module, groups, log_scales)(*arguments))
            for one, other in zip(expected, moved, strict=True):
                largest = float(one.abs().max()) or 1.0
                worst = max(worst, float((one - other).abs().max()) / largest)
    return worst


def _outputs(value: object) -> list[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf.double() for leaf in leaves if isinstance(leaf, Tensor)]
