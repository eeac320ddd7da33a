"""What noisy weights add at several positions of one example, drawn at the positions.

A layer whose row o of weights has independent noise of variances v_o adds to the positions with
patches X (positions x entries) a Gaussian vector of covariance X diag(v_o) X^T. Its square root
times as many normal numbers as there are positions has the same law as the noise of all weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import torch
import torch.nn.functional as F
from torch import Tensor

#: With variances of its own for each weight every row has a square root of its own, which pays for
#: few positions only.
_FEW = 4
#: Rows of scales that agree up to so many roundings are multiples of one another.
_AGREEMENT = 8
#: A pivot below this part of its variance is rounding, in double precision.
_ROUNDING = 1e-12
#: Times in that of a normal number: of a product in single and in double precision, and of a
#: decomposition for each cube of its size.
_PRODUCT, _EXACT_PRODUCT, _DECOMPOSITION = 0.007, 0.015, 0.05


@dataclass(frozen=True, eq=False)
class Weights:
    """Mean and variance of one parameter tensor, with what can be computed once.

    ``row_variance`` is not None when all rows of variances are multiples of one row, which is
    ``entry_variance``, or all ones if that is None: S^2 x^2 is then ``row_variance * sum(
    entry_variance * x^2)``, without a second matrix product. Equal noise is like that, and stays
    so when channels are rescaled. It has one entry for each row, or one for all.
    """

    name: str
    mean: Tensor
    scale: Tensor
    variance: Tensor
    row_variance: Tensor | None
    entry_variance: Tensor | None = None

    @staticmethod
    def of(name: str, mean: Tensor, scale: Tensor) -> Weights:
        """Look once at the scales for the shortcuts they allow."""
        variance = scale.square()
        own = partial(Weights, name, mean, scale, variance)
        if scale.numel() and bool((scale == scale.reshape(-1)[0]).all()):
            return own(variance.reshape(-1)[:1])
        if scale.ndim < 2 or scale.numel() == 0:
            return own(None)
        rows = scale.flatten(1)
        first = rows[:, :1]
        if bool((rows == first).all()):
            return own(first.square().flatten())
        profile = rows[:1] / first[:1]
        # Up to rounding: less than what the sums over a row lose in the same precision.
        near = (rows - first * profile).abs_() <= _AGREEMENT * torch.finfo(rows.dtype).eps * rows
        return own(first.square().flatten(), profile[0].square()) if bool(near.all()) else own(None)


@dataclass(frozen=True)
class Vectors:
    """The vectors of a sequence, as a linear layer sees them; see :class:`Windows`."""

    count: int

    def ordered(self, weights: Weights) -> Weights:
        return weights

    def patches(self, inputs: Tensor) -> Tensor:
        return inputs

    def means(self, inputs: Tensor, weights: Weights) -> Tensor:
        return F.linear(inputs, weights.mean)

    def gram(self, inputs: Tensor, weights: Weights) -> Tensor:
        return _products(inputs, weights.entry_variance)

    def inside(self, like: Tensor) -> Tensor | None:
        return None


@dataclass(frozen=True)
class Windows:
    """The windows of a two-dimensional convolution over images of channels, height and width.

    Where a layer looks at an example: at a patch of entries at each of several positions.
    """

    image: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @cached_property
    def grid(self) -> tuple[int, int]:
        """How the positions lie."""
        down, across = (
            (length + 2 * pad - dilation * (size - 1) - 1) // stride + 1
            for length, size, stride, pad, dilation in self._directions()
        )
        return down, across

    @property
    def count(self) -> int:
        """The positions of one example."""
        return self.grid[0] * self.grid[1]

    @property
    def _channels_together(self) -> bool:
        """Whether a row of a window is copied at once, or else a row of positions."""
        return self.image[0] * self.kernel[1] >= self.grid[1]

    def ordered(self, weights: Weights) -> Weights:
        """Flat rows of weights, their entries in the order of the patches'."""

        def flat(tensor: Tensor) -> Tensor:
            return (tensor.movedim(1, -1) if self._channels_together else tensor).flatten(1)

        profile = weights.entry_variance
        if profile is not None:
            profile = flat(profile.reshape(1, *weights.mean.shape[1:]))[0]
        mean, scale, variance = map(flat, (weights.mean, weights.scale, weights.variance))
        return Weights(weights.name, mean, scale, variance, weights.row_variance, profile)

    def patches(self, inputs: Tensor) -> Tensor:
        """(examples, positions, entries)"""
        (rows, columns), (down, right), (y, x) = self.grid, self.stride, self.dilation
        above, left = self.padding
        if self._channels_together:
            images = F.pad(inputs.permute(0, 2, 3, 1), (0, 0, left, left, above, above))
            images = images.contiguous()
            far, line, pixel, _ = images.stride()
            sizes = (len(inputs), rows, columns, *self.kernel, self.image[0])
            steps = (far, down * line, right * pixel, y * line, x * pixel, 1)
            return images.as_strided(sizes, steps).reshape(len(inputs), self.count, -1)
        images = F.pad(inputs, (left, left, above, above)).contiguous()
        far, plane, line, _ = images.stride()
        sizes = (len(inputs), self.image[0], *self.kernel, rows, columns)
        steps = (far, plane, y * line, x, down * line, right)
        return images.as_strided(sizes, steps).reshape(len(inputs), -1, self.count).mT

    def means(self, inputs: Tensor, weights: Weights) -> Tensor:
        """What the mean weights make of the patches: (examples, positions, rows)."""
        images = inputs.contiguous(memory_format=torch.channels_last)
        outputs = F.conv2d(images, weights.mean, None, self.stride, self.padding, self.dilation)
        return outputs.permute(0, 2, 3, 1).reshape(len(inputs), self.count, -1)

    def gram(self, inputs: Tensor, weights: Weights) -> Tensor:
        """X diag(v) X^T for the row v that all are multiples of: (examples, positions, positions),
        in double precision."""
        channels, height, width = self.image
        taps = self.kernel[0] * self.kernel[1]
        profile, even = weights.entry_variance, True
        if profile is not None:
            kernels = profile.reshape(channels, taps)
            profile, even = kernels[:, 0], bool((kernels == kernels[:, :1]).all())
        if not even or (height * width) ** 2 > self.count**2 * taps:
            return _products(self.patches(inputs), self.ordered(weights).entry_variance)
        # A tap of the kernel pairs two pixels, whose products serve all pairs of windows.
        pixels = inputs.permute(0, 2, 3, 1).reshape(len(inputs), -1, channels)
        sums = _products(pixels, profile).reshape(-1, height, width, height, width)
        for axis, (direction, outputs) in enumerate(
            zip(self._directions(), self.grid, strict=True)
        ):
            sums = _along_diagonals(sums, 1 + axis, outputs, direction)
        return sums.reshape(len(inputs), self.count, self.count)

    def inside(self, like: Tensor) -> Tensor | None:
        """(positions, entries): which entries are not zero in every example; None: all."""
        if self.padding == (0, 0):
            return None
        return self.patches(like.new_ones(1, *self.image))[0] > 0

    def _directions(self) -> list[tuple[int, ...]]:
        pairs = self.image[1:], self.kernel, self.stride, self.padding, self.dilation
        return list(zip(*pairs, strict=True))


Positions = Vectors | Windows


def _products(patches: Tensor, profile: Tensor | None) -> Tensor:
    exact = patches.double()
    if profile is not None:
        exact = exact * profile.double().sqrt()
    return torch.bmm(exact, exact.mT)


def _along_diagonals(
    products: Tensor, axis: int, outputs: int, direction: tuple[int, ...]
) -> Tensor:
    """Sum over the taps of one direction: what positions i and j of the outputs have in common.

    Both pixels of a pair, at ``axis`` and two axes further, are those under the same tap.
    """
    length, size, stride, padding, dilation = direction
    shape = list(products.shape)
    shape[axis] = shape[axis + 2] = outputs
    sums = products.new_zeros(shape)
    for tap in range(size):
        offset = tap * dilation - padding
        first = max(0, -(offset // stride))
        last = min(outputs - 1, (length - 1 - offset) // stride)
        if first > last:
            continue
        into, source = [slice(None)] * 5, [slice(None)] * 5
        into[axis] = into[axis + 2] = slice(first, last + 1)
        pixels = slice(first * stride + offset, last * stride + offset + 1, stride)
        source[axis] = source[axis + 2] = pixels
        sums[tuple(into)] += products[tuple(source)]
    return sums


def root_at(where: Positions, weights: Weights) -> _OneRoot | _RootForEachRow | None:
    """How to draw at the positions; None where drawing the weights costs less."""
    positions, rows, entries = where.count, len(weights.mean), weights.mean[0].numel()
    if weights.row_variance is not None:
        decomposed = positions * (rows * _PRODUCT + entries * _EXACT_PRODUCT)
        decomposed += positions**2 * _DECOMPOSITION
        return _OneRoot() if positions * (rows + decomposed) < rows * entries else None
    few = positions <= _FEW and positions * (positions + 1) <= entries
    return _RootForEachRow() if few else None


class _OneRoot:
    """Rows of variances v_o that are multiples of one v: all share the root of X diag(v) X^T."""

    def __call__(self, where: Positions, inputs: Tensor, weights: Weights) -> tuple[Tensor, ...]:
        """Square roots of covariances: tensors with a row for each example."""
        assert weights.row_variance is not None
        gram = where.gram(inputs, weights)
        largest = gram.diagonal(dim1=1, dim2=2).amax(dim=1)
        # A hair on the diagonal: equal or empty patches leave the matrix singular.
        gram.diagonal(dim1=1, dim2=2).add_((_ROUNDING * largest + 1e-300)[:, None])
        root, failed = torch.linalg.cholesky_ex(gram)
        if bool(failed.any()):
            values, vectors = torch.linalg.eigh(gram[failed > 0])
            root[failed > 0] = vectors * values.clamp_min(0).sqrt().unsqueeze(1)
        deviation = weights.row_variance.sqrt()
        return root.to(inputs.dtype), deviation.expand(len(inputs), 1, -1)

    def added(self, mean: Tensor, normal: Tensor, *roots: Tensor) -> Tensor:
        """Means (trials, positions, outputs) and the noise that normal numbers of the same shape
        make; both are used up."""
        root, deviation = roots
        return mean.baddbmm_(root, normal.mul_(deviation))


class _RootForEachRow:
    """A variance for each weight: the Cholesky factor of X diag(v_o) X^T for every row o."""

    def __call__(self, where: Positions, inputs: Tensor, weights: Weights) -> tuple[Tensor, ...]:
        exact = where.patches(inputs).double().permute(1, 2, 0).contiguous()
        variance = where.ordered(weights).variance.double()
        inside = where.inside(exact)
        columns: list[Tensor] = []
        for first in range(where.count):
            # With the positions from the first on, less what earlier ones explain.
            column = torch.stack(
                [
                    _covariance(variance, exact, inside, first, other)
                    for other in range(first, where.count)
                ],
                dim=1,
            )
            size = column[:, :1]
            for before, known in enumerate(columns):
                rest = known[:, first - before :]
                column = column - rest * rest[:, :1]
            pivot = column[:, :1]
            scale = pivot.clamp_min(1e-300).rsqrt() * (pivot > _ROUNDING * size)
            columns.append(column * scale)
        return tuple(column.permute(2, 1, 0).to(inputs.dtype) for column in columns)

    def added(self, mean: Tensor, normal: Tensor, *roots: Tensor) -> Tensor:
        for first, column in enumerate(roots):
            mean[:, first:].addcmul_(column, normal[:, first : first + 1])
        return mean


def _covariance(
    variance: Tensor, exact: Tensor, inside: Tensor | None, one: int, other: int
) -> Tensor:
    """Of two positions, for all rows and examples; entries outside the image add nothing."""
    if inside is None:
        return variance @ (exact[one] * exact[other])
    both = (inside[one] & inside[other]).nonzero().flatten()
    return variance[:, both] @ (exact[one, both] * exact[other, both])
