"""Sparse induced norms: how much a matrix can stretch a vector when few units are active.

The sparse norm of W for so many rows and columns is the largest spectral norm of any submatrix of
that size. It is exact for a single row or column; otherwise finding it would mean trying all
submatrices, and the smallest of three upper bounds is taken. Everything here is float64 and rounded
up: a power iteration, which comes from below, is never used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput

#: Distance from 1 to the next float64.
EPSILON = 2.0**-52


def as_matrix(weight: Any) -> tuple[Tensor, float]:
    """The matrix in float64 divided by a power of two, and that power.

    The largest entry then lies between 1/2 and 1, so that no square overflows or vanishes. Powers
    of two divide without rounding.
    """
    if not isinstance(weight, Tensor) or weight.dim() != 2 or 0 in weight.shape:
        shape = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise BadInput(f"weight must be a matrix (outputs, inputs) with entries, got {shape}.")
    matrix = weight.detach().double()
    largest = float(matrix.abs().max())
    if not math.isfinite(largest):
        raise BadInput("weight contains NaN or infinity; train the network again.")
    if largest == 0.0:
        return matrix, 1.0
    power = math.ldexp(1.0, math.frexp(largest)[1])
    return matrix / power, power


def active(name: str, value: int, size: int) -> int:
    """How many rows or columns may be active: from 1 to all of them."""
    number = checks.count(name, value, minimum=1)
    if number > size:
        raise BadInput(f"{name} = {number}, but the matrix has only {size}.")
    return number


def up(value: float, *, terms: int) -> float:
    """``value`` raised beyond what a sum of ``terms`` products and a root can have lost."""
    return value if value == 0.0 else math.nextafter(value * (1 + (terms + 8) * EPSILON), math.inf)


def raised(values: Tensor, *, terms: int) -> Tensor:
    return values * (1 + (terms + 8) * EPSILON)


def top_sums(values: Tensor, count: int) -> Tensor:
    """The sum of the ``count`` largest entries along the last axis."""
    size = values.shape[-1]
    if count == size:
        return values.sum(-1)
    if 2 * count <= size:
        return values.topk(count, dim=-1, sorted=False).values.sum(-1)
    # Fewer are left out than taken, and selecting costs by how many are selected.
    left_out = values.topk(size - count, dim=-1, largest=False, sorted=False).values
    return values.sum(-1) - left_out.sum(-1)


def descending_sums(values: Tensor, dim: int) -> Tensor:
    """Sums of the 0, 1, 2, ... largest entries along an axis, which grows by one."""
    sums = values.sort(dim=dim, descending=True).values.cumsum(dim)
    shape = list(sums.shape)
    shape[dim] = 1
    return torch.cat([sums.new_zeros(shape), sums], dim=dim)


# Units that are active in blocks: rows and columns are then counted in blocks, and a block of one
# unit is the unit (docs/theory/sparsity.md, 4b).

Blocks = tuple[int, int]


def summed(values: Tensor, block: int) -> Tensor:
    """Sums over blocks of so many entries along the last axis."""
    return values if block == 1 else values.unflatten(-1, (-1, block)).sum(-1)


def _counts(matrix: Tensor, blocks: Blocks) -> tuple[int, int]:
    tall, wide = (
        divmod(size, checks.count("blocks", block, minimum=1))
        for size, block in zip(matrix.shape, blocks, strict=True)
    )
    if tall[1] or wide[1]:
        raise BadInput(
            f"blocks of {blocks[0]} rows and {blocks[1]} columns do not divide a matrix of "
            f"{matrix.shape[0]} x {matrix.shape[1]}; choose sizes that do."
        )
    return tall[0], wide[0]


def _cut(matrix: Tensor, blocks: Blocks) -> Tensor:
    rows, columns = _counts(matrix, blocks)
    return matrix.reshape(rows, blocks[0], columns, blocks[1]).transpose(1, 2)


def _largest(matrices: Tensor) -> Tensor:
    """The spectral norms of a batch, rounded up."""
    singular = torch.linalg.svdvals(matrices)[..., 0]
    return raised(singular, terms=8 * sum(matrices.shape[-2:]))


# The reduced babel function: how far the rows of a matrix are from orthogonal when few entries
# count.
#
# Muthukumar and Sulam (2023). By Gershgorin's circles it bounds the norm of every submatrix with so
# many rows and columns; it does better than the spectral norm only where nearly everything is zero.

#: Products held at once: 128 MiB of float64.
_PRODUCTS = 2**24


def reduced_gram(
    weight: Tensor, *, columns: int, products: int = _PRODUCTS, blocks: Blocks = (1, 1)
) -> Tensor:
    """For every two rows, the largest |inner product| over any ``columns`` of their entries.

    On the diagonal stand the squares of the largest norms of so many entries of a row. ``products``
    limits the memory: the rows are worked off in chunks. With ``blocks``, for every two blocks of
    rows an upper bound on the norm of the product of one with the other's transpose, over any
    ``columns`` blocks of columns; exact for single rows, and where all columns count.
    """
    matrix, power = as_matrix(weight)
    rows, width = _counts(matrix, blocks)
    count = active("columns", columns, width)
    if blocks[0] > 1:
        return _block_gram(matrix, count, blocks) * power**2
    if count == width:
        gram = (matrix @ matrix.T).abs()
    else:
        gram = matrix.new_empty(rows, rows)
        step = max(1, products // matrix.numel())
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            # The matrix is symmetric: what lies left of this block is known already.
            pairs = summed(matrix[start:stop, None] * matrix[None, start:], blocks[1])
            block = torch.maximum(top_sums(pairs, count), top_sums(-pairs, count))
            gram[start:stop, start:] = block
            gram[start:, start:stop] = block.T
    return gram * power**2


def _block_gram(matrix: Tensor, columns: int, blocks: Blocks) -> Tensor:
    whole = columns == matrix.shape[1] // blocks[1]
    pieces = _cut(matrix, (blocks[0], matrix.shape[1]) if whole else blocks)
    lines = [
        top_sums(_largest(mine @ pieces.mT), 1 if whole else columns) for mine in pieces[:, None]
    ]
    return torch.stack([line.reshape(len(pieces)) for line in lines])


def babel_norm(weight: Tensor, *, rows: int, columns: int, blocks: Blocks = (1, 1)) -> float:
    """An upper bound on the norm of every submatrix of ``rows`` rows and ``columns`` columns.

    Gershgorin row by row: at most (largest row norm) * sqrt(1 + babel), and below it where the row
    with the most overlap is not the longest. Rows and columns are counted in ``blocks``.
    """
    matrix, power = as_matrix(weight)
    count = active("rows", rows, _counts(matrix, blocks)[0])
    gram = reduced_gram(matrix, columns=columns, blocks=blocks)
    lengths = gram.diagonal()
    # For each row, its largest sum of overlaps with so many others.
    others = gram.clone().fill_diagonal_(-1.0).topk(count - 1, dim=1, sorted=False).values
    circles = lengths + others.sum(1)
    # Rounding an inner product loses relative to the lengths of the rows, not to the product.
    lost = (4 * columns * blocks[1] + 16) * EPSILON * count * blocks[0] * float(lengths.max())
    return up(power * math.sqrt(float(circles.max()) + lost), terms=count)


@dataclass(frozen=True)
class UpperNorm:
    """An upper bound on a norm: the smallest of the bounds by name, and which one that was.

    One called "exact" may be undercut by rounding alone.
    """

    bounds: dict[str, float]

    @property
    def way(self) -> str:
        return "exact" if "exact" in self.bounds else min(self.bounds, key=self.bounds.__getitem__)

    @property
    def value(self) -> float:
        return min(self.bounds.values())


def row_norm(weight: Tensor, *, columns: int, block: int = 1) -> float:
    """The largest norm of any ``columns`` (blocks of) entries of any row: exact, rounded upward."""
    matrix, power = as_matrix(weight)
    count = active("columns", columns, _counts(matrix, (1, block))[1])
    longest = float(top_sums(summed(matrix.square(), block), count).max())
    return up(power * math.sqrt(longest), terms=4 * count * block)


def row_norms(weight: Tensor) -> Tensor:
    """:func:`row_norm` for 0, 1, ..., all columns, as one table."""
    matrix, power = as_matrix(weight)
    longest = descending_sums(matrix.square(), 1).amax(0)
    return raised(power * longest.sqrt(), terms=4 * matrix.shape[1])


def unit_norms(matrix: Tensor) -> Tensor:
    plain, power = as_matrix(matrix)
    return raised(power * plain.square().sum(1).sqrt(), terms=4 * plain.shape[1])


def spectral_norm(weight: Tensor) -> float:
    """The upper end of the spectral norm: singular values in float64, and what they can be off.

    LAPACK's largest singular value is that of a matrix within a small multiple of the rounding
    error of the given one; the multiple added here is 8 (rows + columns).
    """
    matrix, power = as_matrix(weight)
    largest = float(torch.linalg.svdvals(matrix)[0])
    return up(power * largest, terms=8 * sum(matrix.shape))


def frobenius_norm(weight: Tensor, *, rows: int, columns: int, blocks: Blocks = (1, 1)) -> float:
    """The Frobenius norm of the heaviest ``rows`` rows with ``columns`` entries each, or the same
    with rows and columns exchanged, whichever is smaller: above every such submatrix's norm.

    With ``blocks``, of the matrix of the blocks' spectral norms.
    """
    matrix, power = as_matrix(weight)
    tall, wide = _counts(matrix, blocks)
    high, broad = active("rows", rows, tall), active("columns", columns, wide)
    squares = (matrix if blocks == (1, 1) else _largest(_cut(matrix, blocks))).square()
    by_rows = top_sums(top_sums(squares, broad), high)
    by_columns = top_sums(top_sums(squares.T, high), broad)
    smaller = min(float(by_rows), float(by_columns))
    return up(power * math.sqrt(smaller), terms=4 * high * broad)


def sparse_norm(
    weight: Tensor, *, rows: int, columns: int, babel: bool = True, blocks: Blocks = (1, 1)
) -> UpperNorm:
    """The smallest upper bound on the norm of any submatrix of ``rows`` rows, ``columns`` columns.

    ``babel=False`` leaves out the bound whose cost grows with the square of the rows. With
    ``blocks``, rows and columns are counted in blocks of so many.

    >>> weight = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 1.0]])
    >>> norm = sparse_norm(weight, rows=1, columns=1)
    >>> norm.way, round(norm.value, 6)
    ('exact', 4.0)
    """
    matrix, power = as_matrix(weight)
    tall, wide = _counts(matrix, blocks)
    high, broad = active("rows", rows, tall), active("columns", columns, wide)
    bounds = {
        "spectral": power * spectral_norm(matrix),
        "frobenius": power * frobenius_norm(matrix, rows=high, columns=broad, blocks=blocks),
    }
    if babel:
        bounds["babel"] = power * babel_norm(matrix, rows=high, columns=broad, blocks=blocks)
    if (high, blocks[0]) == (1, 1):
        bounds["exact"] = power * row_norm(matrix, columns=broad, block=blocks[1])
    elif (broad, blocks[1]) == (1, 1):
        bounds["exact"] = power * row_norm(matrix.T, columns=high, block=blocks[0])
    return UpperNorm(bounds)


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
