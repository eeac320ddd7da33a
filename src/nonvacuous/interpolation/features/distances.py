"""Squared distances between points that have more coordinates than memory can hold.

Squared distances add up over coordinates. So features are made some at a time, standardized,
counted into the distances and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from nonvacuous.errors import BadInput


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Within this block float32 products on a GPU may round their factors to eleven bits.

    Features stay a fixed function of the image, which is all that is asked of them. Where the
    factors have eleven bits to begin with (float16), products are exact.
    """
    switch = torch.backends.cuda.matmul
    before = switch.allow_tf32
    switch.allow_tf32 = True
    try:
        yield
    finally:
        switch.allow_tf32 = before


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Subtracts means and divides by standard deviations; a constant feature becomes zero.

    varying   features that are not constant
    """

    means: Tensor
    factors: Tensor
    varying: int

    def __call__(self, features: Tensor) -> Tensor:
        return (features - self.means) * self.factors


def standardizer(features: Tensor) -> Standardizer:
    """The statistics of (points, features)."""
    means = features.mean(0)
    deviations = (features - means).square().mean(0).sqrt()
    size = features.abs().amax(0)
    # Rounding gives a constant feature a tiny deviation; dividing by it would make noise of it.
    constant = deviations <= 1e-6 * size
    factors = torch.where(constant, 0.0, 1 / deviations.clamp(min=1e-30))
    return Standardizer(means, factors, int((~constant).sum()))


_ROWS = 8192


def accumulate_distances(chunks: Iterable[Tensor], *, train: int) -> tuple[Tensor, Tensor, int]:
    """Distances among the first ``train`` points, and of all others to them; float32.

    chunks   (points, some features) each: training points first, then the others. Each feature is
             standardized over the training points and rounded to float16: the distances are those
             of the rounded features, exactly but for float32 sums
    Returns both matrices and the number of features; constant features count as none.
    """
    among: Tensor | None = None
    across: Tensor | None = None
    norms: Tensor | None = None
    counted = 0
    for chunk in chunks:
        standardize = standardizer(chunk[:train])
        features = standardize(chunk).half().float()
        counted += standardize.varying
        if among is None or across is None or norms is None:
            others = len(features) - train
            among = torch.zeros(train, train, device=features.device)
            across = torch.zeros(others, train, device=features.device)
            norms = torch.zeros(len(features), dtype=torch.float64, device=features.device)
        norms += features.square().sum(1, dtype=torch.float64)
        with tensor_cores():
            base = features[:train].T
            for target, rows in ((among, features[:train]), (across, features[train:])):
                for start in range(0, len(rows), _ROWS):
                    part = rows[start : start + _ROWS]
                    target[start : start + _ROWS].addmm_(part, base, alpha=-2)
    if among is None or across is None or norms is None:
        raise BadInput("no features were given; at least one chunk of them is needed")
    for target, rows in ((among, norms[:train]), (across, norms[train:])):
        for start in range(0, len(target), _ROWS):
            part = target[start : start + _ROWS]
            part += (rows[start : start + _ROWS, None] + norms[:train]).float()
            part.clamp_(min=0)
    _make_symmetric(among)
    among.fill_diagonal_(0)
    return among, across, counted


def _make_symmetric(matrix: Tensor) -> None:
    """Let the lower triangle decide: sums of float32 may differ in their last bit across it."""
    for start in range(0, len(matrix), _ROWS):
        rows = slice(start, start + _ROWS)
        corner = matrix[rows, rows]
        matrix[rows, rows] = corner.tril() + corner.tril(-1).T
        for left in range(0, start, _ROWS):
            columns = slice(left, left + _ROWS)
            matrix[columns, rows] = matrix[rows, columns].T
