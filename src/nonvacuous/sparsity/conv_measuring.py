"""One pass over the examples: what every unit of a convolutional chain does, and how firmly.

Let every kernel, with its bias, move by at most epsilon times the longest one, and every layer as a
map of images by at most epsilon times its norm. If the layer's input moves by at most m, a unit at
position p then moves by at most

    rho m + epsilon rho' (|patch_p| + m),

rho and rho' the longest kernel without and with its bias, and the layer's output, pooling included,
by at most pi (nu m + epsilon nu' (|x| + m)), nu and nu' its norm and pi that of the pooling. A unit
farther from zero keeps its sign. Nothing but the network's own activations enters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from nonvacuous.progress import Progress, Reporter
from nonvacuous.sparsity.conv_chain import ConvChain, Stage
from nonvacuous.sparsity.conv_norms import conv_norm, pool_norm, unit_norm
from nonvacuous.sparsity.measuring import Choice, Measured
from nonvacuous.sparsity.stability import StabilityCount

#: Numbers held at once for one layer: 32 MiB of float64.
_NUMBERS = 2**22
#: More than rounding can do to a norm.
_ROUNDING = 1.0 + 1e-9


@dataclass(frozen=True)
class StageNorms:
    """Upper bounds for one hidden layer, without and with its bias (a weight on a constant)."""

    kernel: float
    kernel_bias: float
    whole: float
    whole_bias: float
    pool: float

    @staticmethod
    def of(stage: Stage) -> StageNorms:
        layer = stage.layer
        kernel, whole = unit_norm(layer), conv_norm(layer, stage.before).value
        longest, everywhere = kernel, whole
        if has_bias(stage) and layer.bias is not None:
            squares = layer.matrix.square().sum(1) + layer.bias.square()
            longest = math.sqrt(float(squares.max())) * _ROUNDING
            shift = stage.positions * float(layer.bias.square().sum())
            everywhere = math.sqrt(whole**2 + shift) * _ROUNDING
        return StageNorms(kernel, longest, whole, everywhere, pool_norm(stage.pool, stage.middle))


def has_bias(stage: Stage) -> bool:
    """Whether the layer has a bias that is not zero."""
    return stage.layer.bias is not None and bool((stage.layer.bias != 0).any())


def measure_conv(
    chain: ConvChain,
    inputs: Tensor,
    labels: Tensor,
    *,
    epsilons: Sequence[float],
    level: float,
    progress: Progress | None = None,
) -> Measured:
    """One forward pass in float64, chunk by chunk; norms are those of the inputs alone.

    level   how many times the distance above a unit must be away from zero to count
    """
    hidden = chain.stages[:-1]
    norms = [StageNorms.of(stage) for stage in hidden] if epsilons else []
    counts = [StabilityCount() for _ in epsilons]
    parts: list[dict[str, Tensor]] = []
    size = max(1, _NUMBERS // max(stage.units for stage in chain.stages))
    reporter = Reporter(progress, "activity")
    for start in range(0, len(inputs), size):
        rows = slice(start, min(start + size, len(inputs)))
        images = chain.images(inputs[rows])
        part = {"norms": images.flatten(1).norm(dim=1)}
        seen, befores = _forward(chain, images)
        part["margins"] = _margins(befores[-1], labels[rows].to(images.device))
        own = [before.flatten(1) for before in befores[:-1]]
        for k, values in enumerate(own):
            part[f"active {k}"] = (values > 0).sum(1)
            part[f"lit {k}"] = (values > 0).sum(0)[None]
        for number, epsilon in enumerate(epsilons):
            limits = [level * limit for limit in movements(hidden, norms, seen, epsilon=epsilon)]
            # A unit that reads nothing but zeros and has no bias stays at zero: it is off.
            settled = [
                torch.where(limit > 0, values, -1.0)
                for values, limit in zip(own, limits, strict=True)
            ]
            counts[number].add(settled, limits)
            for k, (values, limit) in enumerate(zip(own, limits, strict=True)):
                part[f"sparsity {number} {k}"] = (values <= -limit).sum(1)
        parts.append({name: value.cpu() for name, value in part.items()})
        reporter.report(rows.stop, len(inputs), f"{rows.stop:,} of {len(inputs):,} examples")
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return Measured(
        norms=whole["norms"],
        margins=whole["margins"],
        active=tuple(whole[f"active {k}"] for k in range(len(hidden))),
        lit=tuple(whole[f"lit {k}"].sum(0) for k in range(len(hidden))),
        choices=tuple(
            Choice(
                epsilon,
                tuple(whole[f"sparsity {number} {k}"] for k in range(len(hidden))),
                None,
                counts[number].result(),
            )
            for number, epsilon in enumerate(epsilons)
        ),
    )


def movements(
    hidden: Sequence[Stage], norms: Sequence[StageNorms], seen: Sequence[Tensor], *, epsilon: float
) -> list[Tensor]:
    """How far each unit of each hidden layer can move, (examples, units).

    seen   what each hidden layer reads in the network as it is
    """
    moved = seen[0].new_zeros(len(seen[0]))
    limits = []
    for stage, norm, images in zip(hidden, norms, seen, strict=True):
        constant = float(has_bias(stage))
        patches = _patch_squares(stage, images).add(constant).sqrt() * _ROUNDING
        unit = norm.kernel * moved[:, None] + epsilon * norm.kernel_bias * (
            patches + moved[:, None]
        )
        limits.append(unit.repeat(1, stage.middle[0]))
        length = images.flatten(1).square().sum(1).add(constant).sqrt() * _ROUNDING
        shift = norm.whole * moved + epsilon * norm.whole_bias * (length + moved)
        moved = norm.pool * shift * _ROUNDING
    return limits


def _patch_squares(stage: Stage, images: Tensor) -> Tensor:
    """The squared length of what every position reads, (examples, positions)."""
    layer = stage.layer
    ones = images.new_ones(1, 1, *layer.weight.shape[2:])
    squares = images.square().sum(1, keepdim=True)
    return functional.conv2d(
        squares, ones, None, layer.stride, layer.padding, layer.dilation
    ).flatten(1)


def _forward(chain: ConvChain, images: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """What each hidden layer reads, and the pre-activations of every layer, the scores last."""
    seen, befores = [], []
    for stage in chain.stages[:-1]:
        seen.append(images)
        befores.append(stage.layer(images))
        images = stage.pool(befores[-1].clamp(min=0))
    befores.append(chain.stages[-1].layer(images).flatten(1))
    return seen, befores


def _margins(scores: Tensor, labels: Tensor) -> Tensor:
    places = labels[:, None]
    own = scores.gather(1, places)[:, 0]
    return own - scores.scatter(1, places, -torch.inf).amax(1)
