"""What is foretold of the noise at an example before the network is known."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nonvacuous.data.examples import Examples
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_jacobian import pattern, slopes_of_margins
from nonvacuous.sparsity.conv_noise import ConvInputs, patch_norm, pieces, with_bias
from nonvacuous.sparsity.noise import check_examples, pair_margins

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
        found = [
            foretold(reference, images[part], labels[part])
            for part in pieces(chain, len(labels), copies=_RIVALS + 1)
        ]
    known, rivals, slopes = (torch.cat(column) for column in zip(*found, strict=True))
    return ConvInputs(images, labels, known, rivals, slopes)


def foretold(chain: ConvChain, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
