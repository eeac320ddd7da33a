"""What was measured on all examples, as the few numbers that a study writes down."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from nonvacuous.sparsity.findings import SHARES, AtEpsilon, LayerActivity, LayerAtEpsilon
from nonvacuous.sparsity.measuring import Choice, Measured


def activity(names: Sequence[str], measured: Measured) -> tuple[LayerActivity, ...]:
    """How many units of each hidden layer are active."""
    examples = len(measured.norms)
    return tuple(
        LayerActivity(
            name=name,
            units=len(lit),
            mean=float(active.double().mean()),
            active=quantiles(active),
            never=int((lit == 0).sum()),
            always=int((lit == examples).sum()),
        )
        for name, active, lit in zip(names, measured.active, measured.lit, strict=True)
    )


def at_epsilon(names: Sequence[str], choice: Choice) -> AtEpsilon:
    """What surely stays as it is when all weights may move by one epsilon."""
    layers = []
    for name, sparsity, stability in zip(names, choice.sparsity, choice.stability, strict=True):
        active, inactive, unstable = stability.shares()
        layers.append(
            LayerAtEpsilon(
                name=name,
                mean=float(sparsity.double().mean()),
                smallest=int(sparsity.min()),
                sparsity=quantiles(sparsity),
                active=active,
                inactive=inactive,
                unstable=unstable,
                kinds=stability.kinds(),
            )
        )
    return AtEpsilon(
        epsilon=choice.epsilon,
        mean_ratio=None if choice.ratio is None else float(choice.ratio.mean()),
        ratio=() if choice.ratio is None else quantiles(choice.ratio),
        layers=tuple(layers),
    )


def quantiles(values: Tensor) -> tuple[float, ...]:
    """The values at SHARES of the examples."""
    if bool(values.isinf().all()):
        return (math.inf,) * len(SHARES)
    return tuple(float(v) for v in np.quantile(values.double().numpy(), SHARES))
