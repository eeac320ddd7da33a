"""From full tensors to the small sums that the solver works on."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.rescaling.assemble import Builder, Layout
from nonvacuous.rescaling.reading import Reading
from nonvacuous.rescaling.row_sums import Number, RowSummer
from nonvacuous.rescaling.terms import Term, Terms

if TYPE_CHECKING:
    from nonvacuous.networks.scale_groups import AxisScale, ScaleGroups

Key = TypeVar("Key", bound=Hashable)


def collapse(Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups) -> Terms:
    """The terms of the KL along the orbit of ``Q`` under ``groups``, relative to ``P``."""
    return collapse_reading(Reading.of(Q, P), groups)


def collapse_reading(reading: Reading, groups: ScaleGroups) -> Terms:
    """What :func:`collapse` returns, for tensors that have been looked at before."""
    device = reading.device
    layout = Layout.of(groups, device)
    counts, touched = np.zeros(groups.size), np.zeros(groups.size)
    summer = RowSummer(reading)
    terms: list[Term] = []
    # A GPU is not asked for these before everything is under way.
    asked: dict[tuple[str, str], Number] = {}
    for name in reading.tensors:
        scales = [scale for scale in groups.exponents[name] if _moves(scale, layout)]
        for scale in scales:
            _count(scale, layout, math.prod(reading.shapes[name]), counts, touched)
        axes = sorted({axis for scale in scales for axis in scale.axes})
        found = summer.sum(name, axes)
        builder = Builder(name, layout)
        builder.add(found.sums, axes, scales)
        terms += builder.terms
        asked[name, "low"], asked[name, "high"] = torch.aminmax(found.sums.squares)
        asked[name, "pinned"] = builder.constant
        asked[name, "pinned size"] = builder.constant_size
        asked[name, "prior squares"] = found.prior_squares
        asked[name, "log variances"] = found.log_variances
        asked[name, "log sizes"] = found.log_sizes
    told = _fetch(asked)
    for name in reading.tensors:
        low, high = told[name, "low"], told[name, "high"]
        if not (low > 0 and math.isfinite(high)):
            raise BadInput(
                f"tensor {name!r}: (scale^2 + mean^2) / prior_scale^2 leaves the range of float64 "
                f"({low:g} to {high:g}), so the best scale would lie at infinity; choose "
                "posterior and prior scales nearer to each other"
            )

    def each(*kinds: str) -> dict[str, float]:
        return {n: sum(told.get((n, kind), 0.0) for kind in kinds) for n in reading.shapes}

    return Terms(
        starts=tuple(group.start for group in groups.groups),
        sizes=tuple(group.size for group in groups.groups),
        terms=tuple(terms),
        counts=torch.from_numpy(counts).to(device),
        touched=torch.from_numpy(touched).to(device),
        weights={name: math.prod(shape) for name, shape in reading.shapes.items()},
        remainders=each("pinned", "prior squares"),
        log_variances=each("log variances"),
        constant_sizes=each("pinned size", "prior squares", "log sizes"),
        squares_range=(
            min(told[name, "low"] for name in reading.tensors),
            max(told[name, "high"] for name in reading.tensors),
        ),
    )


def _moves(scale: AxisScale, layout: Layout) -> bool:
    """Whether a scale can change anything: not pinned everywhere, not of power zero."""
    return scale.power != 0 and (
        layout.run(scale.index) is not None or int(np.max(scale.index)) >= 0
    )


def _count(
    scale: AxisScale, layout: Layout, weights: int, counts: np.ndarray, touched: np.ndarray
) -> None:
    """Add the weights that each channel touches through one scale."""
    repeats = float(weights // np.size(scale.index))
    run = layout.run(scale.index)
    if run is not None:
        counts[run] += scale.power * repeats
        touched[run] += abs(scale.power) * repeats
        return
    index = np.asarray(scale.index).reshape(-1)
    found = np.bincount(index[index >= 0], minlength=len(counts)) * repeats
    counts += scale.power * found
    touched += abs(scale.power) * found


def _fetch(asked: Mapping[Key, Number]) -> dict[Key, float]:
    """All numbers on the processor, with one transfer for those that are elsewhere."""
    waiting = [key for key, value in asked.items() if isinstance(value, Tensor)]
    found = torch.stack([torch.as_tensor(asked[key]) for key in waiting]).tolist()
    return {**asked, **dict(zip(waiting, found, strict=True))}  # type: ignore[dict-item]
