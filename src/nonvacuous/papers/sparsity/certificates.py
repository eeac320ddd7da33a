"""The certificates and the activity of one network of the sparsity study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from torch import Tensor

from nonvacuous.data import Examples
from nonvacuous.papers.sparsity.settings import VARIANTS, SparsityCell
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.certificate import Theorem, Variant, certify_sparse
from nonvacuous.sparsity.radii import NormTables, forward, greedy_sparsity
from nonvacuous.sparsity.weights import Layers

#: The terms of a certificate that a table or a reader needs; the charges are summed in grid_nats.
_KEPT = (
    "risk_upper",
    "examples",
    "failure",
    "sampling_failure",
    "kl_nats",
    "grid_nats",
    "escape",
    "errors",
    "trials",
    "loss_upper",
    "scales",
    "threshold",
    "margin",
)


def certificates(
    weights: Sequence[Tensor],
    prior: Sequence[Tensor],
    examples: Examples,
    *,
    settings: SparsityCell,
    seed: int,
    progress: Progress | None = None,
) -> dict[str, dict[str, Any]]:
    """Every theorem in both variants, all of them true at once.

    All of them are paid for, for as many networks as the settings say, so that the smallest number
    may be taken. They are computed where the examples lie.
    """
    layers, center = Layers.of(weights), Layers.of(prior)
    claims = len(settings.theorems) * len(VARIANTS) * settings.attempts
    found = {}
    for theorem in get_args(Theorem):
        for variant in get_args(Variant)[::-1]:
            if theorem not in settings.theorems:
                continue
            certificate = certify_sparse(
                layers,
                center,
                examples,
                theorem=theorem,
                variant=variant,
                confidence=1.0 - settings.failure,
                sampling_failure=settings.sampling_failure,
                choices=claims,
                subset=_searched(layers.hidden),
                seed=derived_seed(seed, theorem, variant),
                progress=progress,
            )
            record = certificate.to_dict()
            found[f"{theorem} {variant}"] = {name: _finite(record[name]) for name in _KEPT}
    return found


def _searched(hidden: int) -> int:
    """Examples on which settings are compared: fewer in deep networks, which have more of them.

    A search on few examples may miss the best setting; what it finds is certified on all.
    """
    return 3_000 if hidden <= 2 else max(600, 6_000 // hidden)


def _finite(value: Any) -> Any:
    """None for a threshold that no margin can exceed: JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def activity(
    weights: Sequence[Tensor], examples: Examples, *, settings: SparsityCell
) -> tuple[tuple[float, ...], dict[str, float]]:
    """Mean share of active units by layer, and the effective activity ratio by perturbation."""
    some = examples.subset(np.arange(min(settings.activity_examples, len(examples))))
    layers = Layers.of(weights).weights
    inputs = some.inputs.flatten(1).cpu().double()
    preactivations, _ = forward(layers, inputs)
    norms = NormTables.of(layers)
    ratios = {}
    for epsilon in settings.epsilons:
        found = greedy_sparsity(norms, preactivations, inputs.norm(dim=1), epsilon=epsilon)
        ratios[f"{epsilon:g}"] = float(found.ratio.mean())
    return tuple(float((sums > 0).double().mean()) for sums in preactivations), ratios
