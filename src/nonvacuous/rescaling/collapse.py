"""From full tensors to the small sums that the solver works on.

Every tensor is read once, in chunks that fit a cache. Sums run in float64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.rescaling.assemble import Builder, Layout, Sums
from nonvacuous.rescaling.reading import Reading
from nonvacuous.rescaling.terms import Term, Terms

if TYPE_CHECKING:
    from nonvacuous.networks.scale_groups import AxisScale, ScaleGroups


def collapse(Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups) -> Terms:
    """The terms of the KL along the orbit of ``Q`` under ``groups``, relative to ``P``."""
    return collapse_reading(Reading.of(Q, P), groups)


def collapse_reading(reading: Reading, groups: ScaleGroups) -> Terms:
    """What :func:`collapse` returns, for tensors that have been looked at before."""
    device = reading.device
    layout = Layout.of(groups, device)
    counts, touched = np.zeros(groups.size), np.zeros(groups.size)
    terms: list[Term] = []
    checks: list[Tensor] = []
    for name, shape in reading.shapes.items():
        if name not in reading.tensors:
            continue
        scales = _moving(groups.exponents[name])
        for scale in scales:
            index = np.asarray(scale.index).reshape(-1)
            repeats = math.prod(shape) // index.size
            found = np.bincount(index[index >= 0], minlength=groups.size) * float(repeats)
            counts += scale.power * found
            touched += abs(scale.power) * found
        axes = sorted({axis for scale in scales for axis in scale.axes})
        sums, prior_squares, log_variances = _reduce(reading, name, axes)
        builder = Builder(name, layout)
        builder.add(sums, axes, scales)
        terms += builder.terms
        constants = [prior_squares + builder.constant, log_variances]
        checks.append(torch.stack([*torch.aminmax(sums.squares), *constants]))
    # One transfer for all tensors: a GPU is not asked before everything is under way.
    rows = dict(zip(reading.tensors, torch.stack(checks).cpu().numpy(), strict=True))
    for name, (low, high, *_) in rows.items():
        if not (low > 0 and math.isfinite(high)):
            raise BadInput(
                f"tensor {name!r}: (scale^2 + mean^2) / prior_scale^2 leaves the range of float64 "
                f"({low:g} to {high:g}), so the best scale would lie at infinity; choose "
                "posterior and prior scales nearer to each other"
            )
    return Terms(
        starts=tuple(group.start for group in groups.groups),
        sizes=tuple(group.size for group in groups.groups),
        terms=tuple(terms),
        counts=torch.from_numpy(counts).to(device),
        touched=torch.from_numpy(touched).to(device),
        weights={name: math.prod(shape) for name, shape in reading.shapes.items()},
        remainders={n: float(rows[n][2]) if n in rows else 0.0 for n in reading.shapes},
        log_variances={n: float(rows[n][3]) if n in rows else 0.0 for n in reading.shapes},
    )


def _moving(exponents: tuple[AxisScale, ...]) -> list[AxisScale]:
    """The scales that can change anything: not pinned everywhere, not of power zero."""
    return [s for s in exponents if s.power != 0 and bool((np.asarray(s.index) >= 0).any())]


def _reduce(reading: Reading, name: str, axes: list[int]) -> tuple[Sums, Tensor, Tensor]:
    """Squares and products summed over every axis but ``axes``, then two sums over all weights:
    that of the squared prior means, in prior scales, and that of the log-variances."""
    shape, device = reading.shapes[name], reading.device
    kept = [shape[axis] for axis in axes]
    squares = torch.zeros(kept, dtype=torch.float64, device=device)
    products = None if reading.centered[name] else torch.zeros_like(squares)
    prior_squares, log_variances = torch.zeros(2, dtype=torch.float64, device=device).unbind()
    summed = [axis for axis in range(len(shape)) if axis not in axes]
    lead = 0 in axes  # chunks run along the first axis
    for part, given in reading.chunks(name, axis=0):
        inverse = given.prior_scale.reciprocal()
        mean = given.mean * inverse
        target = part if lead else ...
        if products is not None:
            prior_mean = given.prior_mean * inverse
            products[target] += _sum_over(mean * prior_mean, summed)
            repeats = mean.numel() / prior_mean.numel()
            prior_squares = prior_squares + prior_mean.square().sum() * repeats
        variance = (given.scale * inverse).square()
        # A scale that is the same for all weights stands for all of them.
        repeats = mean.numel() / variance.numel()
        log_variances = log_variances + variance.log().sum() * repeats
        squares[target] += _sum_over(mean.square_().add_(variance), summed)
    return Sums(squares, products), prior_squares, log_variances


def _sum_over(values: Tensor, axes: list[int]) -> Tensor:
    return values.sum(axes) if axes else values
