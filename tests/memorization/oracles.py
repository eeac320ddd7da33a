"""The theorem once more, from its statement, with Python's fractions and double loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor, nn

from nonvacuous.memorization import Memorizer, MemorizingNetwork
from nonvacuous.memorization.construction import block_slices, hidden_widths
from nonvacuous.memorization.networks import class_head


def position(found: Memorizer, point: np.ndarray) -> Fraction:
    """⟨a, x⟩ with the direction's own weights, number by number."""
    total = Fraction(0)
    direction = found.direction
    for value, whole, exponent in zip(
        point.reshape(-1).tolist(),
        direction.whole.tolist(),
        direction.exponents.tolist(),
        strict=True,
    ):
        exact = Fraction(round(value * direction.grid)) if direction.grid else Fraction(value)
        total += exact * whole * Fraction(2) ** exponent
    return total


def network_value(found: Memorizer, point: np.ndarray) -> Fraction:
    """c(x) = sum over j of w_j max(⟨a, x⟩ - b_j, 0); blocks stand still where the next begins."""
    made = found.construction
    unit = Fraction(2) ** found.direction.unit
    z = position(found, point) / unit
    total = Fraction(0)
    ends = (*made.blocks[1:], None)
    for start, end in zip(made.blocks, ends, strict=True):
        here = z if end is None else min(z, Fraction(made.knots[end]))
        for j in range(start, len(made) if end is None else end):
            total += made.weights[j] * max(here - made.knots[j], 0)
    return total / (1 << found.fraction_bits)


def stored_value(found: Memorizer, point: np.ndarray) -> Fraction:
    """The two-layer float64 network's numbers, evaluated without rounding."""
    z = position(found, point)
    stored = found.weights
    return sum(
        (
            Fraction(weight) * max(z - Fraction(knot), 0)
            for weight, knot in zip(stored.weights.tolist(), stored.knots.tolist(), strict=True)
        ),
        Fraction(0),
    )


def dense(network: MemorizingNetwork) -> nn.Sequential:
    """The same network of nothing but Linear and ReLU layers, with all zeros and copies."""
    assert network.grid is None
    rows = (network.direction.weight[0], network.knots, network.output.weight[0])
    layers = dense_layers(*rows, network.end, network.blocks)
    last = [] if network.classes is None else [class_head(network.classes, network.knots.dtype)]
    return nn.Sequential(nn.Flatten(), *layers, *last).eval()


def dense_layers(
    direction: Tensor,
    knots: Tensor,
    weights: Tensor,
    end: Tensor | None,
    blocks: tuple[int, ...],
) -> list[nn.Module]:
    """Linear and ReLU layers that compute the same; most entries are zeros or copies.

    Units of a hidden layer, in order: its knots; positive and negative part of the sum so far (not
    in the first layer); the position relative to the next block and to the one after it.
    """
    *inner, far = block_slices(blocks, len(knots))
    starts = [*(knots[part.start] for part in inner), *(() if end is None else end)]
    widths = hidden_widths(blocks, len(knots))
    own = far.stop - far.start
    matrix = direction.expand(widths[0], -1)
    bias = -torch.cat((knots[far], *(start.reshape(1) for start in starts[:2])))
    layers: list[nn.Module] = [_linear(matrix, bias), nn.ReLU()]
    incoming = _sum_of(weights[far], signs=False, width=widths[0])
    position = own
    for number, part in enumerate(inner):
        own = part.stop - part.start
        matrix = knots.new_zeros(widths[number + 1], widths[number])
        bias = knots.new_zeros(widths[number + 1])
        matrix[:own, position] = 1
        matrix[:own, position + 1] = -1
        bias[1:own] = -knots[part][1:]
        matrix[own], matrix[own + 1] = incoming, -incoming
        if number + 1 < len(inner):
            matrix[own + 2 :, position + 1] = 1
            bias[own + 3] = -starts[number + 2]
        layers += [_linear(matrix, bias), nn.ReLU()]
        incoming = _sum_of(weights[part], signs=True, width=widths[number + 1])
        position = own + 2
    return [*layers, _linear(incoming[None], knots.new_zeros(1))]


def _sum_of(weights: Tensor, *, signs: bool, width: int) -> Tensor:
    """The row that adds a layer's knots, weighted, to the sum that it passes on."""
    row = weights.new_zeros(width)
    row[: len(weights)] = weights
    if signs:
        row[len(weights)], row[len(weights) + 1] = 1, -1
    return row


def _linear(matrix: Tensor, bias: Tensor) -> nn.Linear:
    made = nn.Linear(matrix.shape[1], matrix.shape[0], dtype=matrix.dtype)
    with torch.no_grad():
        made.weight.copy_(matrix)
        made.bias.copy_(bias)
    return made
