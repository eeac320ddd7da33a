"""All the symmetries together, in the one order in which their savings may be added.

Each step replaces the posterior by another one with the same predictions and the same prior, so
every step may be taken or left after seeing the data, for nothing:

1. the scales of hidden channels (and of the scores, where the loss sees only their order);
2. forgetting a common shift of the scores;
3. averaging over the orders of the units, layer by layer, for layers that share no tensor.

The order matters. Step 3 compares units as step 2 left them: without the shift. Adding up the
savings that each would have alone counts what units differ by along the shift twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch

from nonvacuous.bounds.rounding import EPSILON, remaining_nats
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import NotYetSupported, Unsupported
from nonvacuous.networks.layer_graph import LayerGraph
from nonvacuous.networks.scale_groups import ScaleGroups
from nonvacuous.rescaling.output_layer import (
    OutputLayer,
    best_output_log_scale,
    invariance_of,
    output_layer,
    with_output_scale,
)
from nonvacuous.rescaling.overlap import translation_savings
from nonvacuous.rescaling.permutation import PermutationSaving, permutation_saving
from nonvacuous.rescaling.solver import kl_along_orbit, push, total_nats
from nonvacuous.rescaling.unit_layers import NotInterchangeable, UnitLayer, unit_layers


@dataclass(frozen=True)
class Symmetries:
    """What a network has beside its scales: a last layer, layers of interchangeable units."""

    output: OutputLayer | None
    layers: tuple[UnitLayer, ...]
    refused: tuple[NotInterchangeable, ...]


def symmetries_of(graph: LayerGraph) -> Symmetries:
    """Look for them in a captured network; what is not there is refused with its reason."""
    layers, refused = unit_layers(graph)
    output = None
    try:
        output = output_layer(graph)
    except NotYetSupported as reason:
        refused += (NotInterchangeable("the scores", str(reason)),)
    return Symmetries(output, layers, refused)


@dataclass(frozen=True, eq=False)
class Forgotten:
    """What steps 2 and 3 save of a posterior where it stands.

    translation    saved in each tensor of the last layer by forgetting the shift of the scores
    permutations   the layers averaged over the orders of their units
    refused        what does not apply, and why
    """

    translation: Mapping[str, float]
    permutations: tuple[PermutationSaving, ...]
    refused: tuple[NotInterchangeable, ...]


@dataclass(frozen=True, eq=False)
class Quotients(Forgotten):
    """The complexity after every symmetry that applies.

    kl_nats   what goes into a bound, rounded up
    columns   the KL after each step on the way there; all have the prior named in advance
    """

    kl_nats: float
    columns: Mapping[str, float]


def quotients(
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    groups: ScaleGroups,
    log_scales: np.ndarray,
    symmetries: Symmetries,
) -> Quotients:
    """The KL of ``Q`` to ``P`` after rescaling by ``log_scales`` and all further symmetries.

    For the 0-1 loss, which sees none of them. Every column has the prior ``P``, so the least of
    them may be quoted.
    """
    output, layers = symmetries.output, symmetries.layers
    moves = np.asarray(log_scales, dtype=np.float64)
    terms = kl_along_orbit(Q, P, groups, moves)
    columns = {"rescaled": total_nats(terms)}
    if output is not None:
        moved = push(Q, groups, moves, dtype=torch.float64)
        groups = with_output_scale(groups, output)
        moves = np.append(moves, np.zeros(groups.size - len(moves)))
        alone = moves.copy()
        # The best factor depends on whether the shift is forgotten afterwards.
        alone[-1] += best_output_log_scale(moved, P, output, translation=False)
        moves[-1] += best_output_log_scale(moved, P, output, translation=True)
        columns["+ scale of the scores"] = total_nats(kl_along_orbit(Q, P, groups, alone))
        terms = kl_along_orbit(Q, P, groups, moves)
    rest = forgotten(
        push(Q, groups, moves, dtype=torch.float64),
        P,
        loss="zero-one",
        output=output,
        layers=layers,
        # The factors that moved the posterior are exponentials of rounded sums.
        relative_error=4 * EPSILON * (1 + float(np.abs(moves).max(initial=0.0))),
    )
    terms |= {name: remaining_nats(terms[name], saved) for name, saved in rest.translation.items()}
    kl_nats = total_nats(terms)
    if output is not None:
        columns["+ shift of the scores"] = kl_nats
    if layers:
        kl_nats = remaining_nats(kl_nats, *(saving.saved_nats for saving in rest.permutations))
        columns["+ order of the units"] = kl_nats
    return Quotients(**vars(rest), kl_nats=kl_nats, columns=MappingProxyType(columns))


def forgotten(
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    *,
    loss: str,
    output: OutputLayer | None,
    layers: Sequence[UnitLayer],
    relative_error: float = 0.0,
    overlaps: bool = True,
) -> Forgotten:
    """Forget the shift of the scores, then the order of the units, without moving anything.

    ``output`` of None keeps the shift. ``relative_error`` says how far the tensors of ``Q`` may be
    off. Without ``overlaps``, at least what could be saved by the units.
    """
    refused: list[NotInterchangeable] = []
    if output is not None and not invariance_of(loss).shift:
        reason = f"the loss {loss!r} is not known to ignore it"
        refused.append(NotInterchangeable("the shift of the scores", reason))
        output = None
    saved: dict[str, float] = {}
    if output is not None:
        saved = translation_savings(Q, P, output, relative_error=relative_error)
    savings = []
    for layer in layers:
        try:
            saving = permutation_saving(Q, P, layer, translation=output, overlaps=overlaps)
        except Unsupported as reason:
            refused.append(NotInterchangeable(layer.name, str(reason)))
        else:
            if saving.saved_nats > 0:
                savings.append(saving)
    return Forgotten(MappingProxyType(saved), _best_together(savings), tuple(refused))


def _best_together(savings: Sequence[PermutationSaving]) -> tuple[PermutationSaving, ...]:
    """The layers that save most among those of which no two share a tensor.

    Averaging over the orders of one layer makes the posterior a mixture, no longer a product over
    the units of a neighbor: the two savings may not be added.
    """
    budget = [20_000]

    def search(among: Sequence[PermutationSaving]) -> tuple[float, tuple[PermutationSaving, ...]]:
        if not among:
            return 0.0, ()
        first, rest = among[0], among[1:]
        apart = [saving for saving in rest if not saving.layer.names & first.layer.names]
        total, others = search(apart)
        best = (total + first.saved_nats, (first, *others))
        budget[0] -= 1
        # Any choice is valid; on very many layers the search ends with the greedy one.
        if len(apart) == len(rest) or budget[0] < 0:
            return best
        return max(best, search(rest), key=lambda result: result[0])

    return search(sorted(savings, key=lambda saving: saving.saved_nats, reverse=True))[1]
