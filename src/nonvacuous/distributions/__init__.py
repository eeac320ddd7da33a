"""Distributions over the weights of a network: posteriors, priors, and what lies between them."""

from __future__ import annotations

from nonvacuous.distributions import priors
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.distributions.priors import Prior

__all__ = ["DiagonalGaussian", "Prior", "ScaleGrid", "priors"]
