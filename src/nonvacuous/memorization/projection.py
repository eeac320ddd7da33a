"""One random direction that keeps all points apart, and exact positions along it.

Positions are whole numbers (times a power of two): comparing and subtracting them is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nonvacuous.errors import NotYetSupported
from nonvacuous.memorization import fixed_point
from nonvacuous.seeds import derived_seed

#: Direction weights are whole numbers in (-2**28, 2**28), or fewer digits where that is what keeps
#: float64 exact, but not fewer than 20: coarse weights would bring the points too close together.
WEIGHT_BITS, FEWEST_BITS = 28, 20
#: Whole numbers up to 2**53 are exact in float64; the rest is room for the knots.
SUM_BITS = 51
MOST_DRAWS = 32
#: So many directions are projected on at once; the one with the widest smallest gap is best in
#: float64.
AT_ONCE = 8


@dataclass(frozen=True, eq=False)
class Direction:
    """Weights whole[k] * 2**exponents[k] of the projection.

    unit      positions are whole numbers times 2**unit
    grid      255 where the points are 8-bit pixels behind floats pixel/255, else None
    is_exact  whether float64 computes the positions of the points without rounding, in any order
    draws     how many directions were drawn until one kept all points apart
    """

    whole: np.ndarray
    exponents: np.ndarray
    unit: int
    grid: int | None
    is_exact: bool
    draws: int = 1

    def weights(self) -> np.ndarray:
        """The weights as float64: exact, or infinite where float64 ends."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.ldexp(self.whole.astype(np.float64), self.exponents))

    def prepare(self, rows: np.ndarray) -> np.ndarray:
        """The numbers that are projected: the rows themselves, or the pixels behind them."""
        if self.grid is None or rows.dtype.kind != "f":
            return rows
        return fixed_point.to_pixels(rows, self.grid)

    def project(self, rows: np.ndarray) -> tuple[list[int], int]:
        """Exact positions of prepared rows: whole numbers and the exponent of their unit."""
        if self.is_exact:
            return self.project_short(rows).tolist(), self.unit
        lowest = fixed_point.lowest_digit(rows, self.exponents)
        return fixed_point.wide_sums(rows, self.whole, self.exponents, lowest=lowest), lowest

    def project_short(self, rows: np.ndarray) -> np.ndarray:
        """64-bit sums, exact for rows as large as those the direction was drawn for."""
        scale = int(self.exponents[0])
        projected = np.empty(len(rows), dtype=np.int64)
        for part, block in fixed_point.chunks(rows):
            if block.dtype.kind == "f":
                block = np.ldexp(block.astype(np.float64), scale).astype(np.int64)
            projected[part] = block.astype(np.int64, copy=False) @ self.whole
        return projected


def project_float(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Positions of prepared rows in plain float64, as the network computes them."""
    parts = [block.astype(np.float64) @ weights for _, block in fixed_point.chunks(rows)]
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Ordered:
    """Points along a direction, sorted, copies of a point together.

    order       indices into the caller's list, sorted by where they lie
    starts      where in ``order`` each distinct point begins
    positions   one whole number for each distinct point, ascending
    """

    direction: Direction
    order: np.ndarray
    starts: np.ndarray
    positions: tuple[int, ...]


def line_up(given: np.ndarray, *, seed: int) -> Ordered:
    """Draw directions until one keeps every two different points apart; the first nearly always.

    Where float64 is exact, the best of several is taken: its smallest gap decides how well a
    network in float64 does.
    """
    grid, rows, scanned = _read(given)
    bits, exponents, is_exact = _weights(scanned)
    lowest = 0 if is_exact else fixed_point.lowest_digit(rows, exponents)

    def direction(draw: int) -> Direction:
        generator = np.random.default_rng(derived_seed(seed, "direction", draw))
        whole = generator.integers(-(2**bits) + 1, 2**bits, size=rows.shape[1], dtype=np.int64)
        return Direction(whole, exponents, lowest, grid, is_exact, draw + 1)

    for draw in range(0, MOST_DRAWS, AT_ONCE if is_exact else 1):
        drawn = [direction(draw + more) for more in range(AT_ONCE if is_exact else 1)]
        for chosen, positions in _widest_first(drawn, rows):
            order, starts = _sorted(positions)
            if _copies_only(rows, order, starts):
                kept = tuple(positions[order[start]] for start in starts.tolist())
                return Ordered(chosen, order, starts, kept)
    raise NotYetSupported(
        f"points: {MOST_DRAWS} random directions all put two different points on one place; try "
        "another seed, or add a random rotation of the features before memorizing"
    )


def _widest_first(
    drawn: Sequence[Direction], rows: np.ndarray
) -> Iterator[tuple[Direction, Sequence[int]]]:
    """Directions with the positions along them, the one with the widest smallest gap first."""
    if len(drawn) == 1:
        yield drawn[0], drawn[0].project(rows)[0]
        return
    matrix = np.stack([direction.weights() for direction in drawn], axis=1)
    positions = project_float(rows, matrix)  # exact, so in any order
    widths = [_smallest_gap(positions[:, number]) for number in range(len(drawn))]
    for number in np.argsort(widths)[::-1]:
        yield drawn[number], positions[:, number].astype(np.int64).tolist()


def _smallest_gap(positions: np.ndarray) -> float:
    """The smallest distance between different positions, as a part of their range."""
    ordered = np.unique(positions)
    return float(np.diff(ordered).min() / (ordered[-1] - ordered[0])) if len(ordered) > 1 else 0.0


def _read(rows: np.ndarray) -> tuple[int | None, np.ndarray, fixed_point.Scan]:
    """The numbers to project; 8-bit pixels are taken back from pixel/255, which wastes 23 bits."""
    scanned = fixed_point.scan(rows)
    bits, _, is_exact = _weights(scanned)
    if rows.dtype.kind == "f" and not (is_exact and bits == WEIGHT_BITS):
        grid = fixed_point.pixel_grid(rows)
        if grid is not None:
            pixels = fixed_point.to_pixels(rows, grid)
            return grid, pixels, fixed_point.scan(pixels)
    return None, rows, scanned


def _weights(scanned: fixed_point.Scan) -> tuple[int, np.ndarray, bool]:
    """Digits of the weights, their exponents, and whether float64 sums are exact with them."""
    size = scanned.largest_sum
    if math.isfinite(size):
        # Upper bound on the digits of the sum of |entries|, in units of the lowest digit in use.
        digits = math.frexp(size)[1] - scanned.lowest if size else 0
        bits = min(WEIGHT_BITS, SUM_BITS - digits)
        if bits >= FEWEST_BITS and abs(scanned.lowest) < 900:
            return bits, np.full(len(scanned.exponents), -scanned.lowest, dtype=np.int64), True
    # Every feature is brought to size 1, so that none drowns in another.
    return WEIGHT_BITS, -scanned.exponents, False


def _sorted(positions: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The order along the direction, and where in it each distinct position begins."""
    try:
        numbers = np.array(positions, dtype=np.int64)
    except OverflowError:
        numbers = np.array(positions, dtype=object)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    return order, np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))


def _copies_only(rows: np.ndarray, order: np.ndarray, starts: np.ndarray) -> bool:
    """Whether points that share a position are copies of one point, feature by feature."""
    ends = np.append(starts[1:], len(order))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start > 1:
            first = rows[order[start]]
            if any(not np.array_equal(first, rows[i]) for i in order[start + 1 : end]):
                return False
    return True
