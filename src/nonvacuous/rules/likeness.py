"""Inputs that hardly differ: compared up to brightness and contrast, their mean and their norm."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

#: Inputs of fewer numbers may well come twice by chance.
RICH = 32
#: Inputs that differ by less than this part of their norm hardly differ.
NEAR = 0.03
_DIRECTIONS = 16


@lru_cache(maxsize=4)
def fixed_numbers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """An odd number of 64 bits for each of so many numbers, and sixteen random directions."""
    generator = np.random.default_rng(size)
    odd = np.asarray(2 * generator.integers(0, 2**63, size, dtype=np.uint64) + 1)
    directions = generator.normal(size=(size, _DIRECTIONS)) / np.sqrt(_DIRECTIONS)
    return odd, np.asarray(directions)


def bare(rows: np.ndarray) -> np.ndarray:
    """Rows without their mean and norm, in the sixteen directions: points to compare."""
    with np.errstate(all="ignore"):  # numbers may be missing, or infinite
        centered = rows - rows.mean(axis=1, keepdims=True)
        norms = np.sqrt(np.einsum("ij,ij->i", centered, centered))[:, None]
        directions = fixed_numbers(rows.shape[1])[1].astype(rows.dtype)
        points = (centered @ directions) / np.maximum(norms, np.finfo(rows.dtype).tiny)
    return np.asarray(points[np.isfinite(points).all(axis=1)])
