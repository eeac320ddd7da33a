"""Theorem E for convolutions: noise enters layer by layer, a kernel's noise at all positions.

Statement and proof: docs/theory/sparsity.md, 10. What was one number s_k in a chain of linear
layers is two things here: the deviation of one unit's own noise, which depends on its patch, and
the Lipschitz constant of a whole layer, the spectral norm of the matrix of patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.sparsity.conv_chain import ConvChain, receptive_field
from nonvacuous.sparsity.conv_jacobian import ConvBounds, mean_shifts, pattern, slopes_of_margins
from nonvacuous.sparsity.conv_noise import ConvInputs, ConvPass
from nonvacuous.sparsity.setting import ConvSetting
from nonvacuous.sparsity.theorem_e import anchored_means, levels, tail_threshold


@dataclass(frozen=True, eq=False)
class Anchor:
    """The prior, and of its output weights the differences w_y - w_c and their norms."""

    prior: ConvChain
    differences: Tensor
    norms: Tensor

    @classmethod
    def of(cls, prior: ConvChain) -> Anchor:
        differences = prior.output[:, None] - prior.output[None]
        norms = differences.square().sum(2).sqrt() * (1.0 + 1e-12)
        return cls(prior, differences, norms)


def thresholds(
    chain: ConvChain,
    noisy: ConvPass,
    inputs: ConvInputs,
    bounds: ConvBounds,
    anchor: Anchor,
    setting: ConvSetting,
    *,
    sparse: bool,
) -> Tensor:
    """D(W', x) for every example and every class that may have beaten the label."""
    hidden, sigmas = chain.hidden, setting.sigmas
    widths = [stage.units for stage in chain.stages[:-1]]
    split = levels(widths, setting.escape_probability, sparse=sparse)
    gaps, carried, away = _shifts(chain, noisy, bounds, split.deviation, sparse=sparse)
    means = anchored_means(gaps, inputs.labels, anchor.differences.clamp(min=0), bounds.drift)
    norms = anchor.norms[inputs.labels] + bounds.drift
    growth = [bounds.onward(k, hidden - 1) for k in range(hidden)]
    whole = torch.stack([noisy.whole[k] * growth[k] for k in range(hidden)], dim=1)
    spreads = norms[:, :, None] * whole[:, None]
    noises = torch.tensor(sigmas[:-1], dtype=whole.dtype, device=whole.device)
    scale = noises * inputs.known[:, :-1]
    expected = (
        norms[:, :, None] * (scale * torch.tensor(growth, dtype=scale.dtype).to(scale))[:, None]
    )
    if sparse:
        spreads = _sharpened(chain, noisy, inputs, bounds, anchor, away, spreads, sigmas)
        columns = inputs.rivals[:, :, None].expand_as(inputs.slopes)
        near = noises * inputs.slopes + setting.norms_share * expected.gather(1, columns)
        expected = expected.scatter(1, columns, near)
    variance = spreads.square().sum(2) + 2.0 * noisy.whole[-1][:, None].square()
    guess = expected.square().sum(2) + 2.0 * (sigmas[-1] * inputs.known[:, -1:]).square()
    spare = tail_threshold(variance, guess.clamp(min=1e-280), split.output, setting)
    return means + norms * carried[:, None] + spare


def _sharpened(
    chain: ConvChain,
    noisy: ConvPass,
    inputs: ConvInputs,
    bounds: ConvBounds,
    anchor: Anchor,
    away: list[Tensor],
    spreads: Tensor,
    sigmas: Sequence[float],
) -> Tensor:
    """The smaller of the products of norms and, for the nearest rivals, what gradients allow."""
    patterns = [
        pattern(stage, values, room)
        for stage, values, room in zip(chain.stages, noisy.before, away, strict=False)
    ]
    starts = anchor.differences[inputs.labels[:, None], inputs.rivals]
    sizes, radii = slopes_of_margins(anchor.prior, patterns, noisy.patches, starts, bounds)
    sharper = torch.stack(
        [sigmas[k] * sizes[k] + noisy.whole[k][:, None] * radii[k] for k in range(chain.hidden)],
        dim=2,
    )
    columns = inputs.rivals[:, :, None].expand_as(sharper)
    return spreads.scatter(1, columns, torch.minimum(spreads.gather(1, columns), sharper))


def _shifts(
    chain: ConvChain, noisy: ConvPass, bounds: ConvBounds, quantile: float, *, sparse: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Sum over layers of noise of the last layer's mean shifts, and of what earlier ones carry.

    And for each layer, how far from its value a pre-activation can be in any hybrid network: units
    farther than that from their kink are stable.
    """
    hidden = chain.hidden
    away: list[Tensor] = []
    carried = torch.zeros_like(noisy.whole[0])
    gaps = torch.zeros(())
    lengths: dict[int, Tensor] = {}
    for j in range(hidden):
        stage = chain.stages[j]
        values = noisy.before[j] if sparse else None
        grown = {k: bounds.step(j) * lengths[k] for k in lengths}
        if j == hidden - 1:
            carried = sum(grown.values(), carried)
            gaps = torch.zeros_like(carried)[:, None]
        moved = torch.zeros_like(noisy.units[j])
        farthest = moved
        shifted: dict[int, Tensor] = {}
        # From the latest noise to the earliest: each adds to how far the pre-activation can be
        # from the mean of the hybrid network with k noisy layers.
        for k in range(j, -1, -1):
            reach = unit_reach(chain, noisy, bounds, k, j)
            moved = moved + quantile * reach
            apart = noisy.apart[j] if k == j else None
            shifts = mean_shifts(stage, values, reach, moved, apart)
            own = shifts.square().sum(1).sqrt()
            shifted[k] = grown[k] + own if k < j else own
            own_step = quantile * reach
            if k < j:
                carried_here = (bounds.rows[j] * lengths[k])[:, None]
                moved, own_step = moved + carried_here, own_step + carried_here
            farthest = torch.maximum(farthest, moved + own_step)
            if j == hidden - 1:
                gaps = gaps + shifts
        lengths = shifted
        away.append(farthest)
    return gaps, carried, away


def unit_reach(chain: ConvChain, noisy: ConvPass, bounds: ConvBounds, k: int, j: int) -> Tensor:
    """Lipschitz constants of the units of layer j in the noise of layer k, (examples, positions).

    A unit sees only the positions in its receptive field, and the spectral norm of their patches
    is at most their Frobenius norm, and at most that of all patches.
    """
    if k == j:
        return noisy.units[j]
    squares = noisy.units[k].square().reshape(-1, *chain.stages[k].middle[1:])
    local = receptive_field(chain, k, j).sums(squares).clamp(min=0).sqrt() * (1.0 + 1e-9)
    growth = bounds.rows[j] * bounds.onward(k, j - 1)
    return growth * torch.minimum(local, noisy.whole[k][:, None])
