"""Sparse induced norms: how much a matrix can stretch a vector when few units are active.

The sparse norm of W for so many rows and columns is the largest spectral norm of any submatrix of
that size. It is exact for a single row or column; otherwise finding it would mean trying all
submatrices, and the smallest of three upper bounds is taken. Everything here is float64 and rounded
up: a power iteration, which comes from below, is never used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.sparsity.babel import babel_norm
from nonvacuous.sparsity.matrices import active, as_matrix, descending_sums, raised, top_sums, up


@dataclass(frozen=True)
class SparseNorm:
    """An upper bound on a sparse norm, and the bounds it was chosen from.

    value       the smallest of them
    way         which one that was: "exact", "spectral", "frobenius" or "babel"
    babel       None where it was not asked for
    """

    value: float
    way: str
    spectral: float
    frobenius: float
    babel: float | None

    def __float__(self) -> float:
        return self.value


def row_norm(weight: Tensor, *, columns: int) -> float:
    """The largest norm of any ``columns`` entries of any row: exact, up to rounding upward."""
    matrix, power = as_matrix(weight)
    count = active("columns", columns, matrix.shape[1])
    return up(power * math.sqrt(float(top_sums(matrix.square(), count).max())), terms=4 * count)


def row_norms(weight: Tensor) -> Tensor:
    """:func:`row_norm` for 0, 1, ..., all columns, as one table."""
    matrix, power = as_matrix(weight)
    longest = descending_sums(matrix.square(), 1).amax(0)
    return raised(power * longest.sqrt(), terms=4 * matrix.shape[1])


def spectral_norm(weight: Tensor) -> float:
    """The upper end of the spectral norm: singular values in float64, and what they can be off.

    LAPACK's largest singular value is that of a matrix within a small multiple of the rounding
    error of the given one; the multiple added here is 8 (rows + columns).
    """
    matrix, power = as_matrix(weight)
    largest = float(torch.linalg.svdvals(matrix)[0])
    return up(power * largest, terms=8 * sum(matrix.shape))


def frobenius_norm(weight: Tensor, *, rows: int, columns: int) -> float:
    """The Frobenius norm of the heaviest ``rows`` rows with ``columns`` entries each, or the same
    with rows and columns exchanged, whichever is smaller: above every such submatrix's norm.
    """
    matrix, power = as_matrix(weight)
    tall, wide = matrix.shape
    high, broad = active("rows", rows, tall), active("columns", columns, wide)
    squares = matrix.square()
    by_rows = top_sums(top_sums(squares, broad), high)
    by_columns = top_sums(top_sums(squares.T, high), broad)
    smaller = min(float(by_rows), float(by_columns))
    return up(power * math.sqrt(smaller), terms=4 * high * broad)


def sparse_norm(weight: Tensor, *, rows: int, columns: int, babel: bool = True) -> SparseNorm:
    """The smallest upper bound on the norm of any submatrix of ``rows`` rows, ``columns`` columns.

    ``babel=False`` leaves out the bound whose cost grows with the square of the rows.

    >>> weight = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    >>> found = sparse_norm(weight, rows=1, columns=1)
    >>> found.way, round(found.value, 6)
    ('exact', 4.0)
    """
    matrix, power = as_matrix(weight)
    tall, wide = matrix.shape
    high, broad = active("rows", rows, tall), active("columns", columns, wide)
    bounds = {
        "spectral": power * spectral_norm(matrix),
        "frobenius": power * frobenius_norm(matrix, rows=high, columns=broad),
    }
    if babel:
        bounds["babel"] = power * babel_norm(matrix, rows=high, columns=broad)
    way = min(bounds, key=lambda name: bounds[name])
    value = bounds[way]
    if high == 1 or broad == 1:
        one_row = power * (
            row_norm(matrix, columns=broad) if high == 1 else row_norm(matrix.T, columns=high)
        )
        value, way = min(value, one_row), "exact"
    return SparseNorm(value, way, bounds["spectral"], bounds["frobenius"], bounds.get("babel"))


def sparse_norms(weight: Tensor) -> Tensor:
    """Upper bounds for every number of rows and of columns, as a table (rows + 1, columns + 1).

    The smaller of the spectral and the Frobenius bound: those that a whole table costs no more
    than sorting. Entry [n, m] is about n rows and m columns.
    """
    matrix, power = as_matrix(weight)
    squares = matrix.square()
    by_rows = descending_sums(descending_sums(squares, 1), 0)
    by_columns = descending_sums(descending_sums(squares, 0), 1)
    table = raised(power * torch.minimum(by_rows, by_columns).sqrt(), terms=matrix.numel())
    return table.clamp(max=power * spectral_norm(matrix))
