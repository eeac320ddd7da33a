"""The lower triangle of a symmetric matrix in tiles: in memory, or in a file mapped into it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

#: Large enough that the processor computes rather than waits; small enough for many to fit.
TILE = 2000


class Tiles:
    """Tiles of the lower triangle, column after column in one flat array.

    A finished column of tiles is one stretch of the array, so it can be written to a file and read
    back in one go. Every tile is stored in Fortran order, as BLAS wants it.
    """

    def __init__(self, size: int, tile: int, flat: np.ndarray) -> None:
        self.size = size
        self.tile = tile
        self.count = -(-size // tile)
        self.flat = flat
        starts = [0]
        for column in range(self.count):
            rows = size - column * tile
            starts.append(starts[-1] + rows * self.length(column))
        self._starts = starts

    @classmethod
    def in_memory(cls, size: int, dtype: np.dtype, *, tile: int = TILE) -> Tiles:
        return cls(size, tile, np.empty(entries(size, tile), dtype=dtype))

    @classmethod
    def on_disk(
        cls, size: int, dtype: np.dtype, path: Path, *, fresh: bool, tile: int = TILE
    ) -> Tiles:
        """Tiles in a file; the system keeps in memory what it has room for."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (entries(size, tile),)
        if fresh or not path.is_file():
            return cls(size, tile, np.memmap(path, dtype=dtype, mode="w+", shape=shape))
        flat: np.ndarray = np.memmap(path, dtype=dtype, mode="r+", shape=shape)
        return cls(size, tile, flat)

    def length(self, index: int) -> int:
        """Rows of the tiles in this row of tiles; only the last may be shorter."""
        return min(self.tile, self.size - index * self.tile)

    def span(self, index: int) -> slice:
        """The rows of the matrix that this row of tiles covers."""
        start = index * self.tile
        return slice(start, start + self.length(index))

    def view(self, row: int, column: int) -> np.ndarray:
        """One tile, row >= column; writing into it writes into the matrix."""
        width = self.length(column)
        start = self._starts[column] + (row - column) * self.tile * width
        height = self.length(row)
        flat = np.asarray(self.flat[start : start + height * width])
        return flat.reshape(width, height).T

    def stretch(self, column: int) -> slice:
        """Where a column of tiles lies in the flat array."""
        return slice(self._starts[column], self._starts[column + 1])


def entries(size: int, tile: int = TILE) -> int:
    """Numbers in the lower tiles, those above the diagonal inside diagonal tiles included.

    >>> entries(60_000, 2_000)
    1860000000
    """
    count = -(-size // tile)
    last = size - (count - 1) * tile
    full = count - 1
    return full * (full + 1) // 2 * tile * tile + last * full * tile + last * last
