"""A network with biases as one without, so that every theorem about chains applies.

A bias is a weight on a constant 1. The constant is one more input, and one more unit of every
hidden layer hands it on: it is always active, and its row has norm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.sparsity.weights import Layers


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
