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

import torch
from torch import Tensor

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.matrices import up
from nonvacuous.sparsity.norms import row_norm, sparse_norm

Weights = Sequence[Tensor]


@dataclass(frozen=True)
class LocalScales:
    """The constants of a network that is allowed so many active units per layer.

    active   how many units may be active: inputs, then every hidden layer
    row      for each layer, the largest norm of a row over the active inputs
    joint    for each hidden layer, a bound on the norm from active inputs to active units
    reach    how long an input and each hidden layer's activations can be: the reduced local
             Lipschitz scale of the layers so far times the longest input
    """

    active: tuple[int, ...]
    row: tuple[float, ...]
    joint: tuple[float, ...]
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
    joint = tuple(
        sparse_norm(weight, rows=outgoing, columns=incoming, babel=babel).value
        for weight, incoming, outgoing in zip(hidden, counts, counts[1:], strict=False)
    )
    reach = [length]
    for value in joint:
        reach.append(up(reach[-1] * value, terms=1))
    return LocalScales(counts, row, joint, tuple(reach))


def growth(epsilons: Sequence[float]) -> tuple[float, ...]:
    """(1 + epsilon_1) ... (1 + epsilon_k) - 1 for every k, rounded up.

    >>> [round(value, 4) for value in growth([0.1, 0.1])]
    [0.1, 0.21]
    """
    total = 0.0
    found: list[float] = []
    for epsilon in epsilons:
        # At zero the theorem's condition would be empty, and the theorem false.
        total += math.log1p(checks.positive("epsilon", epsilon))
        found.append(up(math.expm1(up(total, terms=len(found) + 1)), terms=4))
    return tuple(found)


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


def inactive_sets(preactivations: Sequence[Tensor], active: Sequence[int]) -> tuple[Tensor, ...]:
    """For each hidden layer, which units are the (width - active) smallest: (examples, units)."""
    found = []
    for values, count in zip(preactivations, active, strict=True):
        mask = torch.zeros_like(values, dtype=torch.bool)
        smallest = values.topk(values.shape[1] - count, dim=1, largest=False, sorted=False).indices
        found.append(mask.scatter_(1, smallest, True))
    return tuple(found)


def local_radii(preactivations: Sequence[Tensor], scales: LocalScales) -> tuple[Tensor, ...]:
    """For each hidden layer and example, the layer-wise sparse local radius.

    It is 0 where fewer than (width - active) units are inactive, and infinite where none has to be.
    """
    found = []
    layers = zip(preactivations, scales.active[1:], scales.units[:-1], strict=True)
    for values, count, unit in layers:
        inactive = values.shape[1] - count
        if inactive == 0:
            found.append(values.new_full((len(values),), math.inf))
        else:
            found.append((-values.kthvalue(inactive, dim=1).values).relu() / unit)
    return tuple(found)
