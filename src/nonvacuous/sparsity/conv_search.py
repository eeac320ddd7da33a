"""Theorem E on a convolutional network, and the search for its setting (see search.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nonvacuous.data.examples import Examples
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import conv_noise
from nonvacuous.sparsity.constants import Charge
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_jacobian import pattern, slopes_of_margins
from nonvacuous.sparsity.conv_noise import ConvInputs, ConvPass, patch_norm, pieces, with_bias
from nonvacuous.sparsity.conv_setting import BLENDS, ConvSetting, network_bounds
from nonvacuous.sparsity.conv_theorem import Anchor, thresholds
from nonvacuous.sparsity.judging import (
    Move,
    NoisyJudge,
    all_scales,
    first_scale,
    later_scales,
    other_escape,
    other_factor,
    other_tail,
    searched,
)
from nonvacuous.sparsity.noise import check_examples, pair_margins
from nonvacuous.sparsity.setting import SparseSettings

# What is expected of the noise at an example before the network is known.

#: Classes near the label, for which the spread is computed from gradients.
_RIVALS = 3


def read_inputs(chain: ConvChain, prior: ConvChain, examples: Examples) -> ConvInputs:
    """The examples on the chain's device, in float64; refuse what does not fit."""
    check_examples(
        examples,
        chain.names[0],
        numbers=chain.inputs,
        classes=chain.classes,
        shape=f"images of shape {chain.input_shape}",
    )
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


# The theorem on a convolutional network: losses of noisy passes, KL and ledger of a setting.

#: The one proof for chains of convolutions.
CONV_THEOREM = "E"


_COARSE = (-60, -52, -44, -36, -28, -20, -12)
_ROUNDS = 8
#: Examples on which settings are compared, unless the caller says otherwise.
_SUBSET = 2000


class ConvEvaluator(NoisyJudge[ConvSetting, ConvInputs, ConvPass]):
    """One variant of the theorem for one network and prior; the network is measured once."""

    theorem, every_class, running = CONV_THEOREM, True, conv_noise

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
            setting.tail_rule,
            setting.sigmas,
            setting.escape_probability,
            sparse=self.sparse,
        )

    def details(self, setting: ConvSetting) -> dict[str, Any]:
        return {
            "layers": list(self.network.names),
            "operator_norms": list(self.bounds.spectral),
            "kernel_norms": list(self.bounds.rows),
            "pooling_norms": list(self.bounds.pools),
            "drift": self.bounds.drift,
        }

    def search(
        self, inputs: ConvInputs, settings: SparseSettings, *, seed: int, progress: Progress | None
    ) -> ConvSetting:
        order = torch.Generator().manual_seed(derived_seed(seed, "search"))
        subset = min(_SUBSET if settings.subset is None else settings.subset, len(inputs))
        chosen = torch.randperm(len(inputs), generator=order)[:subset].to(self.device)
        generator = torch.Generator(self.device).manual_seed(derived_seed(seed, "search noise"))
        steps, forms = (
            (2,) + (0,) * (len(self.distances) - 2),
            ((5, "cap", 1), (8, "exponential", 0)),
        )
        later: list[Move[ConvSetting]] = later_scales(len(self.distances))
        tail: list[Move[ConvSetting]] = [other_factor, other_tail]
        return searched(
            self,
            [
                (part, conv_noise.standard_noise(self.network, len(part), generator))
                for part in self._parts(inputs.part(chosen))
            ],
            [ConvSetting(first, steps, *form) for first in _COARSE for form in forms],
            [all_scales, *later, other_escape, first_scale, *tail, *([_blend] * self.sparse)],
            settings,
            rounds=_ROUNDS,
            examples=len(inputs),
            progress=progress,
        )


def _blend(setting: ConvSetting, stride: int) -> ConvSetting | None:
    blend = setting.blend + (1 if stride > 0 else -1)
    return replace(setting, blend=blend) if 0 <= blend < len(BLENDS) else None
