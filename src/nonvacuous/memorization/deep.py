"""Depth k: each hidden layer memorizes its own block of points.

A layer sees the clipped coordinate t = relu(z - start) - relu(z - end) of its block: 0 left of the
block, the block's length right of it. So a block adds what its own points need and then stands
still; the sum so far travels on in two units (its positive and its negative part), the position in
two more. Without the clipping, steep slopes would be multiplied by long distances and cancel, and
float64 would lose what is left. The first hidden layer sees no clipped coordinate: it takes the
block on the far right, where nothing needs to stand still.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def block_slices(blocks: tuple[int, ...], units: int) -> list[slice]:
    """The units of each block, from left to right."""
    return [slice(a, b) for a, b in zip(blocks, (*blocks[1:], units), strict=True)]


def hidden_widths(blocks: tuple[int, ...], units: int) -> list[int]:
    """Units of each hidden layer: its knots, and what it passes on."""
    parts = block_slices(blocks, units)
    sizes = [part.stop - part.start for part in parts]
    if len(parts) == 1:
        return sizes
    # The sum so far in two units, and the position in two unless nobody needs it any more.
    inner = [size + 4 for size in sizes[:-1]]
    inner[-1] -= 2
    return [sizes[-1] + 2, *inner]


def deep_value(
    positions: Tensor, knots: Tensor, weights: Tensor, end: Tensor, blocks: tuple[int, ...]
) -> Tensor:
    """The network's value at positions of shape (points, 1), layer by layer."""
    parts = block_slices(blocks, len(knots))
    *inner, far = parts
    starts = [*(knots[part.start] for part in inner), end[0]]
    total = torch.relu(positions - knots[far]) @ weights[far]
    here, after = torch.relu(positions - starts[0]), torch.relu(positions - starts[1])
    for number, part in enumerate(inner):
        offsets = torch.cat((knots.new_zeros(1), knots[part][1:]))
        units = torch.relu((here - after) - offsets)
        positive, negative = torch.relu(total), torch.relu(-total)
        if number + 1 < len(inner):
            here, after = after, torch.relu(after - starts[number + 2])
        total = (positive - negative) + units @ weights[part]
    return total[:, None]


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
