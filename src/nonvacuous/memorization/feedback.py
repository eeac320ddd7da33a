"""Weights in float64, each chosen from the exact value that the ones before it have produced.

Rounding a weight moves the value at its own point, by half a unit in the last place; the next
weight is then computed from where the network really is. Errors never add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nonvacuous.errors import Unsupported
from nonvacuous.memorization.construction import Construction, block_slices

#: Every float64 is a whole number times 2**-1074.
_FINEST = 1074
_DIGITS = 53


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
        slope += _to_whole(weight)
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
            if number == last:
                kept = position = _round_up(construction.knots[i])
            elif i == begin:
                kept, position = first, start
            else:
                kept = _round_up(construction.knots[i] - start)
                position = start + kept
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


def _to_whole(number: float) -> int:
    top, bottom = number.as_integer_ratio()
    return top << (_FINEST + 1 - bottom.bit_length())
