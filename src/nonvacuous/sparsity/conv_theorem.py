"""Theorem E for convolutions: noise enters layer by layer, a kernel's noise at all positions.

Statement and proof: docs/theory/sparsity.md, 10. What was one number s_k in a chain of linear
layers is two things here: the deviation of one unit's own noise, which depends on its patch, and
the Lipschitz constant of a whole layer, the spectral norm of the matrix of patches. How a setting
is searched: judging.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nonvacuous.data.examples import Examples
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import noise
from nonvacuous.sparsity.constants import Charge, Ledger, drifted, far, scalar
from nonvacuous.sparsity.conv_chain import ConvChain, Stage, receptive_field
from nonvacuous.sparsity.conv_jacobian import ConvBounds, mean_shifts, pattern, slopes_of_margins
from nonvacuous.sparsity.conv_norms import conv_norm, pool_norm, unit_norm
from nonvacuous.sparsity.judging import NoisyJudge
from nonvacuous.sparsity.noise import ConvInputs, ConvPass
from nonvacuous.sparsity.setting import BLENDS, ConvSetting, SparseSettings
from nonvacuous.sparsity.thresholds import anchored_means, levels, tail_threshold

#: Classes near the label, for which the spread is computed from gradients.
_RIVALS = 3


def read_inputs(chain: ConvChain, prior: ConvChain, examples: Examples) -> ConvInputs:
    """The examples on the chain's device, in float64; refuse what does not fit."""
    noise.check_examples(examples, chain)
    chain.check_active(examples.inputs)
    images = chain.images(examples.inputs)
    labels = examples.labels.to(images.device, torch.int64)
    reference = prior.reference()
    with torch.no_grad():
        columns = [
            _expected_sizes(reference, images[part], labels[part])
            for part in noise.pieces(chain, len(labels))
        ]
    return ConvInputs(images, labels, *map(torch.cat, zip(*columns, strict=True)))


def _expected_sizes(
    chain: ConvChain, images: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Norms of patches, the nearest rivals, and norms of the gradients of margins to them."""
    columns, patches, patterns = [], [], []
    for stage in chain.stages:
        patches.append(noise.with_bias(stage, stage.layer.patches(images)))
        columns.append(noise.patch_norm(patches[-1]))
        before = stage.layer(images)
        if stage is not chain.stages[-1]:
            nothing = torch.zeros(len(images), stage.positions, dtype=images.dtype)
            patterns.append(pattern(stage, before.flatten(2), nothing.to(images.device)))
        images = stage.pool(before.clamp(min=0))
    margins = noise.pair_margins(before.flatten(1), labels)
    count = min(_RIVALS, chain.classes - 1)
    rivals = margins.topk(count, dim=1, largest=False).indices
    starts = chain.output[labels][:, None] - chain.output[rivals]
    sizes, _ = slopes_of_margins(chain, patterns, patches, starts, None)
    return torch.stack(columns, dim=1), rivals, torch.stack(sizes, dim=2)


#: Steps per factor of two of the drift, which may be anything from the prior's size to nothing.
_DRIFT_FINENESS = 4


def _pairs(chain: ConvChain) -> tuple[Tensor, Tensor]:
    """The differences w_y - w_c of output weights, and their norms."""
    differences = chain.output[:, None] - chain.output[None]
    return differences, differences.square().sum(2).sqrt() * (1.0 + 1e-12)


def _network_bounds(
    chain: ConvChain, prior: ConvChain, *, sparse: bool
) -> tuple[ConvBounds, tuple[Charge, ...]]:
    """Round the constants of the network up on the grids that the prior fixes, and charge them."""
    known, ledger = prior.reference(), Ledger()
    spectral, rows, distance = [0.0], [0.0], [0.0]
    pools = [pool_norm(stage.pool, stage.middle) for stage in chain.stages[:-1]]
    for mine, theirs in zip(chain.stages[1:-1], known.stages[1:-1], strict=True):
        name = mine.layer.name
        norm, other = (conv_norm(stage.layer, stage.before).value for stage in (mine, theirs))
        spectral.append(ledger.paid(scalar(f"operator norm of layer {name}", norm, other)))
        row, other = unit_norm(mine.layer), unit_norm(theirs.layer)
        rows.append(ledger.paid(scalar(f"kernel norm of layer {name}", row, other)))
    if sparse:
        stages = zip(chain.stages[1:-1], prior.stages[1:-1], known.stages[1:-1], strict=True)
        for mine, theirs, scale in stages:
            distance.append(ledger.paid(_distance(mine, theirs, unit_norm(scale.layer))))
    largest = float(_pairs(known)[1].max())
    output, center = chain.output, prior.output
    size = float(torch.maximum(output.abs(), center.abs()).max())
    fineness, least = _DRIFT_FINENESS, -math.inf
    moved = drifted(output, center, largest, fineness=fineness, least=least, size=size)
    drift = ledger.paid(moved)
    bounds = ConvBounds(tuple(spectral), tuple(rows), tuple(distance), tuple(pools), drift)
    return bounds, tuple(ledger.charges)


def _distance(mine: Stage, theirs: Stage, known: float) -> tuple[float, Charge]:
    layer, other = mine.layer, theirs.layer
    moved = conv_norm(replace(layer, weight=layer.weight - other.weight), mine.before).value
    largest = float(torch.maximum(layer.weight.abs(), other.weight.abs()).max())
    # Rounding of the difference, entry by entry: at most this much in the operator norm.
    lost = 2.0**-50 * layer.weight.numel() * largest
    name = f"distance of layer {layer.name} from the prior"
    return far(name, moved * (1.0 + 1e-10) + lost, known, fineness=_DRIFT_FINENESS)


#: Examples on which settings are compared, unless the caller says otherwise.
_SUBSET = 2000


class ConvEvaluator(NoisyJudge[ConvSetting]):
    """One variant of the theorem for one network and prior; the network is measured once."""

    every_class, noisy_pass = True, staticmethod(noise.conv_pass)
    rounds, kind, coarse = 8, ConvSetting, range(-60, -11, 8)

    def __init__(
        self, chain: ConvChain, prior: ConvChain, asked: SparseSettings, device: torch.device
    ) -> None:
        chain, prior = chain.to(device), prior.to(device)
        super().__init__(chain, prior, asked, device)
        self.last = (ConvSetting.other_blend,) if self.sparse else ()
        with torch.enable_grad():  # norms of pooling use derivatives
            self.bounds, self._charges = _network_bounds(chain, prior, sparse=self.sparse)
        self._differences, self._norms = _pairs(prior)

    def read(self, examples: Examples) -> ConvInputs:
        return read_inputs(self.network, self.prior, examples)

    def charges(self, setting: ConvSetting) -> tuple[Charge, ...]:
        return (*setting.charges(sparse=self.sparse), *self._shared, *self._charges)

    def details(self, setting: ConvSetting) -> dict[str, Any]:
        return {
            "layers": list(self.network.names),
            "operator_norms": [None, *self.bounds.spectral[1:]],
            "kernel_norms": [None, *self.bounds.rows[1:]],
            "pooling_norms": list(self.bounds.pools),
            "drift": self.bounds.drift,
        }

    def drawn(self, inputs: ConvInputs, seed: int) -> list[tuple[ConvInputs, tuple[Tensor, ...]]]:
        order = torch.Generator().manual_seed(derived_seed(seed, "search"))
        subset = min(self.asked.subset or _SUBSET, len(inputs))
        chosen = torch.randperm(len(inputs), generator=order)[:subset].to(self.device)
        generator = torch.Generator(self.device).manual_seed(derived_seed(seed, "search noise"))
        return [
            (part, noise.standard_noise(self.network, len(part), generator))
            for part in self._parts(inputs.part(chosen))
        ]

    def forms(self) -> list[tuple[Any, ...]]:
        return [(5, "cap", 1), (8, "exponential", 0)]

    def thresholds(self, setting: ConvSetting, inputs: ConvInputs, noisy: ConvPass) -> Tensor:
        chain, bounds, sigmas = self.network, self.bounds, setting.sigmas
        hidden, labels = chain.hidden, inputs.labels
        widths = [stage.units for stage in chain.stages[:-1]]
        left, deviation = levels(widths, setting.escape_probability, sparse=self.sparse)
        gaps, carried, away = self._shifts(noisy, deviation)
        means = anchored_means(gaps, labels, self._differences.clamp(min=0), bounds.drift)
        norms = self._norms[labels] + bounds.drift
        growth = [bounds.onward(k, hidden - 1) for k in range(hidden)]
        whole = torch.stack([noisy.whole[k] * growth[k] for k in range(hidden)], dim=1)
        spreads = norms[:, :, None] * whole[:, None]
        noises = torch.tensor(sigmas[:-1], dtype=whole.dtype, device=whole.device)
        scale = noises * inputs.known[:, :-1]
        grown = scale * torch.tensor(growth, dtype=scale.dtype).to(scale)
        expected = norms[:, :, None] * grown[:, None]
        if self.sparse:
            spreads = self._sharpened(noisy, inputs, away, spreads, sigmas)
            columns = inputs.rivals[:, :, None].expand_as(inputs.slopes)
            share = BLENDS[setting.blend]
            near = noises * inputs.slopes + share * expected.gather(1, columns)
            expected = expected.scatter(1, columns, near)
        variance = spreads.square().sum(2) + 2.0 * noisy.whole[-1][:, None].square()
        guess = expected.square().sum(2) + 2.0 * (sigmas[-1] * inputs.known[:, -1:]).square()
        spare = tail_threshold(variance, guess.clamp(min=1e-280), left, setting)
        return means + norms * carried[:, None] + spare

    def _sharpened(
        self,
        noisy: ConvPass,
        inputs: ConvInputs,
        away: list[Tensor],
        spreads: Tensor,
        sigmas: Sequence[float],
    ) -> Tensor:
        """The smaller of the products of norms and, for the nearest rivals, what gradients
        allow."""
        patterns = [
            pattern(stage, values, room)
            for stage, values, room in zip(self.network.stages, noisy.before, away, strict=False)
        ]
        starts = self._differences[inputs.labels[:, None], inputs.rivals]
        sizes, radii = slopes_of_margins(self.prior, patterns, noisy.patches, starts, self.bounds)
        layers = zip(sigmas, sizes, noisy.whole, radii, strict=False)
        sharper = torch.stack(
            [sigma * size + whole[:, None] * radius for sigma, size, whole, radius in layers], dim=2
        )
        columns = inputs.rivals[:, :, None].expand_as(sharper)
        return spreads.scatter(1, columns, torch.minimum(spreads.gather(1, columns), sharper))

    def _shifts(self, noisy: ConvPass, quantile: float) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Sum over layers of noise of the last layer's mean shifts, and of what earlier ones carry.

        And for each layer, how far from its value a pre-activation can be in any hybrid network:
        units farther than that from their kink are stable.
        """
        bounds, last = self.bounds, self.network.hidden - 1
        away: list[Tensor] = []
        carried = torch.zeros_like(noisy.whole[0])
        gaps = torch.zeros_like(carried)[:, None]
        lengths: list[Tensor] = []
        for j, stage in enumerate(self.network.stages[:-1]):
            values = noisy.before[j] if self.sparse else None
            grown = [bounds.step(j) * length for length in lengths]
            if j == last:
                carried = sum(grown, carried)
            grown.append(torch.zeros_like(carried))
            moved = farthest = torch.zeros_like(noisy.units[j])
            # From the latest noise to the earliest: each adds to how far the pre-activation can be
            # from the mean of the hybrid network with k noisy layers.
            for k in range(j, -1, -1):
                reach = unit_reach(self.network, noisy, bounds, k, j)
                moved = moved + quantile * reach
                apart = noisy.apart[j] if k == j else None
                shifts = mean_shifts(stage, values, reach, moved, apart)
                grown[k] = grown[k] + shifts.square().sum(1).sqrt()
                own_step = quantile * reach
                if k < j:
                    carried_here = (bounds.rows[j] * lengths[k])[:, None]
                    moved, own_step = moved + carried_here, own_step + carried_here
                farthest = torch.maximum(farthest, moved + own_step)
                if j == last:
                    gaps = gaps + shifts
            lengths = grown
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
