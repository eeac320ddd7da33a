"""How far the weights of a ReLU network may move before an inactive unit can wake up.

Weights W_1, ..., W_{K+1} without biases (a bias is one more column, fed by a constant). The
sensitivity theorem: let every layer move by at most its share epsilon_k of two norms (see
:class:`LocalScales`), and let each radius be at least growth_k = (1 + epsilon_1) ... (1 +
epsilon_k) - 1. Then the inactive units stay inactive, and no output moves by more than
``output_shift``. Muthukumar and Sulam (2023), Lemma 1 and Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.norms import row_norm, row_norms, sparse_norm, sparse_norms, up
from nonvacuous.sparsity.weights import Layers

Weights = Sequence[Tensor]


# A network with biases as one without, so that every theorem about chains applies.
#
# A bias is a weight on a constant 1. The constant is one more input, and one more unit of every
# hidden layer hands it on: it is always active, and its row has norm 1.


@dataclass(frozen=True, eq=False)
class PlainChain:
    """Matrices without biases that compute what the layers compute.

    weights    first layer first, in float64
    constant   whether a constant 1 was appended to the inputs and to every hidden layer
    """

    weights: tuple[Tensor, ...]
    constant: bool

    @staticmethod
    def of(layers: Layers) -> PlainChain:
        """Biases that are all zero are left out: then nothing has to be appended."""
        if not layers.biased:
            return PlainChain(layers.weights, constant=False)
        matrices = []
        for number, (matrix, bias) in enumerate(zip(layers.weights, layers.biases, strict=True)):
            column = torch.zeros(len(matrix), dtype=matrix.dtype) if bias is None else bias
            extended = torch.cat([matrix, column[:, None]], dim=1)
            if number < layers.hidden:
                carry = functional.pad(matrix.new_ones(1, 1), (matrix.shape[1], 0))
                extended = torch.cat([extended, carry])
            matrices.append(extended)
        return PlainChain(tuple(matrices), constant=True)

    @property
    def widest(self) -> int:
        return max(max(weight.shape) for weight in self.weights)

    def inputs(self, inputs: Tensor) -> Tensor:
        """Flat float64 inputs, with the constant where there is one."""
        flat = inputs.detach().flatten(1).to(device="cpu", dtype=torch.float64)
        return functional.pad(flat, (0, 1), value=1.0) if self.constant else flat

    def units(self, values: Tensor) -> Tensor:
        """The network's own units, without the one that carries the constant."""
        return values[:, :-1] if self.constant else values


@dataclass(frozen=True)
class LocalScales:
    """The constants of a network that is allowed so many active units per layer.

    active   how many units may be active: inputs, then every hidden layer
    row      for each layer, the largest norm of a row over the active inputs
    joint    for each hidden layer, a bound on the norm from active inputs to active units
    ways     which of the bounds on it was the smallest
    reach    how long an input and each hidden layer's activations can be: the reduced local
             Lipschitz scale of the layers so far times the longest input
    """

    active: tuple[int, ...]
    row: tuple[float, ...]
    joint: tuple[float, ...]
    ways: tuple[str, ...]
    reach: tuple[float, ...]

    @property
    def units(self) -> tuple[float, ...]:
        """For each layer, how far a pre-activation can lie from zero: the unit of its radius."""
        return tuple(up(r * z, terms=1) for r, z in zip(self.row, self.reach, strict=True))


def local_scales(
    weights: Weights,
    *,
    active: Sequence[int] | None = None,
    input_norm: float,
    babel: bool = True,
) -> LocalScales:
    """The constants for at most ``active`` units in each hidden layer (default: all of them).

    input_norm   how long an input can be
    babel        whether to try the babel bound, whose cost grows with the square of the width
    """
    hidden = weights[:-1]
    length = checks.positive("input_norm", input_norm)
    if active is None:
        active = [len(weight) for weight in hidden]
    if len(active) != len(hidden):
        raise BadInput(f"active must hold {len(hidden)} counts, one per hidden layer: {active}.")
    counts = (weights[0].shape[1], *(int(count) for count in active))
    row = tuple(row_norm(w, columns=n) for w, n in zip(weights, counts, strict=True))
    for number, value in enumerate(row, 1):
        if value == 0.0:
            raise BadInput(f"layer {number} has only zero weights: its radius is not defined.")
    sizes = zip(hidden, counts, counts[1:], strict=False)
    joint = [sparse_norm(w, rows=rows, columns=n, babel=babel) for w, n, rows in sizes]
    norms, ways = tuple(norm.value for norm in joint), tuple(norm.way for norm in joint)
    reach = accumulate(norms, lambda far, norm: up(far * norm, terms=1), initial=length)
    return LocalScales(counts, row, norms, ways, tuple(reach))


def growth(epsilons: Sequence[float]) -> tuple[float, ...]:
    """(1 + epsilon_1) ... (1 + epsilon_k) - 1 for every k, rounded up.

    >>> [round(value, 4) for value in growth([0.1, 0.1])]
    [0.1, 0.21]
    """
    total = 0.0
    growths: list[float] = []
    for epsilon in epsilons:
        # At zero the theorem's condition would be empty, and the theorem false.
        total += math.log1p(checks.positive("epsilon", epsilon))
        growths.append(up(math.expm1(up(total, terms=len(growths) + 1)), terms=4))
    return tuple(growths)


def output_shift(scales: LocalScales, epsilons: Sequence[float]) -> float:
    """The most that any output moves, where the theorem's conditions hold."""
    return up(scales.units[-1] * growth(epsilons)[-1], terms=2)


def forward(weights: Weights, inputs: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """The pre-activations of every hidden layer, and the outputs; in the precision given."""
    flat = inputs.flatten(1)
    seen = []
    for weight in weights[:-1]:
        seen.append(flat @ weight.T)
        flat = seen[-1].relu()
    return tuple(seen), flat @ weights[-1].T


def local_radii(preactivations: Sequence[Tensor], scales: LocalScales) -> tuple[Tensor, ...]:
    """For each hidden layer and example, the layer-wise sparse local radius.

    It is 0 where fewer than (width - active) units are inactive, and infinite where none has to be.
    """
    radii = []
    layers = zip(preactivations, scales.active[1:], scales.units[:-1], strict=True)
    for values, count, unit in layers:
        inactive = values.shape[1] - count
        if inactive == 0:
            radii.append(values.new_full((len(values),), math.inf))
        else:
            radii.append((-values.kthvalue(inactive, dim=1).values).relu() / unit)
    return tuple(radii)


# Greedy sparsity: for one input, how many units of each layer surely stay inactive.
#
# Layer by layer, a unit counts when its pre-activation lies below -level * growth_k * row_k *
# reach_{k-1}. That is one comparison: the largest sparsity with a sufficient radius needs no
# search.

#: The level at which the published bound asks for the radius; the sensitivity theorem needs 1.
LEVEL = 3.0


@dataclass(frozen=True, eq=False)
class NormTables:
    """The norms of every layer for every number of active units, computed once.

    rows     for each layer, the largest row norm for 0, 1, ... active inputs
    joints   for each hidden layer, a bound on the norm for so many units and inputs
    widths   units of every layer, from the inputs to the outputs
    """

    rows: tuple[Tensor, ...]
    joints: tuple[Tensor, ...]
    widths: tuple[int, ...]

    @staticmethod
    def of(weights: Weights) -> NormTables:
        return NormTables(
            tuple(row_norms(weight) for weight in weights),
            tuple(sparse_norms(weight) for weight in weights[:-1]),
            (weights[0].shape[1], *(len(weight) for weight in weights)),
        )


@dataclass(frozen=True, eq=False)
class Greedy:
    """What the greedy choice gives for each example.

    sparsity     for each hidden layer, how many units surely stay inactive
    thresholds   for each hidden layer, how far from zero a pre-activation must lie to be sure
    ratio        the effective activity ratio: the share of weights between units not left out
    """

    sparsity: tuple[Tensor, ...]
    thresholds: tuple[Tensor, ...]
    ratio: Tensor


def greedy_sparsity(
    tables: NormTables,
    preactivations: Sequence[Tensor],
    input_norms: Tensor,
    *,
    epsilon: float,
    level: float = LEVEL,
) -> Greedy:
    """s*(x, epsilon) of every example, from the pre-activations of its hidden layers.

    The norms of a layer shrink with the units already left out for the example.

    epsilon   how far every layer may move, relative to its norms
    """
    gammas = growth([epsilon] * len(preactivations))
    reach = input_norms.double()
    active = torch.full_like(reach, tables.widths[0], dtype=torch.int64)
    sparsity, thresholds, kept = [], [], [active]
    for number, values in enumerate(preactivations):
        width = values.shape[1]
        row = tables.rows[number][active]
        threshold = level * gammas[number] * row * reach
        inactive = (values <= -threshold[:, None]).sum(1)
        incoming, active = active, width - inactive
        reach = reach * tables.joints[number][active, incoming]
        sparsity.append(inactive)
        thresholds.append(threshold)
        kept.append(active)
    kept.append(torch.full_like(active, tables.widths[-1]))
    used = torch.stack([one * two for one, two in pairwise(kept)]).sum(0)
    total = sum(one * two for one, two in pairwise(tables.widths))
    return Greedy(tuple(sparsity), tuple(thresholds), used.double() / total)


# Which units keep their sign: surely active, surely inactive, or too near zero to tell.
#
# A pre-activation farther from zero than a threshold keeps its sign under every change of the
# weights that the threshold allows. Such a unit is either linear or absent: only the others bend.


def stability_thresholds(
    scales: LocalScales, epsilons: Sequence[float], *, level: float = 1.0
) -> tuple[float, ...]:
    """For each hidden layer, how far a pre-activation can move: level * growth_k * unit_k.

    At level 1 this is the sensitivity theorem: pre-activations beyond it keep their sign as long
    as the layers before have at most the active units that ``scales`` counts on.
    """
    factor = checks.positive("level", level)
    pairs = zip(growth(epsilons), scales.units[:-1], strict=False)
    return tuple(factor * gamma * unit for gamma, unit in pairs)


class LayerStability(NamedTuple):
    """For each unit of a layer, on how many examples it was what; a row for each piece of them.

    active      surely active
    inactive    surely inactive
    unstable    neither: its sign may change
    """

    active: Tensor
    inactive: Tensor
    unstable: Tensor

    @staticmethod
    def of(values: Tensor, thresholds: Tensor) -> LayerStability:
        """Pre-activations (examples, units), and thresholds for each example, or each unit too."""
        limits = thresholds[:, None] if thresholds.dim() == 1 else thresholds
        # A unit that reads nothing but zeros and has no bias stays at zero: it is off.
        active, inactive = (values >= limits) & (values > 0), -values >= limits
        sides = (active, inactive, ~(active | inactive))
        return LayerStability(*(side.sum(0, keepdim=True).cpu() for side in sides))

    def shares(self) -> dict[str, float]:
        """Of all pairs of a unit and an example."""
        totals = {name: int(counts.sum()) for name, counts in self._asdict().items()}
        return {name: total / sum(totals.values()) for name, total in totals.items()}

    def kinds(self) -> dict[str, int]:
        """How many units are surely active on every example, and so on."""
        active, inactive, unstable = (counts.sum(0) for counts in self)
        every = active + inactive + unstable
        changing = (unstable == 0) & (active < every) & (inactive < every)
        return {
            "active on every example": int((active == every).sum()),
            "inactive on every example": int((inactive == every).sum()),
            "stable, but not the same on every example": int(changing.sum()),
            "unstable on some examples": int(((unstable > 0) & (unstable < every)).sum()),
            "unstable on every example": int((unstable == every).sum()),
        }
