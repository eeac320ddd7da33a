"""The gauge of a network: which of the weights that compute the same function are certified.

Multiplying what goes into a hidden unit by a positive number, and dividing what goes out of it by
the same number, changes no output; yet noise of one scale per layer is felt differently. Two
choices of gauge are free (docs/theory/sparsity.md, 6c): any gauge of the network alone, because the
bound holds for all weights at once, and one of network and prior together that is computed from the
prior alone.

``nonvacuous.rescaling`` moves a posterior with its noise along the orbit, which changes the terms
of the KL divergence that are not distances. Here the noise stays as it is and only the center
moves, so the problem is another one: each unit's best number is the root of a quartic.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.sparsity.weights import Layers

Gauge = Literal["given", "nearest", "balanced"]
GAUGES = ("given", "nearest", "balanced")
_SWEEPS = 100
#: How far a single step may go, as a logarithm, and how often and finely to look closer.
_REACH, _LOOKS, _STEPS = 8.0, 4, 81


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
        matched.append(ratio.log().clamp(-4 * _REACH, 4 * _REACH))
    return tuple(matched)


def _descend(layers: Layers, prior: Layers, start: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Layer after layer, each unit's best scale given the others; never farther than before."""
    scales = list(start)
    before = math.inf
    for _ in range(_SWEEPS):
        moves = []
        for k in range(layers.hidden):
            moved = rescaled(layers, tuple(scales))
            moves.append(_best_steps(moved, prior, k))
            scales[k] = scales[k] + moves[k]
        now = sum(rescaled(layers, tuple(scales)).squared_distances(prior))
        still = max(float(move.abs().max()) for move in moves) < 1e-12
        if still or not now < before * (1.0 - 1e-7):
            break
        before = now
    return tuple(scales)


def _best_steps(layers: Layers, prior: Layers, k: int) -> Tensor:
    """For each unit of layer k the t that makes |e^t w - w0|^2 + |e^-t u - u0|^2 smallest."""
    into, into0 = layers.augmented[k], prior.augmented[k]
    out, out0 = layers.weights[k + 1].T, prior.weights[k + 1].T
    a, b = into.square().sum(1), (into * into0).sum(1)
    c, d = out.square().sum(1), (out * out0).sum(1)

    def value(t: Tensor) -> Tensor:
        up, down = t.exp(), (-t).exp()
        return up * (a * up - 2 * b) + down * (c * down - 2 * d)

    center, reach = torch.zeros_like(a), _REACH
    for _ in range(_LOOKS):
        steps = torch.linspace(-reach, reach, _STEPS, dtype=torch.float64, device="cpu")
        looks = center + steps[:, None]
        center = looks.gather(0, value(looks).argmin(0, keepdim=True))[0]
        reach = 2.0 * reach / (_STEPS - 1)
    # Values are flat at the bottom; slopes tell it to full precision.
    step = center
    for _ in range(3):
        up, down = step.exp(), (-step).exp()
        slope = up * (a * up - b) - down * (c * down - d)
        bend = up * (2 * a * up - b) + down * (2 * c * down - d)
        step = torch.where(bend > 0, step - slope / bend.clamp(min=1e-300), step)
    step = torch.where((step - center).abs() <= 2 * reach * _STEPS, step, center)
    # Rounding, or a unit without weights, must not make it worse.
    return torch.where(value(step) <= value(torch.zeros_like(step)), step, 0.0)
