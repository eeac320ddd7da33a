"""How far noise moves the mean of what a ReLU and the pooling after it compute.

Given means m_i of pre-activations whose noise is Lipschitz, the mean of the pooled value lies above
the pooled value of the means by at most what is computed here (docs/theory/sparsity.md, lemma 10).
A unit, or a maximum, that the noise cannot change costs nothing.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from scipy.special import ndtri
from torch import Tensor
from torch.nn import functional

from nonvacuous.sparsity.conv_chain import Stage
from nonvacuous.sparsity.conv_noise import window_positions

_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)
KINK = 1.0 / _ROOT_TWO_PI * (1.0 + 1e-12)
_TINY = 1e-280


def kinks(distance: Tensor) -> Tensor:
    """psi of every entry, rounded up as in bounds.sparsity.kink."""
    density = torch.exp(-0.5 * distance.square()) / _ROOT_TWO_PI
    tail = 0.5 * torch.special.erfc(distance / math.sqrt(2.0))
    return (density - distance * tail).clamp(min=0) + 1e-12 * density


@lru_cache(maxsize=64)
def maximum_shift(window: int) -> float:
    """At least E max(0, F_1, ..., F_w) for centered 1-Lipschitz functions of normal noise.

    >>> round(maximum_shift(1), 4), round(maximum_shift(4), 4)
    (0.3989, 1.2711)
    """
    if window <= 2:
        return window * KINK
    level = -float(ndtri(1.0 / window))
    return window * math.exp(-0.5 * level * level) / _ROOT_TWO_PI * (1.0 + 1e-9)


def mean_shifts(
    stage: Stage,
    values: Tensor | None,
    reach: Tensor,
    moved: Tensor,
    apart: Tensor | None,
) -> Tensor:
    """Shifts of the pooled units, (examples, channels * pooled positions).

    values   noisy pre-activations (examples, channels, positions); None where no use is to be
             made of how far units are from changing
    reach    Lipschitz constant of a unit in the noise, (examples, positions)
    moved    how far the mean may be from the value, (examples, positions)
    apart    Lipschitz constant of differences within windows; None: the sum of both units'
    """
    reach = reach.clamp(min=_TINY)
    if stage.pool.kind == "max":
        shifts = _maximum(stage, values, reach, moved, apart)
    elif values is None:
        shifts = (KINK * reach)[:, None].expand(-1, stage.middle[0], -1)
    else:
        excess = (values.abs() - (moved * (1.0 + 1e-9))[:, None]).clamp(min=0)
        shifts = reach[:, None] * kinks(excess / reach[:, None])
    if stage.pool.kind == "average":
        shifts = stage.pool(shifts.reshape(-1, *stage.middle))
    return shifts.flatten(1)


def _maximum(
    stage: Stage, values: Tensor | None, reach: Tensor, moved: Tensor, apart: Tensor | None
) -> Tensor:
    windows = window_positions(stage)
    size = len(windows)
    near = reach[:, windows]
    most = maximum_shift(size) * near.amax(1)[:, None]
    if values is None:
        return most.expand(-1, stage.middle[0], -1)
    if apart is None:
        apart = near[:, :, None] + near[:, None]
    # The constant 0 of the ReLU stands beside the units of the window, and never moves.
    spans = functional.pad(apart, (0, 0, 0, 1, 0, 1))
    spans[:, size, :size] = near
    spans[:, :size, size] = near
    spans = spans.clamp(min=_TINY)
    room = functional.pad((moved * (1.0 + 1e-9))[:, windows], (0, 0, 0, 1))[:, None]
    around = functional.pad(values[:, :, windows], (0, 0, 0, 1))
    low, high = around - room, around + room
    least = low.amax(2)
    found = torch.zeros_like(least)
    for best in range(size + 1):
        # If this is the largest mean, every other must overtake it.
        total = torch.zeros_like(least)
        for other in range(size + 1):
            if other != best:
                span = spans[:, best, other][:, None]
                gap = (low[:, :, best] - high[:, :, other]).clamp(min=0)
                total = total + span * kinks(gap / span)
        found = torch.where(high[:, :, best] >= least, torch.maximum(found, total), found)
    return torch.minimum(found, most)
