"""Floats as whole numbers: every float is one times a power of two, so sums of them can be exact.

Arrays are read in chunks of rows, so that the memory needed does not grow with the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nonvacuous.errors import BadInput

#: Numbers read at once: small enough for the processor's caches.
_CHUNK = 1 << 18
_FRACTION = (1 << 52) - 1
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


def _split(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Odd (or zero) whole numbers and exponents whose product 2**exponent * number is |value|."""
    bits = values.view(np.int64) & np.int64(0x7FFF_FFFF_FFFF_FFFF)
    raw = bits >> 52
    significands = bits & _FRACTION
    significands |= (raw > 0).astype(np.int64) << 52
    # Powers of two are exact in float64, whose exponent field then counts the trailing zeros.
    trailing = (significands & -significands).astype(np.float64).view(np.int64) >> 52
    trailing = np.maximum(trailing - 1023, 0)
    return significands >> trailing, np.maximum(raw, 1) - 1075 + trailing


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
    """Absolute values as whole numbers and exponents, for floats and whole numbers alike."""
    if block.dtype.kind == "f":
        return _split(block.astype(np.float64))
    return np.abs(block.astype(np.int64)), np.zeros(block.shape, dtype=np.int64)


def _limb(significands: np.ndarray, shift: np.ndarray, limb: int, mask: np.int64) -> np.ndarray:
    """The lowest ``limb`` binary digits of significands * 2**shift, rounded toward zero."""
    right = significands >> np.clip(-shift, 0, 63)
    left = np.clip(shift, 0, limb)
    kept = right & ((np.int64(1) << (limb - left)) - 1)
    return np.asarray((kept << left) & mask)
