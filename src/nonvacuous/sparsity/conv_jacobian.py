"""How much the margin moves with a layer's noise, where it is known which units are active.

On the event that no pre-activation strays far, stable units may be replaced by linear ones, and the
network between a layer's noise and the margin is linear but for the units that may change. The
gradient is computed with the prior's weights; what the network's own weights and the uncertain
units can add is carried along as a radius (docs/theory/sparsity.md, 10).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from scipy.special import ndtri
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_input

from nonvacuous.sparsity.conv_chain import ConvChain, Stage
from nonvacuous.sparsity.noise import window_positions
from nonvacuous.sparsity.thresholds import KINK, kinks


@dataclass(frozen=True, eq=False)
class Pattern:
    """What is known about the units of one hidden layer.

    slopes   without max pooling: 1 for a unit that is surely active, 0 for one that surely is not,
             1/2 for the others, (examples, channels, positions)
    winners  with max pooling: the position that surely wins each window, or one past the last
             where the constant 0 does, (examples, channels, windows)
    unsure   which units (or windows) are not known
    """

    slopes: Tensor | None
    winners: Tensor | None
    unsure: Tensor


@dataclass(frozen=True, eq=False)
class ConvBounds:
    """Numbers of the network that stand inside the loss, never below the truth.

    spectral   per hidden layer its operator norm; 0 for the first, which needs none
    rows       per hidden layer the largest norm of a kernel; 0 for the first
    distance   per hidden layer the operator norm of its distance from the prior; 0 for the first
    pools      per hidden layer the Lipschitz constant of its pooling: architecture, not chosen
    drift      at least |(w_y - w_c) - (the prior's)| for all pairs of classes
    """

    spectral: tuple[float, ...]
    rows: tuple[float, ...]
    distance: tuple[float, ...]
    pools: tuple[float, ...]
    drift: float

    def step(self, layer: int) -> float:
        """How much the pooled output of a layer moves per unit of movement of its input."""
        return self.spectral[layer] * self.pools[layer]

    def onward(self, layer: int, end: int) -> float:
        """From pre-activations of ``layer`` to the pooled output of layer ``end``."""
        return math.prod(map(self.step, range(layer + 1, end + 1)), start=self.pools[layer])


def pattern(stage: Stage, values: Tensor, away: Tensor) -> Pattern:
    """Read off what is sure if every pre-activation is within ``away`` of its value."""
    room = (away * (1.0 + 1e-9))[:, None]
    if stage.pool.kind != "max":
        # A unit that nothing can move is sure even at its kink, so equality is enough.
        sure = values.abs() >= room
        slopes = torch.where(sure, (values > 0).to(values.dtype), 0.5)
        return Pattern(slopes, None, ~sure)
    windows = window_positions(stage)
    around = functional.pad(values[:, :, windows], (0, 0, 0, 1))
    spare = functional.pad(room[:, :, windows], (0, 0, 0, 1))
    low, high = around - spare, around + spare
    best = low.argmax(2, keepdim=True)
    rest = high.scatter(2, best, -torch.inf).amax(2)
    unsure = ~(low.gather(2, best)[:, :, 0] >= rest)
    past = torch.full_like(windows[:1], stage.positions)
    spots = torch.cat([windows, past]).expand(*best.shape[:2], -1, -1)
    return Pattern(None, spots.gather(2, best)[:, :, 0], unsure)


def slopes_of_margins(
    chain: ConvChain,
    patterns: Sequence[Pattern],
    patches: Sequence[Tensor],
    starts: Tensor,
    growth: ConvBounds | None,
) -> tuple[list[Tensor], list[Tensor]]:
    """For each hidden layer: the norm of the gradient in its kernels, and the radius around it.

    The norm includes what the layer's own unsure units can add, the radius what comes from the
    layers behind it.

    chain     whose weights are used (the prior)
    patches   what the noise of each layer meets, (examples, entries, positions)
    starts    the gradient at the output layer's input, (examples, pairs, units)
    growth    None: no radius is asked for

    Both lists hold (examples, pairs); the radius belongs to the gradient in the pre-activations.
    """
    sizes: list[Tensor] = []
    radii: list[Tensor] = []
    gradient = starts
    radius = torch.full_like(starts[:, :, 0], 0.0 if growth is None else growth.drift)
    for index in range(chain.hidden - 1, -1, -1):
        stage = chain.stages[index]
        lipschitz = 1.0 if growth is None else growth.pools[index]
        gradient, unsure = _through(stage, patterns[index], gradient)
        radius = lipschitz * radius
        size = _met(gradient, patches[index]) + _met(unsure, _largest(stage, patches[index]))
        sizes.append(size * (1.0 + 1e-9))
        radii.append(radius * (1.0 + 1e-9))
        lost = unsure.square().sum((2, 3)).sqrt()
        radius = radius + lost * (lipschitz if stage.pool.kind == "max" else 1.0)
        if index and growth is not None:
            moved = growth.distance[index] * gradient.square().sum((2, 3)).sqrt()
            radius = growth.spectral[index] * radius + moved
        if index:
            gradient = _backward(stage, gradient)
    return sizes[::-1], radii[::-1]


def _through(stage: Stage, known: Pattern, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """From the pooled units to the pre-activations; and the size of what is not known of it,
    for each unit or, with max pooling, for each window.
    """
    shape = (*gradient.shape[:2], stage.middle[0], -1)
    values = gradient.reshape(shape)
    if known.winners is not None:
        unsure = known.unsure[:, None]
        lost = (values * unsure).abs()
        slots = values.new_zeros(*values.shape[:3], stage.positions + 1)
        targets = known.winners[:, None].expand_as(values)
        slots.scatter_add_(3, targets, values.masked_fill(unsure, 0.0))
        return slots[..., :-1], lost
    if stage.pool.kind == "average":
        values = values @ stage.averages.to(values.device)
    assert known.slopes is not None
    lost = 0.5 * (values * known.unsure[:, None]).abs()
    return values * known.slopes[:, None], lost


def _met(gradient: Tensor, patches: Tensor) -> Tensor:
    """Norm over all kernels of what a gradient in the pre-activations is in the kernels."""
    kernels = gradient.flatten(1, 2) @ patches.mT
    return kernels.reshape(*gradient.shape[:3], -1).square().sum((2, 3)).sqrt()


def _largest(stage: Stage, patches: Tensor) -> Tensor:
    """Entry by entry the largest size in a patch, or in any patch of a window."""
    size = patches.abs()
    return size[:, :, window_positions(stage)].amax(2) if stage.pool.kind == "max" else size


def _backward(stage: Stage, gradient: Tensor) -> Tensor:
    """From pre-activations to the layer's input: the transposed convolution."""
    layer = stage.layer
    images = gradient.reshape(-1, *stage.middle)
    # A kernel as large as the image is a matrix, unless padding shifts the image under it.
    if stage.before == tuple(layer.weight.shape[1:]) and layer.padding == (0, 0):
        gradients = images.flatten(1) @ layer.matrix
    else:
        shape, ways = (len(images), *stage.before), (layer.stride, layer.padding, layer.dilation)
        gradients = conv2d_input(shape, layer.weight, images, *ways)
    return gradients.reshape(*gradient.shape[:2], -1)


# How far noise moves the mean of what a ReLU and the pooling after it compute.
#
# Given means m_i of pre-activations whose noise is Lipschitz, the mean of the pooled value lies
# above the pooled value of the means by at most what is computed here (docs/theory/sparsity.md,
# lemma 10). A unit, or a maximum, that the noise cannot change costs nothing.

_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)
_TINY = 1e-280


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
    largest = torch.zeros_like(least)
    for best in range(size + 1):
        # If this is the largest mean, every other must overtake it.
        total = torch.zeros_like(least)
        for other in range(size + 1):
            if other != best:
                span = spans[:, best, other][:, None]
                gap = (low[:, :, best] - high[:, :, other]).clamp(min=0)
                total = total + span * kinks(gap / span)
        largest = torch.where(high[:, :, best] >= least, torch.maximum(largest, total), largest)
    return torch.minimum(largest, most)
