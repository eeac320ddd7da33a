"""Theorem F: all noise at once, for deep networks.

Statement and proof: docs/theory/sparsity.md, 6b. Theorem E moves from the network to the noisy one
layer by layer and adds up what every layer's noise may do to the mean of every later layer. Here
the noisy network is compared with its own mean: a pre-activation under all noise is dominated by
one normal variable, whose variance is the sum of the layers' variances. That takes noise scales
that are known beforehand, so a cap is named: an example whose activations exceed it counts as lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nonvacuous.bounds.sparsity import expected_shortfall
from nonvacuous.sparsity.constants import Constants
from nonvacuous.sparsity.noise import Inputs, NoisyPass
from nonvacuous.sparsity.setting import Tailed
from nonvacuous.sparsity.theorem_e import EVENT_SHARE, KINK, Levels, kinks, mean_shifts


def levels(widths: Sequence[int], escape: float, *, sparse: bool) -> Levels:
    """Split the escape probability; one event for each unit, on both sides."""
    if not sparse:
        return Levels(escape, 0.0)
    quantile = expected_shortfall(escape * EVENT_SHARE / (2 * sum(widths)))
    return Levels(escape * (1.0 - EVENT_SHARE), quantile)


def thresholds(
    noisy: NoisyPass,
    inputs: Inputs,
    constants: Constants,
    setting: Tailed,
    *,
    sparse: bool,
    anchor: Tensor | None = None,
    grams: Sequence[Tensor | None] = (),
) -> Tensor:
    """D(W', x) for every example and every class that may have beaten the label.

    anchor   see :func:`nonvacuous.sparsity.theorem_e.thresholds`
    grams    per hidden layer :func:`positive_gram` of the prior's weights, where mean shifts meet
             the prior's weights
    """
    hidden, sigmas = len(noisy.before), setting.sigmas
    widths = [values.shape[1] for values in noisy.before]
    split = levels(widths, setting.escape_probability, sparse=sparse)
    # The input carries no noise, so that its own size needs no room.
    room = [1.0] + [setting.tail_factor] * hidden
    caps = [sigmas[k] * room[k] * inputs.known[:, k] for k in range(hidden + 1)]
    kept = torch.ones_like(inputs.labels, dtype=torch.bool)
    for scale, cap in zip(noisy.scales[1:], caps[1:], strict=True):
        kept &= scale * (1.0 + 1e-9) <= cap
    grown = torch.zeros_like(caps[0])
    gaps = torch.zeros_like(noisy.before[0])
    carried = torch.zeros_like(caps[0])
    for j in range(hidden):
        before = noisy.before[j]
        if j:
            # What the mean shifts of the layers before do to this one's pre-activations.
            carried = constants.spectral[j] * carried + _hop(gaps, constants, j, grams)
        # grown: squares of what the noise of earlier layers can do to the input of this one.
        squares = caps[j].square()[:, None].expand_as(before)
        rows = constants.units[j]
        if rows is not None:
            squares = squares + grown[:, None] * rows.square()
        spread = squares.sqrt().clamp(min=1e-280)
        if sparse:
            away = split.deviation * spread * (1.0 + 1e-9)
            excess = (before.abs() - away).clamp(min=0)
            gaps = spread * kinks(excess / spread)
        else:
            excess, gaps = torch.zeros_like(before), KINK * spread
        # The square of how much layer j, noise included, stretches a difference on average.
        stretch = constants.spectral[j] ** 2 + before.shape[1] * sigmas[j] ** 2
        grown = caps[j].square() + stretch * grown
    norms = constants.norms(inputs.labels)
    if sparse:
        own = [(gaps, spread.amax(1), excess)]
        means = mean_shifts(own, inputs.labels, constants, anchor)
    else:
        means = KINK * spread.amax(1, keepdim=True) * constants.sums(inputs.labels)
    variance = norms.square() * grown[:, None] + 2.0 * caps[-1][:, None].square()
    total = means + norms * carried[:, None] + expected_shortfall(split.output) * variance.sqrt()
    return torch.where(kept[:, None], total, torch.inf)


def positive_gram(matrix: Tensor) -> Tensor:
    """The positive entries of W^T W: shifts of means are never negative, so only these add up."""
    gram = (matrix.T @ matrix).clamp(min=0)
    # More than rounding can have taken from any entry, put where it counts for all.
    room = max(1e-12, len(matrix) * 2.0**-52)
    return gram + room * float(matrix.square().sum()) * torch.eye(
        len(gram), dtype=gram.dtype, device=gram.device
    )


def _hop(gaps: Tensor, constants: Constants, j: int, grams: Sequence[Tensor | None]) -> Tensor:
    """How far layer j can carry the shifts that arise right before it."""
    length = gaps.square().sum(1).sqrt()
    hop = constants.spectral[j] * length
    gram = grams[j] if grams else None
    moved = constants.moved[j] if constants.moved else None
    if gram is None or moved is None:
        return hop
    signed = ((gaps @ gram) * gaps).sum(1).sqrt() * (1.0 + 1e-9) + moved * length
    return torch.minimum(hop, signed)
