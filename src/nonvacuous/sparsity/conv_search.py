"""Theorem E on a convolutional network, and the search for its setting (see search.py)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nonvacuous.data.examples import Examples
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import conv_noise
from nonvacuous.sparsity.constants import Charge, Ledger, far, scalar
from nonvacuous.sparsity.conv_chain import ConvChain, Stage
from nonvacuous.sparsity.conv_jacobian import ConvBounds, pattern, slopes_of_margins
from nonvacuous.sparsity.conv_noise import ConvInputs, ConvPass, patch_norm, pieces, with_bias
from nonvacuous.sparsity.conv_norms import conv_norm, pool_norm, unit_norm
from nonvacuous.sparsity.conv_theorem import Anchor, thresholds
from nonvacuous.sparsity.judging import (
    Move,
    NoisyJudge,
    all_scales,
    one_scale,
    other_escape,
    other_factor,
    other_tail,
)
from nonvacuous.sparsity.noise import check_examples, pair_margins
from nonvacuous.sparsity.setting import BLENDS, ConvSetting, SparseSettings

# What is expected of the noise at an example before the network is known.

#: Classes near the label, for which the spread is computed from gradients.
_RIVALS = 3


def read_inputs(chain: ConvChain, prior: ConvChain, examples: Examples) -> ConvInputs:
    """The examples on the chain's device, in float64; refuse what does not fit."""
    check_examples(examples, chain)
    chain.check_active(examples.inputs)
    images = chain.images(examples.inputs)
    labels = examples.labels.to(images.device, torch.int64)
    reference = prior.reference()
    with torch.no_grad():
        columns = [
            expected_sizes(reference, images[part], labels[part])
            for part in pieces(chain, len(labels), copies=_RIVALS + 1)
        ]
    known, rivals, slopes = (torch.cat(column) for column in zip(*columns, strict=True))
    return ConvInputs(images, labels, known, rivals, slopes)


def expected_sizes(
    chain: ConvChain, images: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Norms of patches, the nearest rivals, and norms of the gradients of margins to them."""
    columns, patches, patterns = [], [], []
    for stage in chain.stages:
        patches.append(with_bias(stage, stage.layer.patches(images)))
        columns.append(patch_norm(patches[-1]))
        before = stage.layer(images)
        if stage is not chain.stages[-1]:
            nothing = torch.zeros(len(images), stage.positions, dtype=images.dtype)
            patterns.append(pattern(stage, before.flatten(2), nothing.to(images.device)))
        images = stage.pool(before.clamp(min=0))
    margins = pair_margins(before.flatten(1), labels)
    count = min(_RIVALS, chain.classes - 1)
    rivals = margins.topk(count, dim=1, largest=False).indices
    starts = chain.output[labels][:, None] - chain.output[rivals]
    sizes, _ = slopes_of_margins(chain, patterns, patches, starts, None)
    return torch.stack(columns, dim=1), rivals, torch.stack(sizes, dim=2)


# The setting, the constants of the network inside the loss, and what both cost.

#: Steps per factor of two of the drift, which may be anything from the prior's size to nothing.
_DRIFT_FINENESS = 4


def network_bounds(
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
    drift = ledger.paid(_drift(chain, prior, float(Anchor.of(known).norms.max())))
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


def _drift(chain: ConvChain, prior: ConvChain, known: float) -> tuple[float, Charge]:
    moved = chain.output - prior.output
    largest = max(float((row[None] - moved).square().sum(1).max()) for row in moved)
    # Where both networks' weights share a large part, moving away from it was rounded relative to
    # that part and not to what is left of it.
    heaviest = float(torch.maximum(chain.output.abs(), prior.output.abs()).max())
    lost = 2.0**-50 * math.sqrt(moved.shape[1]) * heaviest
    distance = math.sqrt(largest) * (1.0 + 1e-10) + lost
    return far(
        "distance of output weights from the prior", distance, known, fineness=_DRIFT_FINENESS
    )


# The theorem on a convolutional network: losses of noisy passes, KL and ledger of a setting.

#: The one proof for chains of convolutions.
CONV_THEOREM = "E"


_COARSE = (-60, -52, -44, -36, -28, -20, -12)
#: Examples on which settings are compared, unless the caller says otherwise.
_SUBSET = 2000


class ConvEvaluator(NoisyJudge[ConvSetting, ConvInputs, ConvPass]):
    """One variant of the theorem for one network and prior; the network is measured once."""

    theorem, every_class, running, rounds = CONV_THEOREM, True, conv_noise, 8

    def __init__(
        self, chain: ConvChain, prior: ConvChain, *, sparse: bool, choices: int = 1
    ) -> None:
        device = chain.stages[0].layer.weight.device
        super().__init__(chain, prior, sparse=sparse, choices=choices, device=device)
        self.bounds, self._charges = network_bounds(chain, prior, sparse=sparse)
        self._anchor = Anchor.of(prior)

    def charges(self, setting: ConvSetting) -> tuple[Charge, ...]:
        return (*setting.charges(sparse=self.sparse), *self._shared, *self._charges)

    def thresholds(self, setting: ConvSetting, inputs: ConvInputs, noisy: ConvPass) -> Tensor:
        return thresholds(
            self.network,
            noisy,
            inputs,
            self.bounds,
            self._anchor,
            setting,
            sparse=self.sparse,
        )

    def details(self, setting: ConvSetting) -> dict[str, Any]:
        return {
            "layers": list(self.network.names),
            "operator_norms": [None, *self.bounds.spectral[1:]],
            "kernel_norms": [None, *self.bounds.rows[1:]],
            "pooling_norms": list(self.bounds.pools),
            "drift": self.bounds.drift,
        }

    def drawn(
        self, inputs: ConvInputs, settings: SparseSettings, seed: int
    ) -> list[tuple[ConvInputs, tuple[Tensor, ...]]]:
        order = torch.Generator().manual_seed(derived_seed(seed, "search"))
        subset = min(_SUBSET if settings.subset is None else settings.subset, len(inputs))
        chosen = torch.randperm(len(inputs), generator=order)[:subset].to(self.device)
        generator = torch.Generator(self.device).manual_seed(derived_seed(seed, "search noise"))
        return [
            (part, conv_noise.standard_noise(self.network, len(part), generator))
            for part in self._parts(inputs.part(chosen))
        ]

    def starts(self) -> list[ConvSetting]:
        steps = (2,) + (0,) * (len(self.distances) - 2)
        forms = ((5, "cap", 1), (8, "exponential", 0))
        return [ConvSetting(first, steps, *form) for first in _COARSE for form in forms]

    def moves(self) -> list[Move[ConvSetting]]:
        later: list[Move[ConvSetting]] = [one_scale(k) for k in range(1, len(self.distances))]
        tail: list[Move[ConvSetting]] = [other_factor, other_tail, *([_blend] * self.sparse)]
        return [all_scales, *later, other_escape, one_scale(0), *tail]


def _blend(setting: ConvSetting, stride: int) -> ConvSetting | None:
    blend = setting.blend + (1 if stride > 0 else -1)
    return replace(setting, blend=blend) if 0 <= blend < len(BLENDS) else None
