"""The matrix of kernel values between points, computed tile by tile in float64 and never whole."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nonvacuous.interpolation.kernels import Kernel

#: Rows and columns of a tile while products are computed.
CHUNK = 2048


class PointGram:
    """The kernel matrix of points, computed where it is asked for.

    points        (points, coordinates) float64, on the device where tiles shall be computed
    size          rows, and columns
    coordinates   numbers that describe another point to :meth:`across`
    """

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        self.kernel, self.points, self.device = kernel, points, points.device
        self.size, self.coordinates = points.shape
        self._norms = points.square().sum(1)

    def tile(self, rows: slice, columns: slice) -> Tensor:
        """Rows by columns of the matrix, float64, as a tensor of its own."""
        left, right = self.points[rows], self.points[columns]
        values = _arguments(self.kernel, left, right, self._norms[rows], self._norms[columns])
        if self.kernel.based_on == "distances":
            _zero_where_equal(values, rows, columns)
        return self.kernel.function(values)

    def diagonal(self) -> Tensor:
        """The kernel of every point with itself, float64."""
        apart = self.kernel.based_on == "distances"
        return self.kernel.function(torch.zeros_like(self._norms) if apart else self._norms.clone())

    def across(self, others: Tensor) -> Tensor:
        """The kernel of other points (rows) with these (columns), float64."""
        norms = others.square().sum(1)
        return self.kernel.function(
            _arguments(self.kernel, others, self.points, norms, self._norms)
        )


class DistanceGram:
    """The same where squared distances are at hand and points too large to keep.

    distances   (points, points), symmetric, any float type
    """

    def __init__(self, kernel: Kernel, distances: Tensor) -> None:
        self.kernel, self.distances, self.device = kernel, distances, distances.device
        self.size = self.coordinates = len(distances)

    def tile(self, rows: slice, columns: slice) -> Tensor:
        values = self.distances[rows, columns].to(torch.float64, copy=True)
        _zero_where_equal(values, rows, columns)
        return self.kernel.function(values)

    def diagonal(self) -> Tensor:
        return self.kernel.function(torch.zeros(self.size, dtype=torch.float64, device=self.device))

    def across(self, others: Tensor) -> Tensor:
        """Other points are described by their squared distances to these."""
        return self.kernel.function(others.to(torch.float64, copy=True))


Gram = PointGram | DistanceGram


def product(
    gram: Gram,
    vectors: Tensor,
    *,
    chunk: int = CHUNK,
    report: Callable[[int, int], None] | None = None,
) -> Tensor:
    """The matrix times (points, columns) vectors, every tile computed once and used twice.

    report   called with the tiles done and their number
    """
    n = gram.size
    result = torch.zeros_like(vectors)
    starts = range(0, n, chunk)
    total, done = len(starts) * (len(starts) + 1) // 2, 0
    for i in starts:
        rows = slice(i, min(i + chunk, n))
        for j in range(0, i + 1, chunk):
            columns = slice(j, min(j + chunk, n))
            values = gram.tile(rows, columns)
            result[rows] += values @ vectors[columns]
            if i != j:
                result[columns] += values.T @ vectors[rows]
            done += 1
            if report is not None:
                report(done, total)
    return result


def _arguments(
    kernel: Kernel, left: Tensor, right: Tensor, left_norms: Tensor, right_norms: Tensor
) -> Tensor:
    products = left @ right.T
    if kernel.based_on == "products":
        return products
    # Rounding makes the distance of near-equal points slightly negative.
    return products.mul_(-2).add_(left_norms[:, None]).add_(right_norms).clamp_(min=0)


def _zero_where_equal(values: Tensor, rows: slice, columns: slice) -> None:
    """A point's distance to itself is zero exactly, whatever rounding says."""
    first, last = max(rows.start, columns.start), min(rows.stop, columns.stop)
    if first < last:
        index = torch.arange(first, last, device=values.device)
        values[index - rows.start, index - columns.start] = 0
