"""Plain ReLU chains: linear layers without biases, ReLU between them, inputs of norm 1.

This is the network of the sparsity theorems. A chain travels as the tuple of its weight matrices,
first layer first, each of shape (outputs, inputs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput

Chain = tuple[Tensor, ...]
STARTS = ("gaussian", "identity")
_CHUNK = 8192
_NORMALIZED = "norm 1"


def unit_norm(examples: Examples) -> Examples:
    """The examples with flat inputs of Euclidean norm 1; an input of zeros stays as it is.

    A function of one input alone, so nothing is fitted to the data.
    """
    flat = examples.inputs.flatten(1)
    norms = flat.double().norm(dim=1, keepdim=True)
    # Rounding to float32 must not push a norm above 1: the theorems rest on it.
    scaled = flat.double() / torch.where(norms > 0, norms * (1 + 1e-6), 1.0)
    return replace(
        examples,
        inputs=scaled.to(examples.inputs.dtype),
        preprocessing=(*examples.preprocessing, _NORMALIZED),
    )


def scaled(examples: Examples) -> Examples:
    """The examples with inputs of norm 1, in their shape."""
    flat = unit_norm(examples)
    return replace(flat, inputs=flat.inputs.reshape(examples.inputs.shape))


def initial_chain(
    sizes: Sequence[int], *, seed: int, start: str = "gaussian", spread: float = 0.1
) -> Chain:
    """Random weights for layers of these sizes, inputs first and classes last.

    start    gaussian: independent entries of variance 2 / inputs. identity: the square layers
             between hidden ones are the identity plus Gaussian entries of standard deviation
             spread / sqrt(inputs); such a layer neither shrinks nor blows up what it is given, so
             that the product of spectral norms stays near 1 at any depth
    """
    if start not in STARTS:
        raise BadInput(f"start is {start!r}; choose one of {', '.join(STARTS)}")
    if len(sizes) < 2 or any(size < 1 for size in sizes):
        raise BadInput(
            f"sizes {tuple(sizes)} are no chain; give inputs, hidden widths and classes, such as "
            "(784, 100, 10)"
        )
    generator = torch.Generator().manual_seed(seed)
    weights = []
    for layer, (incoming, outgoing) in enumerate(pairwise(sizes)):
        entries = torch.randn(outgoing, incoming, generator=generator, device="cpu")
        between = 0 < layer < len(sizes) - 2 and incoming == outgoing
        if start == "identity" and between:
            unit = torch.eye(outgoing, device="cpu")
            weights.append(unit + entries * (spread / math.sqrt(incoming)))
        else:
            weights.append(entries * math.sqrt(2.0 / incoming))
    return tuple(weights)


def chain_module(weights: Sequence[Tensor]) -> nn.Sequential:
    """The chain as an ordinary network: what is certified and deployed."""
    layers: list[nn.Module] = []
    for matrix in weights:
        linear = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
        linear.weight = nn.Parameter(matrix.detach().clone(), requires_grad=False)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


def chain_errors(weights: Sequence[Tensor], examples: Examples) -> int:
    """How many examples the chain gets wrong; a tie with the true class counts as wrong."""
    wrong = 0
    for start in range(0, len(examples), _CHUNK):
        hidden = examples.inputs[start : start + _CHUNK].flatten(1).to(weights[0].dtype)
        labels = examples.labels[start : start + _CHUNK]
        for matrix in weights[:-1]:
            hidden = torch.relu(hidden @ matrix.T)
        scores = hidden @ weights[-1].T
        true = scores.gather(1, labels[:, None])
        others = scores.scatter(1, labels[:, None], -math.inf).amax(dim=1, keepdim=True)
        wrong += int((true <= others).sum())
    return wrong


def squared_distances(weights: Sequence[Tensor], other: Sequence[Tensor]) -> tuple[float, ...]:
    """The squared Frobenius distance of each layer, in float64."""
    return tuple(
        float((mine.double() - theirs.double()).square().sum())
        for mine, theirs in zip(weights, other, strict=True)
    )


def spectral_norms(weights: Sequence[Tensor]) -> tuple[float, ...]:
    """The spectral norm of each layer, for people to read: certificates round their own up."""
    return tuple(float(torch.linalg.matrix_norm(matrix.double(), 2)) for matrix in weights)
