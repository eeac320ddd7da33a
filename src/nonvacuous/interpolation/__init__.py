"""Exact interpolation with kernels at full size, and the linear case where all can be seen."""

from __future__ import annotations

from nonvacuous.interpolation.kernels import (
    KERNELS,
    Kernel,
    gaussian,
    kernel_of,
    laplace,
    linear,
    median_squared_distance,
    polynomial,
)
from nonvacuous.interpolation.plan import Limits, Plan, make_plan
from nonvacuous.interpolation.solve import Interpolant, interpolate, interpolate_distances, one_hot

__all__ = [
    "KERNELS",
    "Interpolant",
    "Kernel",
    "Limits",
    "Plan",
    "gaussian",
    "interpolate",
    "interpolate_distances",
    "kernel_of",
    "laplace",
    "linear",
    "make_plan",
    "median_squared_distance",
    "one_hot",
    "polynomial",
]
