"""Cholesky factorization by tiles, on the processor: half the memory of the whole matrix.

Left-looking: a column of tiles is made from the kernel and from the columns before it, and never
touched again. So the kernel matrix itself is never stored, a column that is finished can be kept on
disk, and a factorization that was stopped goes on with the next column. No call to BLAS or LAPACK
sees more than one tile, so no index can overflow (32-bit LAPACK fails on whole matrices above
46,340 rows).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from nonvacuous.interpolation.kernels import Gram

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
        self._starts = _starts(size, tile)

    @classmethod
    def in_memory(cls, size: int, dtype: np.dtype, *, tile: int = TILE) -> Tiles:
        return cls(size, tile, np.empty(entries(size, tile), dtype=dtype))

    @classmethod
    def on_disk(
        cls, size: int, dtype: np.dtype, path: Path, *, fresh: bool, tile: int = TILE
    ) -> Tiles:
        """Tiles in a file; the system keeps in memory what it has room for."""
        path.parent.mkdir(parents=True, exist_ok=True)
        mode: Literal["w+", "r+"] = "w+" if fresh or not path.is_file() else "r+"
        return cls(size, tile, np.memmap(path, dtype, mode, shape=(entries(size, tile),)))

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
    return _starts(size, tile)[-1]


def _starts(size: int, tile: int) -> list[int]:
    """Where each column of tiles begins in the flat array, and where the last one ends."""
    left = range(size, 0, -tile)
    return [0, *accumulate(rows * min(rows, tile) for rows in left)]


@dataclass(frozen=True)
class Pivots:
    """What the factorization divided by: how far every point is from those before it.

    smallest   the smallest pivot, relative to the kernel of its point with itself: the part of the
               point's feature vector that the points before it do not span, squared
    point      where
    """

    smallest: float
    point: int


class NotPositive(Exception):
    """A pivot is not positive: in this precision the matrix is singular."""

    def __init__(self, point: int) -> None:
        super().__init__(f"pivot {point} is not positive")
        self.point = point


def factorize(
    gram: Gram,
    tiles: Tiles,
    scales: np.ndarray,
    *,
    first: int = 0,
    report: Callable[[], None] = lambda: None,
    keep: Callable[[int], None] = lambda column: None,
) -> None:
    """Fill the tiles with the lower factor L of S K S = L Lᵀ, S the diagonal matrix of ``scales``.

    first    columns of tiles before this one are there already
    report   called after every multiplication of one tile by another
    keep     called with every column that is finished
    """
    kind = tiles.flat.dtype
    gemm, trsm = get_blas_funcs(("gemm", "trsm"), dtype=kind)
    (potrf,) = get_lapack_funcs(("potrf",), dtype=kind)
    for column in range(first, tiles.count):
        for row in range(column, tiles.count):
            target = tiles.view(row, column)
            values = gram.tile(tiles.span(row), tiles.span(column)).cpu().numpy()
            values *= scales[tiles.span(row), None]
            values *= scales[tiles.span(column)]
            target[...] = values
            for before in range(column):
                left, right = tiles.view(row, before), tiles.view(column, before)
                gemm(-1.0, left, right, 1.0, target, trans_b=1, overwrite_c=1)
                report()
            if row == column:
                _, trouble = potrf(target, lower=1, overwrite_a=1, clean=1)
                if trouble:
                    raise NotPositive(tiles.span(column).start + int(trouble) - 1)
                corner = target
            else:
                trsm(1.0, corner, target, side=1, lower=1, trans_a=1, overwrite_b=1)
        keep(column)


def solve(tiles: Tiles, right_sides: np.ndarray) -> np.ndarray:
    """Solve L Lᵀ x = b for (points, columns) right-hand sides, in the precision of the tiles."""
    kind = tiles.flat.dtype
    (trsm,) = get_blas_funcs(("trsm",), dtype=kind)
    solved = np.asarray(right_sides, dtype=kind, order="C").copy()
    for column in range(tiles.count):
        here = tiles.span(column)
        solved[here] = trsm(1.0, tiles.view(column, column), solved[here], lower=1)
        for row in range(column + 1, tiles.count):
            solved[tiles.span(row)] -= tiles.view(row, column) @ solved[here]
    for column in reversed(range(tiles.count)):
        here = tiles.span(column)
        for row in range(column + 1, tiles.count):
            solved[here] -= tiles.view(row, column).T @ solved[tiles.span(row)]
        solved[here] = trsm(1.0, tiles.view(column, column), solved[here], lower=1, trans_a=1)
    return solved


def pivots(tiles: Tiles) -> Pivots:
    """The smallest pivot of a finished factor."""
    roots = np.concatenate([np.diagonal(tiles.view(i, i)) for i in range(tiles.count)])
    point = int(roots.argmin())
    return Pivots(smallest=float(roots[point]) ** 2, point=point)


def multiplications(tiles: int, columns: int) -> int:
    """Multiplications of tiles for the first columns of a factor with so many rows of tiles."""
    return sum(column * (tiles - column) for column in range(columns))


def factorize_in_place(
    matrix: torch.Tensor, *, block: int = 4096, report: Callable[[int], None] | None = None
) -> None:
    """Replace the lower triangle of a whole matrix by its factor, on the matrix's own device.

    For a GPU whose memory holds the matrix. Blocks for the same reason as above: no call may count
    in 32 bits over the whole matrix. The upper triangle keeps what it held.
    """
    size = len(matrix)
    for start in range(0, size, block):
        stop = min(start + block, size)
        corner, info = torch.linalg.cholesky_ex(matrix[start:stop, start:stop])
        if int(info):
            raise NotPositive(start + int(info) - 1)
        matrix[start:stop, start:stop] = corner
        if stop < size:
            panel = torch.linalg.solve_triangular(
                corner.T, matrix[stop:, start:stop], upper=True, left=False
            )
            matrix[stop:, start:stop] = panel
            for left in range(stop, size, block):
                right = min(left + block, size)
                part = panel[left - stop : right - stop]
                matrix[left:, left:right].addmm_(panel[left - stop :], part.T, alpha=-1)
        if report is not None:
            report(stop)


def solve_in_place(
    factor: torch.Tensor, right_sides: torch.Tensor, *, block: int = 4096
) -> torch.Tensor:
    """Solve with a factor from :func:`factorize_in_place`; the right-hand sides are not changed."""
    solved = right_sides.clone()
    starts = range(0, len(factor), block)
    for start in starts:
        stop = min(start + block, len(factor))
        corner = factor[start:stop, start:stop]
        solved[start:stop] = torch.linalg.solve_triangular(corner, solved[start:stop], upper=False)
        solved[stop:] -= factor[stop:, start:stop] @ solved[start:stop]
    for start in reversed(starts):
        stop = min(start + block, len(factor))
        corner = factor[start:stop, start:stop]
        solved[start:stop] -= factor[stop:, start:stop].T @ solved[stop:]
        solved[start:stop] = torch.linalg.solve_triangular(corner.T, solved[start:stop], upper=True)
    return solved
