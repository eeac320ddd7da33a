"""Logarithms of matrix norms, so that a product over a hundred layers cannot overflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

LogNorm = Callable[[Tensor], float]


def _scaled(norm: Callable[[Tensor], Tensor]) -> LogNorm:
    """ln of a norm, taken of the matrix divided by its largest entry so that nothing overflows."""

    def logarithm(matrix: Tensor) -> float:
        largest = float(matrix.abs().max())
        if largest == 0.0:
            return -math.inf
        return math.log(largest) + math.log(float(norm(matrix / largest)))

    return logarithm


def _spectral(matrix: Tensor) -> Tensor:
    # The largest eigenvalue of the smaller Gram matrix is as exact as that of the matrix, and far
    # cheaper for wide layers.
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return torch.linalg.eigvalsh(gram)[-1].sqrt()


log_frobenius = _scaled(lambda matrix: matrix.square().sum().sqrt())
log_spectral = _scaled(_spectral)
#: The largest sum of absolute values of a row.
log_one_infinity = _scaled(lambda matrix: matrix.abs().sum(1).max())
#: The sum over rows of the length of the row.
log_two_one = _scaled(lambda matrix: matrix.square().sum(1).sqrt().sum())

#: name -> (logarithm of the norm, how it is written, source)
NORMS: dict[str, tuple[LogNorm, str, str]] = {
    "frobenius": (log_frobenius, "‖W‖_F", "Neyshabur, Tomioka and Srebro (2015)"),
    "spectral": (log_spectral, "‖W‖₂", "Bartlett, Foster and Telgarsky (2017)"),
    "one-infinity": (
        log_one_infinity,
        "max over rows of ‖row‖₁",
        "Bartlett (1998); Neyshabur, Tomioka and Srebro (2015)",
    ),
    "two-one": (log_two_one, "Σ over rows of ‖row‖₂", "Bartlett, Foster and Telgarsky (2017)"),
}


def log_product(log_norm: LogNorm, matrices: Sequence[Tensor]) -> float:
    """ln of the product of the norms; minus infinity where one is 0."""
    return math.fsum(map(log_norm, matrices))
