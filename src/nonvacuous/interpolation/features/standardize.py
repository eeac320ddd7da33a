"""Mean zero and unit variance for every feature, by the statistics of the training points."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
