"""Kernels: how alike two points are, as a function of their distance or of their inner product.

The matrix of their values between points is computed tile by tile in float64 and never whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Literal

import torch
from torch import Tensor

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput, nearest


@dataclass(frozen=True)
class Kernel:
    """A positive semi-definite kernel.

    name         what it is called
    parameters   its numbers, such as {"gamma": 0.02}
    based_on     "distances": a function of ‖x−y‖²; "products": a function of ⟨x, y⟩
    function     maps a tile of squared distances or of inner products, in place or not, to values
    rank_limit   for points of so many coordinates: the most points through which a function can
                 be made to pass whatever their values; None where there is no such limit
    """

    name: str
    parameters: Mapping[str, float]
    based_on: Literal["distances", "products"]
    function: Callable[[Tensor], Tensor]
    rank_limit: Callable[[int], int | None] = lambda _: None

    def __str__(self) -> str:
        numbers = ", ".join(f"{key} {value:g}" for key, value in self.parameters.items())
        return f"{self.name} ({numbers})" if numbers else self.name


def gaussian(gamma: float = 1.0) -> Kernel:
    """exp(−gamma ‖x−y‖²), squared Euclidean distance.

    >>> gaussian(0.5).function(torch.tensor([2.0], dtype=torch.float64)).item()
    0.36787944117144233
    """
    rate = checks.positive("gamma", gamma)
    return Kernel("gaussian", {"gamma": rate}, "distances", lambda d: d.mul_(-rate).exp_())


def laplace(gamma: float = 1.0) -> Kernel:
    """exp(−gamma ‖x−y‖), Euclidean distance: rougher than the Gaussian, never near-singular."""
    rate = checks.positive("gamma", gamma)
    return Kernel("laplace", {"gamma": rate}, "distances", lambda d: d.sqrt_().mul_(-rate).exp_())


def polynomial(degree: float = 3, offset: float = 1.0, scale: float = 1.0) -> Kernel:
    """(scale ⟨x, y⟩ + offset) to the power of a whole number."""
    if not (isinstance(degree, Real) and degree >= 1 and float(degree).is_integer()):
        raise BadInput(f"polynomial: the degree must be a whole number from 1, not {degree!r}")
    power, factor = int(degree), checks.positive("scale", scale)
    offset = checks.non_negative("offset", offset)  # else this is no kernel
    return Kernel(
        "polynomial",
        {"degree": power, "offset": offset, "scale": factor},
        "products",
        lambda p: p.mul_(factor).add_(offset).pow_(power),
        # Monomials of that degree in the coordinates (and, with an offset, of lower degree).
        lambda d: math.comb(d + power - (offset == 0), power),
    )


def linear() -> Kernel:
    """⟨x, y⟩: its interpolant is the linear function with the smallest weights."""
    return Kernel("linear", {}, "products", lambda p: p, lambda d: d)


#: Kernels by name; others may be entered. Each takes numbers by name and gives a :class:`Kernel`.
KERNELS: dict[str, Callable[..., Kernel]] = {
    factory.__name__: factory for factory in (gaussian, laplace, polynomial, linear)
}


def kernel_of(name: str, **parameters: float) -> Kernel:
    """The kernel of that name with these numbers.

    >>> str(kernel_of("gaussian", gamma=0.02))
    'gaussian (gamma 0.02)'
    """
    factory = KERNELS.get(name)
    if factory is None:
        raise BadInput(
            f"there is no kernel {name!r}; there are {', '.join(KERNELS)}"
            + nearest(name, KERNELS, "; did you mean {}?")
        )
    try:
        return factory(**parameters)
    except TypeError as error:
        raise BadInput(
            f"the kernel {name} does not take {', '.join(parameters)} ({error})"
        ) from error


def median_squared_distance(points: Tensor, *, seed: int = 0, sample: int = 2000) -> float:
    """The median of ‖x−x'‖² over pairs of a random sample: the scale on which a kernel works."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(points), generator=generator)[:sample].to(points.device)
    few = points[chosen].reshape(len(chosen), -1).double()
    if len(few) < 2:
        return 1.0
    return float(torch.pdist(few.cpu()).square().median())


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
        values = self._between(self.points[rows], self._norms[rows], columns)
        if self.kernel.based_on == "distances":
            _zero_where_equal(values, rows, columns)
        return self.kernel.function(values)

    def diagonal(self) -> Tensor:
        """The kernel of every point with itself, float64."""
        apart = self.kernel.based_on == "distances"
        return self.kernel.function(torch.zeros_like(self._norms) if apart else self._norms.clone())

    def across(self, others: Tensor) -> Tensor:
        """The kernel of other points (rows) with these (columns), float64."""
        return self.kernel.function(self._between(others, others.square().sum(1), slice(None)))

    def _between(self, left: Tensor, norms: Tensor, columns: slice) -> Tensor:
        """What the kernel is a function of: squared distances, or inner products."""
        products = left @ self.points[columns].T
        if self.kernel.based_on == "products":
            return products
        # Rounding makes the distance of near-equal points slightly negative.
        return products.mul_(-2).add_(norms[:, None]).add_(self._norms[columns]).clamp_(min=0)


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


def _zero_where_equal(values: Tensor, rows: slice, columns: slice) -> None:
    """A point's distance to itself is zero exactly, whatever rounding says."""
    first, last = max(rows.start, columns.start), min(rows.stop, columns.stop)
    if first < last:
        index = torch.arange(first, last, device=values.device)
        values[index - rows.start, index - columns.start] = 0
