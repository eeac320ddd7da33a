"""What noisy weights add at several positions of one example, drawn at the positions.

A layer whose row o of weights has independent noise of variances v_o adds to the positions with
patches X (positions x entries) a Gaussian vector of covariance X diag(v_o) X^T. Its square root
times as many normal numbers as there are positions has the same law as the noise of all weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from nonvacuous.risk.layers import Weights

#: With variances of its own for each weight every row has a square root of its own, which pays for
#: few positions only.
_FEW = 4
#: A pivot below this part of its variance is rounding, in double precision.
_ROUNDING = 1e-12


class Root(Protocol):
    """Square roots of covariances, and how normal numbers become noise by them."""

    def __call__(self, patches: Tensor, weights: Weights) -> tuple[Tensor, ...]:
        """From patches (examples, positions, entries): tensors with a row for each example."""

    def added(self, mean: Tensor, normal: Tensor, *roots: Tensor) -> Tensor:
        """Means (trials, positions, outputs) and the noise that normal numbers of the same shape
        make; both are used up."""


def at_positions(positions: int, weights: Weights) -> Root | None:
    """How to draw at the positions; None where drawing the weights costs less."""
    entries = weights.mean[0].numel()
    if weights.row_variance is not None:
        return _OneRoot() if positions < entries else None
    few = positions <= _FEW and positions * (positions + 1) <= entries
    return _RootForEachRow() if few else None


class _OneRoot:
    """Rows of variances v_o that are multiples of one v: all share the root of X diag(v) X^T."""

    def __call__(self, patches: Tensor, weights: Weights) -> tuple[Tensor, ...]:
        assert weights.row_variance is not None
        exact = patches.double()
        if weights.entry_variance is not None:
            exact = exact * weights.entry_variance.double().sqrt()
        gram = torch.bmm(exact, exact.mT)
        largest = gram.diagonal(dim1=1, dim2=2).amax(dim=1)
        # A hair on the diagonal: equal or empty patches leave the matrix singular.
        gram.diagonal(dim1=1, dim2=2).add_((_ROUNDING * largest + 1e-300)[:, None])
        root, failed = torch.linalg.cholesky_ex(gram)
        if bool(failed.any()):
            values, vectors = torch.linalg.eigh(gram[failed > 0])
            root[failed > 0] = vectors * values.clamp_min(0).sqrt().unsqueeze(1)
        deviation = weights.row_variance.sqrt()
        return root.to(patches.dtype), deviation.expand(len(patches), 1, -1)

    def added(self, mean: Tensor, normal: Tensor, *roots: Tensor) -> Tensor:
        root, deviation = roots
        return mean.baddbmm_(root, normal.mul_(deviation))


class _RootForEachRow:
    """A variance for each weight: the Cholesky factor of X diag(v_o) X^T for every row o."""

    def __call__(self, patches: Tensor, weights: Weights) -> tuple[Tensor, ...]:
        examples, positions, entries = patches.shape
        exact = patches.double().permute(2, 1, 0)  # so that all products are one matrix
        later, earlier = torch.tril_indices(positions, positions, device=patches.device)
        products = exact[:, later] * exact[:, earlier]
        variance = weights.variance.reshape(-1, entries).double()
        covariance = (variance @ products.flatten(1)).reshape(-1, len(later), examples)
        columns: list[Tensor] = []
        for first in range(positions):
            # With the positions from the first on, less what earlier ones explain.
            column = covariance[:, (earlier == first).nonzero().flatten()]
            size = column[:, :1]
            for before, known in enumerate(columns):
                rest = known[:, first - before :]
                column = column - rest * rest[:, :1]
            pivot = column[:, :1]
            scale = pivot.clamp_min(1e-300).rsqrt() * (pivot > _ROUNDING * size)
            columns.append(column * scale)
        return tuple(column.permute(2, 1, 0).to(patches.dtype) for column in columns)

    def added(self, mean: Tensor, normal: Tensor, *roots: Tensor) -> Tensor:
        for first, column in enumerate(roots):
            mean[:, first:].addcmul_(column, normal[:, first : first + 1])
        return mean
