"""Every measure once more, slowly: loops over numbers, enumeration, differences, explicit Hessians.

For the perceptron of ``worlds`` (three linear layers with biases), from definitions rather than
from the library's code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.measures.worlds import made


@dataclass(frozen=True)
class Plain:
    """The same network as lists of arrays."""

    matrices: list[np.ndarray]
    biases: list[np.ndarray]
    starts: list[np.ndarray]
    start_biases: list[np.ndarray]
    inputs: np.ndarray
    labels: np.ndarray


def plain() -> Plain:
    module, initial, (inputs, labels) = made("mlp")
    layers, starts = (
        [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
        for net in (module, initial)
    )
    return Plain(
        [layer.weight.detach().numpy() for layer in layers],
        [layer.bias.detach().numpy() for layer in layers],
        [layer.weight.detach().numpy() for layer in starts],
        [layer.bias.detach().numpy() for layer in starts],
        inputs.double().numpy(),
        labels.numpy(),
    )


def scores(net: Plain, x: np.ndarray) -> np.ndarray:
    for number, (matrix, bias) in enumerate(zip(net.matrices, net.biases, strict=True)):
        x = np.array([sum(w * v for w, v in zip(row, x, strict=True)) for row in matrix]) + bias
        if number < len(net.matrices) - 1:
            x = np.array([max(v, 0.0) for v in x])
    return x


def margins(net: Plain) -> list[float]:
    found = []
    for x, y in zip(net.inputs, net.labels, strict=True):
        f = scores(net, x)
        found.append(f[y] - max(f[k] for k in range(len(f)) if k != y))
    return found


def frobenius(m: np.ndarray) -> float:
    return math.sqrt(sum(v * v for row in m for v in row))


def spectral(m: np.ndarray) -> float:
    """By power iteration."""
    v = np.ones(m.shape[1])
    for _ in range(20_000):
        v = m.T @ (m @ v)
        v /= np.linalg.norm(v)
    return float(np.linalg.norm(m @ v))


def one_infinity(m: np.ndarray) -> float:
    return max(sum(abs(v) for v in row) for row in m)


def two_one(m: np.ndarray) -> float:
    return sum(math.sqrt(sum(v * v for v in row)) for row in m)


NORMS: dict[str, Callable[[np.ndarray], float]] = {
    "frobenius": frobenius,
    "spectral": spectral,
    "one-infinity": one_infinity,
    "two-one": two_one,
}


def path_values(net: Plain) -> list[float]:
    """Every choice of one unit per layer, from every input and from every bias."""
    found = []
    for first in range(len(net.matrices)):
        rest = [range(m.shape[0]) for m in net.matrices[first:]]
        for units in itertools.product(*rest):
            tail = math.prod(
                m[b, a]
                for m, (a, b) in zip(
                    net.matrices[first + 1 :], itertools.pairwise(units), strict=True
                )
            )
            found.append(net.biases[first][units[0]] * tail)
            if first == 0:
                found += [w * tail for w in net.matrices[0][units[0]]]
    return found


def flat_loss() -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
    """Per-example cross-entropies as a function of one long vector of weights, and that vector."""
    module, _, (inputs, labels) = made("mlp")
    shapes = [(name, p.shape, p.numel()) for name, p in module.named_parameters()]
    vector = torch.cat([p.detach().flatten() for p in module.parameters()])

    def losses(weights: torch.Tensor) -> torch.Tensor:
        parts = weights.split([count for _, _, count in shapes])
        named = {n: p.reshape(s) for (n, s, _), p in zip(shapes, parts, strict=True)}
        outputs = torch.func.functional_call(module, named, (inputs.double(),))
        return cross_entropy(outputs, labels, reduction="none")

    return losses, vector


def binary_kl_upper(risk: float, exponent: float) -> float:
    """The largest p with kl(risk, p) <= exponent, by bisection."""
    if risk == 1:
        return 1.0

    def kl(p: float) -> float:
        first = risk * math.log(risk / p) if risk > 0 else 0.0
        return first + (1 - risk) * math.log((1 - risk) / (1 - p))

    low, high = risk, 1 - 1e-15
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if kl(middle) <= exponent else (low, middle)
    return low
