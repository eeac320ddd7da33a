"""One random direction that keeps all points apart, and exact positions along it.

Every float is a whole number times a power of two, so sums of them can be exact: positions are
whole numbers (times a power of two), and comparing and subtracting them is exact too. Arrays are
read in chunks of rows, so that the memory needed does not grow with the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.seeds import derived_seed

#: Numbers read at once: small enough for the processor's caches.
_CHUNK = 1 << 18
_PIXELS = 255


@dataclass(frozen=True, eq=False)
class Scan:
    """What must be known about an array before its rows can be summed exactly.

    lowest        exponent of the lowest binary digit that any entry uses
    exponents     for each column the exponent of its largest entry: |entry| < 2**exponent
    largest_sum   upper bound on the sum of the absolute entries of a row
    """

    lowest: int
    exponents: np.ndarray
    largest_sum: float


def chunks(rows: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Slices of the rows, some at a time."""
    step = max(1, _CHUNK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, min(start + step, len(rows)))
        yield part, rows[part]


def scan(rows: np.ndarray) -> Scan:
    """Look at every number; NaN and infinity are refused by position."""
    check_finite(rows)
    largest = np.zeros(rows.shape[1], dtype=np.float64)
    row_sum = 0.0
    whole = rows.dtype.kind != "f"
    for _, block in chunks(rows):
        sizes = np.abs(block.astype(np.float64))
        with np.errstate(over="ignore"):
            row_sum = max(row_sum, float(sizes.sum(axis=1).max()))
        np.maximum(largest, sizes.max(axis=0), out=largest)
        if whole and sizes.max() >= 2.0**63:
            raise BadInput("points: the whole number -2**63 has no opposite; add 1 to it")
    lowest = 0 if whole else lowest_digit(rows, np.zeros(rows.shape[1], dtype=np.int64))
    return Scan(lowest, np.frexp(largest)[1].astype(np.int64), row_sum * (1 + 1e-9))


def check_finite(rows: np.ndarray) -> None:
    for part, block in chunks(rows):
        wrong = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if wrong.size:
            raise BadInput(
                f"points: the point at position {part.start + int(wrong[0])} contains NaN or "
                "infinity; repair or remove such points first"
            )


def pixel_grid(rows: np.ndarray) -> int | None:
    """255 where every float is exactly what an 8-bit pixel divided by 255 gives, else None."""
    if rows.dtype not in (np.float32, np.float64):
        return None
    for _, block in chunks(rows):
        if not ((block >= 0) & (block <= 1)).all():
            return None
        whole = np.rint(block * _PIXELS)
        if not np.array_equal((whole / rows.dtype.type(_PIXELS)).astype(rows.dtype), block):
            return None
    return _PIXELS


def to_pixels(rows: np.ndarray, grid: int) -> np.ndarray:
    """The pixels behind floats in [0, 1], as 8-bit numbers."""
    pixels = np.empty(rows.shape, dtype=np.uint8)
    for part, block in chunks(rows):
        pixels[part] = np.rint(np.clip(block, 0, 1) * grid)
    return pixels


def lowest_digit(rows: np.ndarray, exponents: np.ndarray) -> int:
    """Exponent of the lowest binary digit in use once column k is multiplied by 2**exponents[k]."""
    lowest = []
    for _, block in chunks(rows):
        significands, own = _parts(block)
        used = significands != 0
        lowest += [int((own + exponents)[used].min())] if used.any() else []
    return min(lowest, default=0)


def wide_sums(
    rows: np.ndarray, weights: np.ndarray, exponents: np.ndarray, *, lowest: int
) -> list[int]:
    """Exact sums over k of weights[k] * rows[:, k] * 2**exponents[k], in units of 2**lowest.

    Every entry is cut into limbs of so few binary digits that 64-bit sums cannot overflow.
    """
    weight_bits = int(np.abs(weights).max()).bit_length()
    column_bits = int(rows.shape[1]).bit_length()
    limb = max(1, 62 - weight_bits - column_bits)
    mask = np.int64((1 << limb) - 1)
    totals: list[int] = []
    for _, block in chunks(rows):
        significands, own = _parts(block)
        sign = np.where(np.signbit(block), -1, 1) if block.dtype.kind == "f" else np.sign(block)
        signed = sign.astype(np.int64) * weights
        shifts = np.where(significands != 0, own + exponents - lowest, 0)
        top = int(shifts.max()) + 64
        sums = [0] * len(block)
        for number in range(-(-top // limb)):
            piece = _limb(significands, shifts - number * limb, limb, mask)
            if piece.any():
                for row, part in enumerate((piece * signed).sum(axis=1).tolist()):
                    sums[row] += part << (number * limb)
        totals += sums
    return totals


def _parts(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers (of floats odd ones, or zero) and exponents: 2**exponent * number = |value|."""
    if block.dtype.kind != "f":
        return np.abs(block.astype(np.int64)), np.zeros(block.shape, dtype=np.int64)
    parts, exponents = np.frexp(np.abs(block.astype(np.float64)))
    significands = np.ldexp(parts, 53).astype(np.int64)
    # Powers of two are exact in float64, whose exponent then counts the trailing zeros.
    trailing = np.maximum(np.frexp(significands & -significands)[1] - 1, 0)
    return significands >> trailing, exponents - 53 + trailing


def _limb(significands: np.ndarray, shift: np.ndarray, limb: int, mask: np.int64) -> np.ndarray:
    """The lowest ``limb`` binary digits of significands * 2**shift, rounded toward zero."""
    right = significands >> np.clip(-shift, 0, 63)
    left = np.clip(shift, 0, limb)
    kept = right & ((np.int64(1) << (limb - left)) - 1)
    return np.asarray((kept << left) & mask)


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
        return to_pixels(rows, self.grid)

    def project(self, rows: np.ndarray) -> tuple[list[int], int]:
        """Exact positions of prepared rows: whole numbers and the exponent of their unit."""
        if self.is_exact:
            return self.project_short(rows).tolist(), self.unit
        lowest = lowest_digit(rows, self.exponents)
        return wide_sums(rows, self.whole, self.exponents, lowest=lowest), lowest

    def project_short(self, rows: np.ndarray) -> np.ndarray:
        """64-bit sums, exact for rows as large as those the direction was drawn for."""
        scale = int(self.exponents[0])
        projected = np.empty(len(rows), dtype=np.int64)
        for part, block in chunks(rows):
            if block.dtype.kind == "f":
                block = np.ldexp(block.astype(np.float64), scale).astype(np.int64)
            projected[part] = block.astype(np.int64, copy=False) @ self.whole
        return projected


def project_float(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Positions of prepared rows in plain float64, as the network computes them."""
    parts = [block.astype(np.float64) @ weights for _, block in chunks(rows)]
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
    lowest = 0 if is_exact else lowest_digit(rows, exponents)

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


def _read(rows: np.ndarray) -> tuple[int | None, np.ndarray, Scan]:
    """The numbers to project; 8-bit pixels are taken back from pixel/255, which wastes 23 bits."""
    scanned = scan(rows)
    bits, _, is_exact = _weights(scanned)
    if rows.dtype.kind == "f" and not (is_exact and bits == WEIGHT_BITS):
        grid = pixel_grid(rows)
        if grid is not None:
            pixels = to_pixels(rows, grid)
            return grid, pixels, scan(pixels)
    return None, rows, scanned


def _weights(scanned: Scan) -> tuple[int, np.ndarray, bool]:
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
    repeated = np.delete(np.arange(len(order)), starts)
    return all(np.array_equal(rows[order[i - 1]], rows[order[i]]) for i in repeated)
