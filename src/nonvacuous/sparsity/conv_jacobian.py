"""How much the margin moves with a layer's noise, where it is known which units are active.

On the event that no pre-activation strays far, stable units may be replaced by linear ones, and the
network between a layer's noise and the margin is linear but for the units that may change. The
gradient is computed with the prior's weights; what the network's own weights and the uncertain
units can add is carried along as a radius (docs/theory/sparsity.md, 10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nonvacuous.sparsity.conv_chain import ConvChain, Pool, Stage
from nonvacuous.sparsity.conv_noise import window_positions


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
class Growth:
    """Constants of the network that the radius needs, per hidden layer; see conv_theorem.

    spectral, distance   None for the first layer, which needs neither
    """

    spectral: Sequence[float | None]
    distance: Sequence[float | None]
    pools: Sequence[float]
    drift: float


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
    places = torch.cat([windows, past]).expand(*best.shape[:2], -1, -1)
    return Pattern(None, places.gather(2, best)[:, :, 0], unsure)


def slopes_of_margins(
    chain: ConvChain,
    patterns: Sequence[Pattern],
    patches: Sequence[Tensor],
    starts: Tensor,
    growth: Growth | None,
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
            spectral, distance = growth.spectral[index], growth.distance[index]
            assert spectral is not None and distance is not None
            radius = spectral * radius + distance * gradient.square().sum((2, 3)).sqrt()
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
        slots = torch.zeros(
            *values.shape[:3], stage.positions + 1, dtype=values.dtype, device=values.device
        )
        places = known.winners[:, None].expand_as(values)
        slots.scatter_add_(3, places, values.masked_fill(unsure, 0.0))
        return slots[..., :-1], lost
    if stage.pool.kind == "average":
        values = values @ pool_matrix(stage.pool, stage).to(values.device)
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


def pool_matrix(pool: Pool, stage: Stage) -> Tensor:
    """The matrix (pooled positions, positions) of an average pooling."""
    units = torch.eye(stage.positions, dtype=torch.float64)
    return pool(units.reshape(-1, 1, *stage.middle[1:])).flatten(1).T.contiguous()


def _backward(stage: Stage, gradient: Tensor) -> Tensor:
    """From pre-activations to the layer's input: the transposed convolution."""
    layer = stage.layer
    images = gradient.reshape(-1, *stage.middle)
    # A kernel as large as the image is a matrix, unless padding shifts the image under it.
    if stage.before == tuple(layer.weight.shape[1:]) and layer.padding == (0, 0):
        found = images.flatten(1) @ layer.matrix
        return found.reshape(*gradient.shape[:2], -1)
    missing = [
        stage.before[1 + i]
        - (stage.middle[1 + i] - 1) * layer.stride[i]
        + 2 * layer.padding[i]
        - layer.reach[i]
        for i in (0, 1)
    ]
    found = functional.conv_transpose2d(
        images,
        layer.weight,
        None,
        layer.stride,
        layer.padding,
        (missing[0], missing[1]),
        1,
        layer.dilation,
    )
    return found.reshape(*gradient.shape[:2], -1)
