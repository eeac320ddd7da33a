"""Searching for the setting of a convolutional network; see search.py for why it is free."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nonvacuous.data.examples import Examples
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.constants import Charge, chosen_among
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_jacobian import pattern, slopes_of_margins
from nonvacuous.sparsity.conv_noise import (
    ConvInputs,
    ConvPass,
    fresh_passes,
    network_errors,
    noisy_pass,
    patch_norm,
    pieces,
    standard_noise,
    with_bias,
)
from nonvacuous.sparsity.conv_setting import BLENDS, ConvSetting, network_bounds
from nonvacuous.sparsity.conv_theorem import Anchor, thresholds
from nonvacuous.sparsity.judging import (
    Judge,
    Move,
    all_scales,
    first_scale,
    later_scale,
    other_escape,
    other_tail,
    searched,
)
from nonvacuous.sparsity.noise import check_examples, pair_margins
from nonvacuous.sparsity.setting import SparseSettings

# What is expected of the noise at an example before the network is known.

#: Classes near the label, for which the spread is computed from gradients.
_RIVALS = 3


def read_inputs(chain: ConvChain, reference: ConvChain, examples: Examples) -> ConvInputs:
    """The examples on the chain's device, in float64; refuse what does not fit."""
    check_examples(
        examples,
        chain.names[0],
        numbers=math.prod(chain.input_shape),
        classes=chain.classes,
        shape=f"images of shape {chain.input_shape}",
    )
    images = chain.images(examples.inputs)
    labels = examples.labels.to(images.device, torch.int64)
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


# The theorem on a convolutional network: losses of noisy passes, KL and ledger of a setting.

#: The one proof for chains of convolutions.
CONV_THEOREM = "E"


class ConvEvaluator(Judge[ConvSetting, ConvInputs, ConvPass]):
    """One variant of the theorem for one network and prior; the network is measured once."""

    def __init__(
        self, chain: ConvChain, prior: ConvChain, *, sparse: bool, choices: int = 1
    ) -> None:
        self.theorem, self.chain, self.sparse = CONV_THEOREM, chain, sparse
        self.distances = chain.squared_distances(prior)
        self.bounds, lines = network_bounds(chain, prior, sparse=sparse)
        self._charges = (*chosen_among(choices), *lines)
        self._anchor = Anchor.of(prior)

    def charges(self, setting: ConvSetting) -> tuple[Charge, ...]:
        return (*setting.charges(sparse=self.sparse), *self._charges)

    def thresholds(self, setting: ConvSetting, inputs: ConvInputs, noisy: ConvPass) -> Tensor:
        return thresholds(
            self.chain,
            noisy,
            inputs,
            self.bounds,
            self._anchor,
            setting.tail_rule,
            setting.sigmas,
            setting.escape_probability,
            sparse=self.sparse,
        )

    def digest(self) -> str:
        return self.chain.digest()

    def fresh_passes(
        self, setting: ConvSetting, inputs: ConvInputs, *, passes: int, seed: int
    ) -> Iterator[tuple[ConvInputs, ConvPass]]:
        return fresh_passes(self.chain, inputs, setting.sigmas, passes=passes, seed=seed)

    def network_errors(self, inputs: ConvInputs) -> int:
        return network_errors(self.chain, inputs)

    def details(self, setting: ConvSetting) -> dict[str, Any]:
        return {
            "layers": list(self.chain.names),
            "operator_norms": list(self.bounds.spectral),
            "kernel_norms": list(self.bounds.rows),
            "pooling_norms": list(self.bounds.pools),
            "drift": self.bounds.drift,
        }


_COARSE = (-60, -52, -44, -36, -28, -20, -12)
_ROUNDS = 8
#: Examples on which settings are compared, unless the caller says otherwise.
_SUBSET = 2000


def search(
    evaluator: ConvEvaluator,
    inputs: ConvInputs,
    settings: SparseSettings,
    *,
    seed: int,
    progress: Progress | None = None,
) -> ConvSetting:
    """The setting with the smallest estimated bound, by descent along single coordinates."""
    chain = evaluator.chain
    device = inputs.images.device
    order = torch.Generator().manual_seed(derived_seed(seed, "search"))
    subset = min(_SUBSET if settings.subset is None else settings.subset, len(inputs))
    chosen = torch.randperm(len(inputs), generator=order)[:subset].to(device)
    part = inputs.part(chosen)
    generator = torch.Generator(device).manual_seed(derived_seed(seed, "search noise"))
    parts = [part.part(piece) for piece in pieces(chain, len(part))]
    noise = [standard_noise(chain, len(piece), generator) for piece in parts]

    def share_lost(setting: ConvSetting) -> float:
        lost = 0
        for piece, draws in zip(parts, noise, strict=True):
            noisy = noisy_pass(chain, piece, setting.sigmas, draws)
            lost += int(evaluator.losses(setting, piece, noisy).sum())
        return lost / len(part)

    return searched(
        evaluator,
        share_lost,
        _starts(evaluator),
        _moves(len(evaluator.distances), sparse=evaluator.sparse),
        settings,
        rounds=_ROUNDS,
        examples=len(inputs),
        progress=progress,
    )


def _starts(evaluator: ConvEvaluator) -> list[ConvSetting]:
    steps = (2,) + (0,) * (len(evaluator.distances) - 2)
    forms = (("cap", 1, 5), ("exponential", 0, 8))
    return [
        ConvSetting(first, steps, position, tail, factor)
        for first in _COARSE
        for tail, factor, position in forms
    ]


def _moves(layers: int, *, sparse: bool) -> list[Move[ConvSetting]]:
    later: list[Move[ConvSetting]] = [later_scale(layer) for layer in range(1, layers)]
    shared: list[Move[ConvSetting]] = [all_scales, *later, other_escape, first_scale]
    shared += [_factor, _tail]
    return [*shared, _blend] if sparse else shared


def _factor(setting: ConvSetting, stride: int) -> ConvSetting:
    return replace(setting, factor=setting.factor + stride)


def _tail(setting: ConvSetting, stride: int) -> ConvSetting | None:
    return None if stride < 0 else other_tail(setting)


def _blend(setting: ConvSetting, stride: int) -> ConvSetting | None:
    blend = setting.blend + (1 if stride > 0 else -1)
    return replace(setting, blend=blend) if 0 <= blend < len(BLENDS) else None
