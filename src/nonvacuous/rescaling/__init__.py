"""Rescaling: the same function with other weights, at a smaller complexity."""

from __future__ import annotations

from nonvacuous.rescaling.prior_scales import PriorScaling, rescale_with_prior_scales
from nonvacuous.rescaling.solver import Rescaling, kl_along_orbit, push, rescale

__all__ = [
    "PriorScaling",
    "Rescaling",
    "kl_along_orbit",
    "push",
    "rescale",
    "rescale_with_prior_scales",
]
