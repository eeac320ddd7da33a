"""Passes over the examples: what every unit does, and how far from zero it does it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.sparsity.comparisons import PlainChain
from nonvacuous.sparsity.conv_chain import ConvChain, Stage
from nonvacuous.sparsity.conv_norms import conv_norm, pool_norm, unit_norm
from nonvacuous.sparsity.findings import SHARES, AtEpsilon, LayerActivity, LayerAtEpsilon
from nonvacuous.sparsity.radii import (
    LayerStability,
    LocalScales,
    NormTables,
    StabilityCount,
    forward,
    greedy_sparsity,
    local_radii,
)

#: Numbers held at once for one layer: 32 MiB of float64.
_NUMBERS = 2**22


@dataclass(frozen=True, eq=False)
class Choice:
    """The greedy choice at one epsilon for every example, and how stable the units are.

    ratio   the effective activity ratio; None for convolutions, which have none
    """

    epsilon: float
    sparsity: tuple[Tensor, ...]
    ratio: Tensor | None
    stability: tuple[LayerStability, ...]


@dataclass(frozen=True, eq=False)
class Measured:
    """What one pass has seen of the network's own units.

    norms      length of every input, the constant included
    margins    score of the label minus the best other score, for every example
    active     for each hidden layer, how many units are active on each example
    lit        for each hidden layer, on how many examples each unit is active
    """

    norms: Tensor
    margins: Tensor
    active: tuple[Tensor, ...]
    lit: tuple[Tensor, ...]
    choices: tuple[Choice, ...]

    @property
    def errors(self) -> int:
        return int((self.margins <= 0).sum())


def measure(
    chain: PlainChain,
    inputs: Tensor,
    labels: Tensor,
    *,
    epsilons: Sequence[float],
    level: float,
    progress: Progress | None = None,
) -> Measured:
    """One forward pass in float64, chunk by chunk."""
    tables = NormTables.of(chain.weights)
    counts = [StabilityCount() for _ in epsilons]
    parts: list[dict[str, Tensor]] = []
    hidden_layers = range(len(chain.weights) - 1)
    for rows, values in _chunks(chain, inputs, "activity", progress):
        hidden, outputs = forward(chain.weights, values)
        own = [chain.units(layer) for layer in hidden]
        part = {"norms": values.norm(dim=1), "margins": _margins(outputs, labels[rows])}
        for k in hidden_layers:
            part[f"active {k}"] = (own[k] > 0).sum(1)
            part[f"lit {k}"] = (own[k] > 0).sum(0)[None]
        for number, epsilon in enumerate(epsilons):
            greedy = greedy_sparsity(tables, hidden, part["norms"], epsilon=epsilon, level=level)
            counts[number].add(own, greedy.thresholds)
            part[f"ratio {number}"] = greedy.ratio
            for k in hidden_layers:
                part[f"sparsity {number} {k}"] = greedy.sparsity[k]
        parts.append(part)
    return _together(parts, counts, epsilons)


def _together(
    parts: Sequence[dict[str, Tensor]], counts: Sequence[StabilityCount], epsilons: Sequence[float]
) -> Measured:
    """What was seen in all chunks of the examples."""
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    layers = range(sum(name.startswith("lit") for name in whole))
    return Measured(
        norms=whole["norms"],
        margins=whole["margins"],
        active=tuple(whole[f"active {k}"] for k in layers),
        lit=tuple(whole[f"lit {k}"].sum(0) for k in layers),
        choices=tuple(
            Choice(
                epsilon,
                tuple(whole[f"sparsity {number} {k}"] for k in layers),
                whole.get(f"ratio {number}"),
                counts[number].result(),
            )
            for number, epsilon in enumerate(epsilons)
        ),
    )


def measure_radii(
    chain: PlainChain, inputs: Tensor, scales: LocalScales, *, progress: Progress | None = None
) -> tuple[Tensor, ...]:
    parts: list[tuple[Tensor, ...]] = []
    for _, values in _chunks(chain, inputs, "radii", progress):
        hidden, _ = forward(chain.weights, values)
        parts.append(local_radii(hidden, scales))
    return tuple(torch.cat(layer) for layer in zip(*parts, strict=True))


def check_alive(measured: Measured, names: Sequence[str]) -> None:
    """Refuse a layer in which nothing is ever active: the network is constant then."""
    for name, lit in zip(names, measured.lit, strict=False):
        if not bool(lit.any()):
            raise BadInput(
                f"layer {name} is dead: none of its {len(lit)} units is active on any of the "
                f"{len(measured.norms):,} examples, so every input gets the same scores. Train the "
                "network again, with a smaller learning rate or another seed."
            )


def _chunks(
    chain: PlainChain, inputs: Tensor, phase: str, progress: Progress | None
) -> Iterator[tuple[slice, Tensor]]:
    widest = max(max(weight.shape) for weight in chain.weights)
    size = max(1, _NUMBERS // widest)
    reporter = Reporter(progress, phase)
    for start in range(0, len(inputs), size):
        rows = slice(start, min(start + size, len(inputs)))
        yield rows, chain.inputs(inputs[rows])
        reporter.report(rows.stop, len(inputs), f"{rows.stop:,} of {len(inputs):,} examples")


def _margins(outputs: Tensor, labels: Tensor) -> Tensor:
    columns = labels.to(outputs.device)[:, None]
    own = outputs.gather(1, columns)[:, 0]
    return own - outputs.scatter(1, columns, -torch.inf).amax(1)


# One pass over the examples: what every unit of a convolutional chain does, and how firmly.
#
# Let every kernel, with its bias, move by at most epsilon times the longest one, and every layer
# as a map of images by at most epsilon times its norm. If the layer's input moves by at most m, a
# unit at position p then moves by at most
#
#     rho m + epsilon rho' (|patch_p| + m),
#
# rho and rho' the longest kernel without and with its bias, and the layer's output, pooling
# included, by at most pi (nu m + epsilon nu' (|x| + m)), nu and nu' its norm and pi that of the
# pooling. A unit farther from zero keeps its sign. Nothing but the network's own activations
# enters.

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
            pairs = list(zip(own, limits, strict=True))
            settled = [torch.where(limit > 0, values, -1.0) for values, limit in pairs]
            counts[number].add(settled, limits)
            for k, (values, limit) in enumerate(pairs):
                part[f"sparsity {number} {k}"] = (values <= -limit).sum(1)
        parts.append({name: value.cpu() for name, value in part.items()})
        reporter.report(rows.stop, len(inputs), f"{rows.stop:,} of {len(inputs):,} examples")
    return _together(parts, counts, epsilons)


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


# What was measured on all examples, as the few numbers that a study writes down.


def activity(names: Sequence[str], measured: Measured) -> tuple[LayerActivity, ...]:
    examples = len(measured.norms)
    return tuple(
        LayerActivity(
            name=name,
            units=len(lit),
            mean=float(active.double().mean()),
            active=quantiles(active),
            never=int((lit == 0).sum()),
            always=int((lit == examples).sum()),
        )
        for name, active, lit in zip(names, measured.active, measured.lit, strict=True)
    )


def at_epsilon(names: Sequence[str], choice: Choice) -> AtEpsilon:
    layers = []
    for name, sparsity, stability in zip(names, choice.sparsity, choice.stability, strict=True):
        active, inactive, unstable = stability.shares()
        layers.append(
            LayerAtEpsilon(
                name=name,
                mean=float(sparsity.double().mean()),
                smallest=int(sparsity.min()),
                sparsity=quantiles(sparsity),
                active=active,
                inactive=inactive,
                unstable=unstable,
                kinds=stability.kinds(),
            )
        )
    return AtEpsilon(
        epsilon=choice.epsilon,
        mean_ratio=None if choice.ratio is None else float(choice.ratio.mean()),
        ratio=() if choice.ratio is None else quantiles(choice.ratio),
        layers=tuple(layers),
    )


def quantiles(values: Tensor) -> tuple[float, ...]:
    """The values at SHARES of the examples."""
    if bool(values.isinf().all()):
        return (math.inf,) * len(SHARES)
    return tuple(float(v) for v in np.quantile(values.double().numpy(), SHARES))
