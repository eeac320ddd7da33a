"""A convolutional chain written out as matrices, for bounds that know nothing else.

An average over windows is linear and joins the next layer's matrix; a maximum is not, and nothing
can be written out then.
"""

from __future__ import annotations

import math

import torch

from nonvacuous.errors import NotYetSupported
from nonvacuous.sparsity.conv_chain import ConvChain, Stage
from nonvacuous.sparsity.conv_norms import unrolled
from nonvacuous.sparsity.weights import Layers

#: A larger matrix takes its singular values too long.
LARGEST = 2_500_000


def unrolled_layers(chain: ConvChain) -> Layers:
    """The same network as linear layers with ReLU between them, or a refusal that says why not."""
    weights, biases = [], []
    previous: Stage | None = None
    for stage in chain.stages:
        name = stage.layer.name
        if stage.pool.kind == "max":
            raise NotYetSupported(
                f"layer {name} is followed by max pooling, which is no matrix; use a stride or "
                "average pooling to compare it with bounds for matrices"
            )
        columns = math.prod(stage.before if previous is None else previous.middle)
        averaged = previous is not None and previous.pool.kind == "average"
        entries = max(stage.units, columns if averaged else 0) * columns
        if entries > LARGEST:
            raise NotYetSupported(
                f"layer {name} takes {entries:,} numbers when written out as a matrix, more than "
                f"{LARGEST:,}; make it smaller to compare it with bounds for matrices"
            )
        matrix = unrolled(stage.layer, stage.before)
        if previous is not None and averaged:
            matrix = matrix @ _averages(previous)
        weights.append(matrix)
        bias = stage.layer.bias
        biases.append(None if bias is None else bias.cpu().repeat_interleave(stage.positions))
        previous = stage
    return Layers(tuple(weights), tuple(biases), chain.names)


def _averages(stage: Stage) -> torch.Tensor:
    """The matrix of an average pooling."""
    units = torch.eye(stage.units, dtype=torch.float64).reshape(-1, *stage.middle)
    return stage.pool(units).flatten(1).T.contiguous()
