"""Rescaling: the same function with other weights, at a smaller complexity."""

from __future__ import annotations

from nonvacuous.rescaling.orbit import kl_along_orbit, push
from nonvacuous.rescaling.prior_grids import EndlessGrid
from nonvacuous.rescaling.prior_scales import PriorScaling, rescale_with_prior_scales
from nonvacuous.rescaling.solver import Rescaling, rescale

__all__ = [
    "EndlessGrid",
    "PriorScaling",
    "Rescaling",
    "kl_along_orbit",
    "push",
    "rescale",
    "rescale_with_prior_scales",
]
