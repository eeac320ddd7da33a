"""The theorem: 2n + d weights that give n different points any n values.

Two layers: c(x) = sum over j of w_j max(<a, x> - b_j, 0). Let z_1 < z_2 < ... be the positions
<a, x_i>. With the knots b_1 < z_1 and b_(i+1) = z_i the function starts at zero left of b_1 and is
linear between neighboring points, so its slope on the way to point i is
s_i = (y_i - y_(i-1)) / (z_i - b_i), with y_0 = 0, and w_i = s_i - s_(i-1). The knots lie as far
left as they can: a knot between two points would carry an error in one value into all later ones.

Deeper: the points are dealt to the hidden layers in blocks, and each block's function stands still
where the next begins, so that its weights start again from slope zero.

Everything here is a whole number or a fraction of two: nothing is rounded.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from nonvacuous.errors import BadInput


@dataclass(frozen=True, eq=False)
class Construction:
    """Positions, values and knots as whole numbers in units of their own, weights as fractions.

    positions   of the distinct points, ascending
    values      the value at each of them
    knots       where each hidden unit begins to act; knots[i] < positions[i] <= knots[i + 1]
    weights     what each hidden unit adds to the slope
    blocks      the first unit of each hidden layer
    """

    positions: tuple[int, ...]
    values: tuple[int, ...]
    knots: tuple[int, ...]
    weights: tuple[Fraction, ...]
    blocks: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def depth(self) -> int:
        """Layers of weights: one more than hidden layers."""
        return len(self.blocks) + 1


def construct(positions: Sequence[int], values: Sequence[int], *, depth: int = 2) -> Construction:
    """The exact construction for ascending positions: linear in their number.

    >>> made = construct([0, 1, 3], [5, 0, 4])
    >>> [str(weight) for weight in made.weights]
    ['5', '-10', '7']
    """
    count = len(positions)
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 2:
        raise BadInput(f"depth must be a whole number from 2 up, not {depth!r}")
    if depth - 1 > count:
        raise BadInput(
            f"depth {depth} has {depth - 1:,} hidden layers for {count:,} distinct points; every "
            f"layer needs a point to memorize: take a depth of at most {count + 1:,}"
        )
    blocks = tuple(layer * count // (depth - 1) for layer in range(depth - 1))
    begins = set(blocks)
    knots = (positions[0] - first_gap(positions), *positions[:-1])
    weights: list[Fraction] = []
    slope_before = Fraction(0)
    value_before = 0
    for i in range(count):
        slope = Fraction(values[i] - value_before, positions[i] - knots[i])
        weights.append(slope if i in begins else slope - slope_before)
        slope_before, value_before = slope, values[i]
    return Construction(tuple(positions), tuple(values), knots, tuple(weights), blocks)


def first_gap(positions: Sequence[int]) -> int:
    """How far the first knot lies left of the first point: the median gap between points.

    A gap that vanishes beside the position itself would be lost in float64, hence the floor.
    """
    gaps = [b - a for a, b in itertools.pairwise(positions)]
    median = statistics.median_low(gaps) if gaps else abs(positions[0])
    return max(1, abs(positions[0]) >> 40, median)


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
