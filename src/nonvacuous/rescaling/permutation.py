"""The order of the units: a posterior averaged over all orders predicts as before.

The h units of a layer can change places in h! ways. Averaging the posterior over all of them
changes no prediction, and under a prior that does not tell the units apart the KL drops by up to
ln h!: all of it where the units are so different that a drawn network shows which is which. What
is not saved is bounded as follows. With q_k the law of unit k's block, the average gives back

    E ln sum over orders of prod_k q_order(k)(w_k) / q_k(w_k)  <=  sum_k E ln sum_j q_j/q_k(w_k)

(a permanent is at most the product of its row sums), and for any power 0 < a <= 1, since a sum is
at most the 1/a-th power of the sum of a-th powers, and by Jensen, each summand is at most

    (1/a) ln sum_j E_{q_k} (q_j / q_k)^a,

which for Gaussians has a closed form. Coordinates may be left out of it: each one only makes an
overlap smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.rescaling.output_layer import OutputLayer
from nonvacuous.rescaling.overlap import Blocks, log_one_plus_overlaps
from nonvacuous.rescaling.unit_layers import UnitLayer

# Where to look for the best power, in the order of how often it is found there.
_GRID = (0.5, 0.7, 0.85, 0.3, 0.93, 0.15, 0.06)
_REFINEMENTS = 3
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class PermutationSaving:
    """What the order of one layer's units saves.

    ``correction`` bounds what overlapping units give back.
    """

    layer: UnitLayer
    correction: float

    @property
    def saved_nats(self) -> float:
        """``ln h! - correction``, or nothing, rounded down."""
        return max(0.0, math.lgamma(self.layer.units + 1) * (1 - 1e-14) - self.correction)


def permutation_saving(
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    layer: UnitLayer,
    *,
    translation: OutputLayer | None = None,
    overlaps: bool = True,
) -> PermutationSaving:
    """Nats by which averaging over the orders of a layer's units lowers the KL, at least.

    The prior must not tell the units apart: equal means and scales for all of them, in every
    tensor of their blocks. Where the shift of the scores was already forgotten, pass that output
    layer as ``translation``: its columns are then compared without the shift. Leaving it out there
    would count the shift twice and can claim more than there is. Without ``overlaps``, as if no two
    units overlapped: the most that could be saved, which is not to be quoted.
    """
    check_exchangeable(P, layer)
    _check_blocks(Q, layer)
    corrections = _corrections(_blocks(Q, layer, translation)).tolist() if overlaps else []
    return PermutationSaving(layer, math.fsum(corrections) * (1 + 1e-12))


def check_exchangeable(P: DiagonalGaussian, layer: UnitLayer) -> None:
    """Refuse a prior that tells the units of the layer apart, naming the tensor."""
    _check_blocks(P, layer)
    for name, axis, entries in layer.tensors:
        for label, tensors in (("means", P.means), ("scales", P.scales)):
            rows = _rows(tensors[name], axis, entries)
            if bool((rows != rows[:1]).any()):
                raise Unsupported(
                    f"layer {layer.name!r}: the prior's {label} of {name!r} differ from unit to "
                    "unit, so exchanging units changes the prior and the permutation quotient "
                    "does not apply; use a prior with zero means and scales that do not depend on "
                    "the unit, or leave this layer out"
                )


def _check_blocks(distribution: DiagonalGaussian, layer: UnitLayer) -> None:
    if len(layer.names) != len(layer.tensors):
        raise Unsupported(
            f"layer {layer.name!r} lists a tensor twice; a unit's block must be made of parts of "
            "different tensors, each used once"
        )
    for name, axis, entries in layer.tensors:
        if name not in distribution.means:
            raise Unsupported(
                f"layer {layer.name!r}: the tensor {name!r} of its units is not random (it is not "
                "in the distribution), so it cannot change places with the rest; give it a prior "
                "and a posterior, or leave this layer out"
            )
        shape = tuple(distribution.means[name].shape)
        if axis >= len(shape) or shape[axis] != layer.units * entries:
            raise BadInput(
                f"layer {layer.name!r}: axis {axis} of {name!r} (shape {shape}) does not hold "
                f"{layer.units} units of {entries} entries"
            )


def _rows(tensor: Tensor, axis: int, entries: int) -> Tensor:
    """A tensor as one row for each unit."""
    moved = tensor.detach().movedim(axis, 0)
    return moved.reshape(moved.shape[0] // entries, -1)


def _blocks(Q: DiagonalGaussian, layer: UnitLayer, translation: OutputLayer | None) -> Blocks:
    tensors: list[tuple[Tensor, Tensor]] = []
    columns: tuple[Tensor, Tensor] | None = None
    for name, axis, entries in layer.tensors:
        mean = _rows(Q.means[name], axis, entries).double()
        variance = _rows(Q.scales[name], axis, entries).double().square()
        if translation is not None and name == translation.weight and axis == 1:
            classes = Q.means[name].shape[0]
            shape = (layer.units, entries, classes)
            columns = (mean.reshape(shape), variance.reshape(shape))
        elif translation is not None and name in translation.tensors:
            raise Unsupported(
                f"layer {layer.name!r} holds {name!r}, whose shift was forgotten, in another way "
                "than as the columns of the last layer; leave this layer out"
            )
        else:
            tensors.append((mean, variance))
    return Blocks.of(tensors, columns)


def _corrections(blocks: Blocks) -> Tensor:
    """For each unit, the least bound over the powers tried."""
    best = torch.full((blocks.units,), math.log(blocks.units), dtype=torch.float64)
    power = torch.ones_like(best)

    def attempt(rows: Tensor, powers: Tensor) -> Tensor:
        values = log_one_plus_overlaps(blocks, rows, powers) / powers
        better = values < best[rows]
        best[rows[better]], power[rows[better]] = values[better], powers[better]
        return values

    for candidate in _GRID:
        rows = torch.nonzero(best > _NEGLIGIBLE)[:, 0]
        attempt(rows, torch.full((len(rows),), candidate, dtype=torch.float64))
    if float(best.sum()) > 1.2 * math.lgamma(blocks.units + 1):
        return best  # nothing is saved, and a better power would not change that
    # Close in on the best power of each unit that is left, from both sides.
    width = torch.full_like(best, 0.08)
    for _ in range(_REFINEMENTS):
        rows = torch.nonzero(best > _NEGLIGIBLE)[:, 0]
        before = best[rows].clone()
        for side in (-1.0, 1.0):
            attempt(rows, (power[rows] + side * width[rows]).clamp(0.02, 0.995))
        width[rows] = torch.where(best[rows] < before, width[rows], width[rows] / 2)
    return best
