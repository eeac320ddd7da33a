"""The theorem: 2n + d weights that give n different points any n values.

Two layers: c(x) = sum over j of w_j max(<a, x> - b_j, 0). Let z_1 < z_2 < ... be the positions
<a, x_i>. With the knots b_1 < z_1 and b_(i+1) = z_i the function starts at zero left of b_1 and is
linear between neighboring points, so its slope on the way to point i is
s_i = (y_i - y_(i-1)) / (z_i - b_i), with y_0 = 0, and w_i = s_i - s_(i-1). The knots lie as far
left as they can: a knot between two points would carry an error in one value into all later ones.

Deeper: the points are dealt to the hidden layers in blocks, and each block's function stands still
where the next begins, so that its weights start again from slope zero.

All of it in whole numbers and fractions of two: nothing is rounded. A network in float64 gets each
weight from the exact value that the ones before it have produced. Rounding a weight moves the value
at its own point, by half a unit in the last place; the next weight is then computed from where the
network really is. Errors never add up.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput, Unsupported

#: Every float64 is a whole number times 2**-1074.
_FINEST = 1074
_DIGITS = 53


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
    checks.count("depth", depth, minimum=2)
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


@dataclass(frozen=True, eq=False)
class StoredWeights:
    """What a float64 network stores besides its direction.

    knots          one for each point, block by block. In the last block, positions. In the others
                   first where the block starts (the first two blocks: the position; then: the
                   distance from the block before), then the other knots' distances from there
    weights        one for each knot
    end            where the last block starts, stored like the starts of the others; None where
                   there is one block only
    blocks         the first unit of each block
    largest_error  largest distance from a value when these very numbers are evaluated exactly
    """

    knots: np.ndarray
    weights: np.ndarray
    end: float | None
    blocks: tuple[int, ...]
    largest_error: float


def stored_weights(construction: Construction, *, unit: int, fraction_bits: int) -> StoredWeights:
    """Round a construction to float64 by exact feedback.

    unit            positions are whole numbers times 2**unit
    fraction_bits   values are whole numbers times 2**-fraction_bits
    """
    stored, actual, stops, end = _stored_knots(construction)
    scale = 1 << -unit
    # Sums are whole numbers in units of 2**(unit - 1074), slopes in units of 2**-1074.
    to_sum = _FINEST - unit - fraction_bits
    value = slope = worst = 0
    here = actual[0]
    weights: list[float] = []
    for i, (knot, position) in enumerate(zip(actual, construction.positions, strict=True)):
        # A block moves on until the next one starts, and then stands still.
        value += slope * (stops.get(i, knot) - here)
        slope = 0 if i in stops else slope
        wanted = construction.values[i] << to_sum
        distance = position - knot
        weight = _to_float(wanted - value - slope * distance, distance << _FINEST)
        weights.append(weight)
        top, bottom = weight.as_integer_ratio()
        slope += top << (_FINEST + 1 - bottom.bit_length())
        value += slope * distance
        here = position
        worst = max(worst, abs(value - wanted))
    return StoredWeights(
        knots=np.array([knot / scale for knot in stored], dtype=np.float64),
        weights=np.array(weights, dtype=np.float64),
        end=None if end is None else end / scale,
        blocks=construction.blocks,
        largest_error=worst / (1 << (_FINEST - unit)),
    )


def _stored_knots(
    construction: Construction,
) -> tuple[list[int], list[int], dict[int, int], int | None]:
    """Numbers to store, the positions that the network makes of them, where blocks stop, the end.

    Knots that float64 can hold: rounded up, since a knot may lie anywhere between two points.
    """
    parts = block_slices(construction.blocks, len(construction))
    last = len(parts) - 1
    stored: list[int] = []
    actual: list[int] = []
    stops: dict[int, int] = {}
    start = 0
    for number, part in enumerate(parts):
        begin = part.start
        # Starts travel along a chain: each is a distance from the one before, the first two aside.
        before = start if number > 1 else 0
        first = _round_up(construction.knots[begin] - before)
        start = first + before
        if number:
            stops[begin] = start
        for i in range(begin, part.stop):
            base = 0 if number == last else before if i == begin else start
            kept = _round_up(construction.knots[i] - base)
            position = base + kept
            if not max(position, start) < construction.positions[i]:
                raise Unsupported(
                    "float64 cannot tell two neighboring points apart: their projections differ by "
                    f"less than one part in 2**{_DIGITS} of their size. The exact certificate "
                    "holds, but no float64 network is written; try another seed, or rescale the "
                    "features to similar sizes"
                )
            stored.append(kept)
            actual.append(position)
    return stored, actual, stops, first if last else None


def _round_up(number: int) -> int:
    """The smallest number from this one up that has at most 53 binary digits.

    >>> _round_up(2**60 + 1) == 2**60 + 2**8, _round_up(-(2**60) - 1) == -(2**60), _round_up(7)
    (True, True, 7)
    """
    excess = abs(number).bit_length() - _DIGITS
    return number if excess <= 0 else -(-number >> excess) << excess


def _to_float(numerator: int, denominator: int) -> float:
    """The nearest float64; Python divides whole numbers of any size with one rounding."""
    try:
        return numerator / denominator
    except OverflowError:
        raise Unsupported(
            "a weight would leave the range of float64, because two values differ hugely between "
            "two points that nearly coincide. The exact certificate holds; divide the values by a "
            "constant to get a float64 network"
        ) from None
