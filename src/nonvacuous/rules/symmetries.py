"""What the symmetries of a network save, found in the same way by who writes and who checks.

Forgetting a symmetry replaces the posterior by another one with the same predictions: it is
averaged over the shift of the scores, or over the orders of a layer's units, under the same prior.
The theorem holds for all posteriors at once, so this is free. It is a statement about the KL alone:
a bound for one drawn network prices that network's weights and may not use it.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.networks import LayerGraph, capture
from nonvacuous.records import ComplexityRecord, SymmetrySaving
from nonvacuous.rescaling.quotients import forgotten, symmetries_of

#: The symmetries that may be forgotten after the posterior is frozen.
SYMMETRIES = ("translation", "permutation")
#: Layers wider than this keep the order of their units: comparing all pairs would take minutes.
WIDEST = 1024
#: Two evaluations of the same saving may differ by this much, relative and for each unit: the
#: search for the best power of an overlap stops at differences that matter to nobody.
RELATIVE = 1e-9
PER_UNIT = 1e-8


def captured(module: nn.Module, inputs: torch.Tensor) -> LayerGraph:
    """The network as a graph; two examples are enough for its shape."""
    parameter = next(module.parameters(), None)
    few = inputs[:2]
    return capture(module, few if parameter is None else few.to(parameter.device))


def symmetry_savings(
    graph: LayerGraph,
    posterior: DiagonalGaussian,
    prior: DiagonalGaussian,
    *,
    loss: str,
    which: Collection[str] = SYMMETRIES,
    overlaps: bool = True,
) -> tuple[SymmetrySaving, ...]:
    """What can be saved in a captured network, with this prior and this loss, if anything.

    ``which`` names the symmetries to use. What a symmetry saves depends on the others: units are
    compared without the shift of the scores if that is forgotten too. Without ``overlaps`` they are
    not compared, and no less is saved.
    """
    for name in which:
        if name not in SYMMETRIES:
            raise BadInput(f"there is no quotient {name!r}; there are {', '.join(SYMMETRIES)}")
    symmetries = symmetries_of(graph)
    narrow = [layer for layer in symmetries.layers if layer.units <= WIDEST]
    # The posterior was moved already where scales are free; it is taken as it stands.
    saved = forgotten(
        posterior,
        prior,
        loss=loss,
        output=symmetries.output if "translation" in which else None,
        layers=narrow if "permutation" in which else (),
        overlaps=overlaps,
    )
    classes = {name: posterior.means[name].shape[0] for name in saved.translation}
    shifts = [
        SymmetrySaving(symmetry="translation", place=name, units=classes[name], nats=nats)
        for name, nats in saved.translation.items()
    ]
    orders = [
        SymmetrySaving(
            symmetry="permutation", place=s.layer.name, units=s.layer.units, nats=s.saved_nats
        )
        for s in saved.permutations
    ]
    return (*shifts, *orders)


def wrong_savings(
    graph: LayerGraph,
    posterior: DiagonalGaussian,
    prior: DiagonalGaussian,
    complexity: ComplexityRecord,
    *,
    loss: str,
) -> str | None:
    """Recompute all that a record says of symmetries; what is wrong with it, or None."""
    listed = {saving.symmetry for saving in complexity.symmetries}
    which = tuple(name for name in SYMMETRIES if name in listed)
    again = symmetry_savings(graph, posterior, prior, loss=loss, which=which)
    return disagreeing_saving(complexity.symmetries, again)


def disagreeing_saving(
    recorded: tuple[SymmetrySaving, ...], recomputed: tuple[SymmetrySaving, ...]
) -> str | None:
    """What is wrong with the recorded savings, or None."""
    expected = {(saving.symmetry, saving.place): saving for saving in recomputed}
    for saving in recorded:
        words = f"the {saving.symmetry} of {saving.place!r}"
        right = expected.pop((saving.symmetry, saving.place), None)
        if right is None:
            return f"{words} is said to save {saving.nats!r} nats; there is no such saving"
        if saving.units != right.units:
            return f"{words} is said to concern {saving.units} units; there are {right.units}"
        slack = RELATIVE * right.nats + PER_UNIT * right.units
        if not abs(saving.nats - right.nats) <= slack:
            return f"{words} is said to save {saving.nats!r} nats; it saves {right.nats!r}"
    if expected:
        missing = next(iter(expected))
        return f"the {missing[0]} of {missing[1]!r} is left out although others are listed"
    return None
