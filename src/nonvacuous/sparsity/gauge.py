"""The gauge of a network: which of the weights that compute the same function are certified.

Multiplying what goes into a hidden unit by a positive number, and dividing what goes out of it by
the same number, changes no output; yet noise of one scale per layer is felt differently. Two
choices of gauge are free (docs/theory/sparsity.md, 6c): any gauge of the network alone, because the
bound holds for all weights at once, and one of network and prior together that is computed from the
prior alone.

``nonvacuous.rescaling`` moves a posterior with its noise along the orbit, which changes the terms
of the KL divergence that are not distances. Here the noise stays as it is and only the center
moves, so the problem is another one.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.sparsity.weights import Layers

Gauge = Literal["given", "nearest", "balanced"]
GAUGES = ("given", "nearest", "balanced")
#: How far a scale may go, as a logarithm, and in how many steps.
_REACH, _STEPS = 32.0, 500
#: A squared distance below this is none.
_NOTHING = 1e-300


def gauged(layers: Layers, prior: Layers, gauge: Gauge) -> tuple[Layers, Layers]:
    """The network and the prior in a gauge.

    given      nothing is changed
    nearest    of the network alone: as near to the prior as single units can bring it
    balanced   of both, by numbers that the prior alone decides: as much weight into each of its
               units as out of it; then the network's own gauge is chosen as in ``nearest``
    """
    if gauge not in GAUGES:
        raise BadInput(f"there is no gauge {gauge!r}; choose one of {', '.join(GAUGES)}")
    layers.check_same_shape(prior)
    still = tuple(torch.zeros(width, dtype=torch.float64, device="cpu") for width in layers.widths)
    if gauge == "given":
        return layers, prior
    if gauge == "balanced":
        joint = _descend(prior, prior.zero(), still)
        layers, prior = rescaled(layers, joint), rescaled(prior, joint)
    start = _forward(layers, prior)
    nearest = min(
        (_descend(layers, prior, at) for at in (start, still)),
        key=lambda at: sum(rescaled(layers, at).squared_distances(prior)),
    )
    return rescaled(layers, nearest), prior


def rescaled(layers: Layers, log_scales: tuple[Tensor, ...]) -> Layers:
    """The same function: rows and biases times the scales, the columns after them divided."""
    weights, biases = list(layers.weights), list(layers.biases)
    for k, logs in enumerate(log_scales):
        scale = logs.exp()
        bias = biases[k]
        weights[k] = weights[k] * scale[:, None]
        biases[k] = None if bias is None else bias * scale
        weights[k + 1] = weights[k + 1] / scale
    return Layers(tuple(weights), tuple(biases), layers.names)


def _forward(layers: Layers, prior: Layers) -> tuple[Tensor, ...]:
    """Match the rows from the first layer on: exact where the network is the prior in disguise."""
    matched: list[Tensor] = []
    for k, width in enumerate(layers.widths):
        moved = rescaled(layers, (*matched, torch.zeros(width, dtype=torch.float64, device="cpu")))
        mine, theirs = moved.augmented[k], prior.augmented[k]
        overlap, size = (mine * theirs).sum(1), mine.square().sum(1)
        usable = (overlap > 0) & (size > 0)
        ratio = torch.where(usable, overlap / size.clamp(min=1e-300), 1.0)
        matched.append(ratio.log().clamp(-_REACH, _REACH))
    return tuple(matched)


def _descend(layers: Layers, prior: Layers, start: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Scales of smaller distance from the prior, downhill from these; never farther than before."""

    def distance(logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Its logarithm, so that what counts as small does not hang on the size of the weights."""
        moved = rescaled(layers, torch.from_numpy(logs).split(layers.widths)).augmented
        away = [mine - theirs for mine, theirs in zip(moved, prior.augmented, strict=True)]
        pulls = [2.0 * mine * apart for mine, apart in zip(moved, away, strict=True)]
        # A unit's scale multiplies its own row and divides the column that reads it.
        slopes = [into.sum(1) - out.sum(0)[: len(into)] for into, out in pairwise(pulls)]
        total = max(sum(float(apart.square().sum()) for apart in away), _NOTHING)
        return math.log(total), torch.cat(slopes).numpy() / total

    first = torch.cat(start).numpy()
    bounds = [(-_REACH, _REACH)] * len(first)
    options = {"maxiter": _STEPS, "ftol": 1e-9}
    best = minimize(distance, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return tuple(torch.from_numpy(best.x).split(layers.widths))
