"""Capacity numbers of the user's network: what it could do with any labels, whatever they are."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import nn

from nonvacuous.bounds.capacity import vc_lower, vc_upper
from nonvacuous.bounds.memorization_capacity import memorization_sizes, memorization_verdict
from nonvacuous.data import Examples
from nonvacuous.errors import NonvacuousError
from nonvacuous.networks import capture, fold_batch_norm
from nonvacuous.randomization.intervals import over_networks
from nonvacuous.randomization.outcomes import Outcome
from nonvacuous.randomization.rademacher import rademacher_estimate
from nonvacuous.randomization.results import Capacity, Rademacher
from nonvacuous.randomization.settings import StudySettings
from nonvacuous.rescaling.structure import score_difference

#: Layers that compute nothing when a network is measured, or only change the shape.
_SILENT = (nn.Flatten, nn.Dropout, nn.Identity)


def rademacher_of(signs: Sequence[Outcome], *, settings: StudySettings) -> Rademacher | None:
    """From networks trained on random signs; a fit of all of them gives 1, guessing gives 0."""
    if not signs:
        return None
    found = rademacher_estimate(
        [outcome.train_errors for outcome in signs],
        examples=signs[0].train_examples,
        failure=settings.failure,
    )
    fits = [1.0 - 2.0 * outcome.train_error for outcome in signs]
    return Rademacher(
        complexity=over_networks(fits, confidence=settings.confidence),
        sign_vectors=found.sign_vectors,
        examples=found.examples,
        gap_bound=found.gap,
        verdict=found.verdict,
    )


def capacity_of(module: nn.Module, examples: Examples) -> Capacity:
    """VC dimension and sizes that suffice to memorize, for this network and these examples."""
    count, inputs = len(examples), examples.inputs[0].numel()
    parameters = sum(parameter.numel() for parameter in module.parameters())
    sizes = memorization_sizes(examples=count, inputs=inputs)
    lines = [
        ("weights of this network", f"{parameters:,}", f"{parameters / count:,.1f} per example"),
        (
            "weights that suffice for any labels",
            f"{sizes.projection_weights:,}",
            f"2n + d, in one hidden layer of {sizes.projection_units:,} units: any distinct inputs",
        ),
        (
            "hidden units that suffice",
            f"{sizes.general_position_units:,}",
            "4⌈n/d⌉ in one hidden layer: inputs in general position only",
        ),
        (
            "width of two hidden layers that suffices",
            f"{sizes.two_layer_width:,}",
            "4⌈√n/2⌉ each: any distinct inputs",
        ),
    ]
    widths = perceptron_widths(module)
    if widths is None:
        return Capacity((*lines, _vc_of_any(module, examples)))
    found = memorization_verdict(examples=count, inputs=inputs, widths=widths)
    reason = (found.any_distinct or found.general_position or ("",))[0]
    return Capacity(
        (
            *lines,
            ("this network, by theorem", found.verdict, reason),
            (
                "VC dimension",
                f"{vc_lower(inputs=inputs, widths=widths):,} to {found.vc_upper:,}",
                _vc_told(found.vc_upper, count),
            ),
        )
    )


def _vc_of_any(module: nn.Module, examples: Examples) -> tuple[str, str, str]:
    """From above only, where convolutions, poolings or skips are counted on the captured graph."""
    example = examples.inputs[:2].clone()
    try:
        fixed = copy.deepcopy(module).eval()
        layers = score_difference(capture(fold_batch_norm(fixed, example), example))
    except NonvacuousError as error:
        return ("VC dimension", "not counted", str(error).splitlines()[0])
    upper = vc_upper(
        parameters=[own for own, _ in layers], comparisons=[signs for _, signs in layers]
    )
    return ("VC dimension", f"at most {upper:,}", _vc_told(upper, len(examples)))


def _vc_told(upper: int, count: int) -> str:
    if upper > count:
        return f"the same for true and random labels; a bound needs far more than n = {count:,}"
    return f"below n = {count:,}: here it does say something"


def perceptron_widths(module: nn.Module) -> tuple[int, ...] | None:
    """The widths of the hidden layers, or None where the network is not a plain perceptron."""
    layers = [
        layer
        for layer in module.modules()
        if not any(True for _ in layer.children()) and not isinstance(layer, _SILENT)
    ]
    linear, between = layers[::2], layers[1::2]
    plain = (
        len(layers) % 2 == 1
        and all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in linear)
        and all(isinstance(layer, nn.ReLU) for layer in between)
    )
    if not plain:
        return None
    return tuple(layer.out_features for layer in linear[:-1] if isinstance(layer, nn.Linear))
