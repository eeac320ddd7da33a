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

from nonvacuous.bounds.sparsity import lipschitz_quantile
from nonvacuous.sparsity.conv_chain import ConvChain, receptive_field
from nonvacuous.sparsity.conv_jacobian import Growth, mean_shifts, pattern, slopes_of_margins
from nonvacuous.sparsity.conv_noise import ConvInputs, ConvPass
from nonvacuous.sparsity.theorem_e import EVENT_SHARE, Tail, tail_threshold


@dataclass(frozen=True, eq=False)
class ConvBounds:
    """Numbers of the network that stand inside the loss, never below the truth.

    spectral   per hidden layer its operator norm; None for the first, which needs none
    rows       per hidden layer the largest norm of a kernel; None for the first
    distance   per hidden layer the operator norm of its distance from the prior; None for the
               first
    pools      per hidden layer the Lipschitz constant of its pooling: architecture, not chosen
    drift      at least |(w_y - w_c) - (the prior's)| for all pairs of classes
    """

    spectral: tuple[float | None, ...]
    rows: tuple[float | None, ...]
    distance: tuple[float | None, ...]
    pools: tuple[float, ...]
    drift: float

    def step(self, layer: int) -> float:
        """How much the pooled output of a layer moves per unit of movement of its input."""
        value = self.spectral[layer]
        assert value is not None
        return value * self.pools[layer]

    def onward(self, layer: int, end: int) -> float:
        """From pre-activations of ``layer`` to the pooled output of layer ``end``."""
        total = self.pools[layer]
        for later in range(layer + 1, end + 1):
            total *= self.step(later)
        return total

    def row(self, layer: int) -> float:
        value = self.rows[layer]
        assert value is not None
        return value


@dataclass(frozen=True)
class ConvTail(Tail):
    """How the spread is turned into a threshold, as in Theorem E.

    blend   how much of the product of norms is added to the prior's gradients where the spread is
            expected; only with sparsity
    """

    blend: float


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


def event_quantile(chain: ConvChain, escape: float) -> float:
    """T of the events: every pre-activation of every hybrid network stays near its mean."""
    stages = chain.stages[:-1]
    events = sum(number * stage.units for number, stage in enumerate(stages, start=1))
    return lipschitz_quantile(failure=escape * EVENT_SHARE, events=events)


def thresholds(
    chain: ConvChain,
    noisy: ConvPass,
    inputs: ConvInputs,
    bounds: ConvBounds,
    anchor: Anchor,
    tail: ConvTail,
    sigmas: Sequence[float],
    escape: float,
    *,
    sparse: bool,
) -> Tensor:
    """D(W', x) for every example and every class that may have beaten the label."""
    hidden = chain.hidden
    quantile = event_quantile(chain, escape) if sparse else 0.0
    gaps, carried, away = _shifts(chain, noisy, bounds, quantile, sparse=sparse)
    labels = inputs.labels
    means = torch.empty(len(labels), chain.classes, dtype=gaps.dtype, device=gaps.device)
    for label in range(chain.classes):
        chosen = (labels == label).nonzero()[:, 0]
        means[chosen] = gaps[chosen] @ anchor.differences[label].clamp(min=0).T
    means = means * (1.0 + 1e-9) + bounds.drift * gaps.square().sum(1).sqrt()[:, None]
    norms = anchor.norms[labels] + bounds.drift
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
        near = noises * inputs.slopes + tail.blend * expected.gather(1, columns)
        expected = expected.scatter(1, columns, near)
    variance = spreads.square().sum(2) + 2.0 * noisy.whole[-1][:, None].square()
    guess = expected.square().sum(2) + 2.0 * (sigmas[-1] * inputs.known[:, -1:]).square()
    output = escape * (1.0 - EVENT_SHARE) if sparse else escape
    spare = tail_threshold(variance, guess.clamp(min=1e-280), output, tail)
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
    growth = Growth(bounds.spectral, bounds.distance, bounds.pools, bounds.drift)
    sizes, radii = slopes_of_margins(anchor.prior, patterns, noisy.patches, starts, growth)
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
                carried_here = (bounds.row(j) * lengths[k])[:, None]
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
    growth = bounds.row(j) * bounds.onward(k, j - 1)
    return growth * torch.minimum(local, noisy.whole[k][:, None])
