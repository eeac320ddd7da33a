"""Greedy sparsity: for one input, how many units of each layer surely stay inactive.

Layer by layer, a unit counts when its pre-activation lies below -level * growth_k * row_k *
reach_{k-1}. That is one comparison: the largest sparsity with a sufficient radius needs no search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from nonvacuous.sparsity.norms import row_norms, sparse_norms
from nonvacuous.sparsity.radii import Weights, growth

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
        """The tables of a network."""
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
    local: bool = True,
) -> Greedy:
    """s*(x, epsilon) of every example, from the pre-activations of its hidden layers.

    epsilon   how far every layer may move, relative to its norms
    local     let the norms of a layer shrink with the units already left out for this example;
              otherwise those of the full layers are used
    """
    gammas = growth([epsilon] * len(preactivations))
    reach = input_norms.double()
    active = torch.full_like(reach, tables.widths[0], dtype=torch.int64)
    sparsity, thresholds, kept = [], [], [active]
    for number, values in enumerate(preactivations):
        width = values.shape[1]
        row = tables.rows[number][active if local else -1]
        threshold = level * gammas[number] * row * reach
        inactive = (values <= -threshold[:, None]).sum(1)
        joint = tables.joints[number]
        incoming, active = active, width - inactive
        reach = reach * (joint[active, incoming] if local else joint[-1, -1])
        sparsity.append(inactive)
        thresholds.append(threshold)
        kept.append(active)
    kept.append(torch.full_like(active, tables.widths[-1]))
    return Greedy(tuple(sparsity), tuple(thresholds), activity_ratio(kept, tables.widths))


def activity_ratio(active: Sequence[Tensor], widths: Sequence[int]) -> Tensor:
    """The share of weights whose two ends are both active, from the inputs to the outputs."""
    used = sum(one * two for one, two in pairwise(active))
    total = sum(one * two for one, two in pairwise(widths))
    return torch.as_tensor(used).double() / total
