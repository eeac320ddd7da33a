"""The bounds from norms, put to the same network, data and confidence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nonvacuous.bounds.norms import (
    bartlett_gap,
    golowich_gap,
    grid_point,
    grid_share,
    margin_risk,
    neyshabur_gap,
)
from nonvacuous.sparsity.findings import NormBound
from nonvacuous.sparsity.norms import frobenius_norm, row_norm, spectral_norm
from nonvacuous.sparsity.weights import Layers

# A network with biases as one without, so that every theorem about chains applies.
#
# A bias is a weight on a constant 1. The constant is one more input, and one more unit of every
# hidden layer hands it on: it is always active, and its row has norm 1.


@dataclass(frozen=True, eq=False)
class PlainChain:
    """Matrices without biases that compute what the layers compute.

    weights    first layer first, in float64
    constant   whether a constant 1 was appended to the inputs and to every hidden layer
    """

    weights: tuple[Tensor, ...]
    constant: bool

    @staticmethod
    def of(layers: Layers) -> PlainChain:
        """Biases that are all zero are left out: then nothing has to be appended."""
        biases = [b for b in layers.biases if b is not None and bool((b != 0).any())]
        if not biases:
            return PlainChain(layers.weights, constant=False)
        matrices = []
        for number, (matrix, bias) in enumerate(zip(layers.weights, layers.biases, strict=True)):
            column = torch.zeros(len(matrix), dtype=matrix.dtype) if bias is None else bias
            extended = torch.cat([matrix, column[:, None]], dim=1)
            if number < layers.hidden:
                carry = torch.zeros(1, extended.shape[1], dtype=matrix.dtype)
                carry[0, -1] = 1.0
                extended = torch.cat([extended, carry])
            matrices.append(extended)
        return PlainChain(tuple(matrices), constant=True)

    def inputs(self, inputs: Tensor) -> Tensor:
        """Flat float64 inputs, with the constant where there is one."""
        flat = inputs.detach().flatten(1).to(device="cpu", dtype=torch.float64)
        if not self.constant:
            return flat
        return torch.cat([flat, torch.ones(len(flat), 1, dtype=torch.float64)], dim=1)

    def units(self, values: Tensor) -> Tensor:
        """The network's own units, without the one that carries the constant."""
        return values[:, :-1] if self.constant else values


#: Norms below this are taken as this: the grid ends somewhere.
_SMALLEST = 2.0**-59


def norm_bounds(
    chain: PlainChain,
    reference: PlainChain | None,
    *,
    margins: Tensor,
    input_norms: Tensor,
    input_norm: float,
    failure: float,
) -> tuple[NormBound, ...]:
    """Each bound at the grid margin that suits it best, the searches paid for.

    reference     weights chosen without these examples, from which Bartlett's bound measures the
                  distance; None for zero
    input_norm    how long an input can be
    """
    weights = chain.weights
    layers, n = len(weights), len(margins)
    width = max(max(weight.shape) for weight in weights)
    exact = [spectral_norm(weight) for weight in weights]
    spectral = [_grid(value) for value in exact]
    whole = [frobenius_norm(w, rows=w.shape[0], columns=w.shape[1]) for w in weights]
    frobenius = [_grid(value) for value in whole[:-1]]
    frobenius.append(_grid(row_norm(weights[-1], columns=weights[-1].shape[1])))
    # Sums of the norms of the rows of each layer's difference from the reference.
    same = reference is not None and reference.constant == chain.constant
    others = reference.weights if reference and same else [torch.zeros_like(w) for w in weights]
    pairs = zip(weights, others, strict=True)
    sums = [_grid(float((w - other).norm(dim=1).sum()) * (1 + 1e-9)) for w, other in pairs]
    total = math.sqrt(float(input_norms.square().sum()) * (1 + 1e-9))

    gaps = {
        "Bartlett, Foster, Telgarsky 2017": partial(
            bartlett_gap, inputs_norm=total, spectral_norms=spectral, row_sums=sums, width=width,
            examples=n, failure=grid_share(failure, numbers=2 * layers + 1),
        ),
        "Neyshabur, Bhojanapalli, Srebro 2018": partial(
            neyshabur_gap, input_norm=input_norm, width=width, examples=n, frobenius_norms=whole,
            spectral_norms=exact, failure=grid_share(failure, numbers=1),
        ),
        "Golowich, Rakhlin, Shamir 2018": partial(
            golowich_gap, input_norm=input_norm, frobenius_norms=frobenius, examples=n,
            classes=len(weights[-1]), failure=grid_share(failure, numbers=layers + 1),
        ),
    }  # fmt: skip
    return tuple(_best(name, gap, margins) for name, gap in gaps.items())


def _best(name: str, gap: Callable[..., float], margins: Tensor) -> NormBound:
    """The margin with the smallest sum of margin errors and gap, were it not cut at 1."""
    positive = margins[margins > 0]
    largest = float(positive.max()) if len(positive) else 1.0
    # From the largest margin that anything has, downward: above it everything is an error.
    tried = [grid_point(max(largest, 1e-12), downward=True) * 2.0 ** (-j / 4) for j in range(41)]
    # 2 ** (j / 4) again, so that the margins are the very points of the grid.
    points = sorted({grid_point(value * (1 - 1e-9)) for value in tried})
    candidates = []
    for margin in points:
        errors, value = int((margins <= margin).sum()), gap(margin=margin)
        risk = margin_risk(margin_errors=errors, examples=len(margins), gap=value)
        candidates.append(NormBound(name, margin, errors, value, risk))
    return min(candidates, key=lambda bound: bound.margin_errors / len(margins) + bound.gap)


def _grid(value: float) -> float:
    return grid_point(max(value, _SMALLEST))
