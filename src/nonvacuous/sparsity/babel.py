"""The reduced babel function: how far the rows of a matrix are from orthogonal when few entries
count.

Muthukumar and Sulam (2023). By Gershgorin's circles it bounds the norm of every submatrix with so
many rows and columns; it does better than the spectral norm only where nearly everything is zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nonvacuous.sparsity.matrices import EPSILON, active, as_matrix, top_sums, up

#: Products held at once: 128 MiB of float64.
_PRODUCTS = 2**24


def reduced_gram(weight: Tensor, *, columns: int, products: int = _PRODUCTS) -> Tensor:
    """For every two rows, the largest |inner product| over any ``columns`` of their entries.

    On the diagonal stand the squares of the largest norms of so many entries of a row. ``products``
    limits the memory: the rows are worked off in chunks.
    """
    matrix, power = as_matrix(weight)
    rows, width = matrix.shape
    count = active("columns", columns, width)
    if count == width:
        gram = (matrix @ matrix.T).abs()
    else:
        gram = matrix.new_empty(rows, rows)
        step = max(1, products // (rows * width))
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            # The matrix is symmetric: what lies left of this block is known already.
            pairs = matrix[start:stop, None] * matrix[None, start:]
            block = torch.maximum(top_sums(pairs, count), top_sums(-pairs, count))
            gram[start:stop, start:] = block
            gram[start:, start:stop] = block.T
    return gram * power**2


def babel(weight: Tensor, *, rows: int, columns: int) -> float:
    """The reduced babel function: 0 for orthogonal rows (and for a single one), never negative.

    The largest sum, over a row j and ``rows`` - 1 others, of the reduced inner products with row j,
    divided by the square of the largest row norm over ``columns`` entries.
    """
    matrix, _ = as_matrix(weight)
    count = active("rows", rows, matrix.shape[0])
    gram = reduced_gram(matrix, columns=columns)
    largest = float(gram.diagonal().max())
    if count == 1 or largest == 0.0:
        return 0.0
    return up(float(_others(gram, count).max()) / largest, terms=8 * matrix.shape[1] + count)


def babel_norm(weight: Tensor, *, rows: int, columns: int) -> float:
    """An upper bound on the norm of every submatrix of ``rows`` rows and ``columns`` columns.

    Gershgorin row by row: at most (largest row norm) * sqrt(1 + babel), and below it where the row
    with the most overlap is not the longest.
    """
    matrix, power = as_matrix(weight)
    count = active("rows", rows, matrix.shape[0])
    gram = reduced_gram(matrix, columns=columns)
    lengths = gram.diagonal()
    circles = lengths + (_others(gram, count) if count > 1 else 0.0)
    # Rounding an inner product loses relative to the lengths of the rows, not to the product.
    lost = (4 * columns + 16) * EPSILON * count * float(lengths.max())
    return up(power * math.sqrt(float(circles.max()) + lost), terms=count)


def _others(gram: Tensor, rows: int) -> Tensor:
    """For each row, its largest sum of overlaps with ``rows`` - 1 others."""
    others = gram.clone().fill_diagonal_(-1.0)
    return others.topk(rows - 1, dim=1, sorted=False).values.sum(1)
