"""Passes over the examples: what every unit does, and how far from zero it does it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from nonvacuous.progress import Progress, Reporter
from nonvacuous.risk.losses import class_margins
from nonvacuous.sparsity import conv_norms, radii
from nonvacuous.sparsity.conv_chain import ConvChain, Stage
from nonvacuous.sparsity.findings import SHARES, AtEpsilon, LayerActivity, LayerAtEpsilon
from nonvacuous.sparsity.radii import LayerStability, LocalScales, NormTables, PlainChain
from nonvacuous.sparsity.weights import Layers

#: Numbers held at once for one layer: 32 MiB of float64.
_NUMBERS = 2**22
SeenT = TypeVar("SeenT")


class Choice(NamedTuple):
    """The greedy choice at one epsilon for every example, and how stable the units are.

    ratio   the effective activity ratio; None for convolutions, which have none
    """

    epsilon: float
    sparsity: tuple[Tensor, ...]
    ratio: Tensor | None
    stability: tuple[LayerStability, ...]


class Measured(NamedTuple):
    """What one pass has seen of the network's own units.

    norms      length of every input, the constant included
    margins    score of the label minus the best other score, for every example
    active     for each hidden layer, how many units are active on each example
    pieces     for each hidden layer, on how many examples of each piece each unit is active
    """

    norms: Tensor
    margins: Tensor
    active: tuple[Tensor, ...]
    pieces: tuple[Tensor, ...]
    choices: tuple[Choice, ...]

    @staticmethod
    def of(
        norms: Tensor, scores: Tensor, labels: Tensor, hidden: Sequence[Tensor], choices: Any
    ) -> Measured:
        """On some examples; pre-activations of the hidden layers are (examples, units)."""
        margins = class_margins(scores, labels.to(scores.device))
        on = [values > 0 for values in hidden]
        active = tuple(each.sum(1).cpu() for each in on)
        pieces = tuple(each.sum(0, keepdim=True).cpu() for each in on)
        return Measured(norms.cpu(), margins.cpu(), active, pieces, tuple(choices))

    @property
    def lit(self) -> tuple[Tensor, ...]:
        """For each hidden layer, on how many examples each unit is active."""
        return tuple(layer.sum(0) for layer in self.pieces)

    @property
    def errors(self) -> int:
        return int((self.margins <= 0).sum())


def together(parts: Sequence[SeenT]) -> SeenT:
    """What was seen in all pieces of the examples, in the form that a single piece has."""
    pieces, whole = cast(Any, parts), parts[0]
    if isinstance(whole, Tensor):
        return cast(SeenT, torch.cat(pieces))
    if not isinstance(whole, tuple):
        return whole
    joined = map(together, zip(*pieces, strict=True))
    return cast(SeenT, type(whole)(*joined) if hasattr(whole, "_fields") else tuple(joined))


def measure(
    network: Layers,
    inputs: Tensor,
    labels: Tensor,
    *,
    epsilons: Sequence[float],
    level: float,
    progress: Progress | None = None,
) -> Measured:
    """One forward pass in float64, chunk by chunk."""
    chain, parts = PlainChain.of(network), []
    tables = NormTables.of(chain.weights)
    for rows in _chunks(len(inputs), chain.widest, "activity", progress):
        values = chain.inputs(inputs[rows])
        hidden, outputs = radii.forward(chain.weights, values)
        own, norms = [chain.units(layer) for layer in hidden], values.norm(dim=1)
        choices = []
        for epsilon in epsilons:
            greedy = radii.greedy_sparsity(tables, hidden, norms, epsilon=epsilon, level=level)
            kept = tuple(map(LayerStability.of, own, greedy.thresholds))
            choices.append(Choice(epsilon, greedy.sparsity, greedy.ratio, kept))
        parts.append(Measured.of(norms, outputs, labels[rows], own, choices))
    return together(parts)


def measure_radii(
    chain: PlainChain, inputs: Tensor, scales: LocalScales, *, progress: Progress | None = None
) -> tuple[Tensor, ...]:
    chunks = _chunks(len(inputs), chain.widest, "radii", progress)
    hidden = (radii.forward(chain.weights, chain.inputs(inputs[rows]))[0] for rows in chunks)
    return together([radii.local_radii(values, scales) for values in hidden])


def _chunks(examples: int, widest: int, phase: str, progress: Progress | None) -> Iterator[slice]:
    reporter, size = Reporter(progress, phase), max(1, _NUMBERS // widest)
    for start in range(0, examples, size):
        rows = slice(start, min(start + size, examples))
        yield rows
        reporter.report(rows.stop, examples, f"{rows.stop:,} of {examples:,} examples")


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
    """Upper bounds for one hidden layer, without and with its bias (a weight on a ``constant``)."""

    kernel: float
    kernel_bias: float
    whole: float
    whole_bias: float
    pool: float
    constant: float = 0.0

    @staticmethod
    def of(stage: Stage) -> StageNorms:
        layer = stage.layer
        kernel, whole = conv_norms.unit_norm(layer), conv_norms.conv_norm(layer, stage.before).value
        pool = conv_norms.pool_norm(stage.pool, stage.middle)
        if layer.bias is None or not bool((layer.bias != 0).any()):
            return StageNorms(kernel, kernel, whole, whole, pool)
        squares = layer.matrix.square().sum(1) + layer.bias.square()
        longest = math.sqrt(float(squares.max())) * _ROUNDING
        shift = stage.positions * float(layer.bias.square().sum())
        everywhere = math.sqrt(whole**2 + shift) * _ROUNDING
        return StageNorms(kernel, longest, whole, everywhere, pool, constant=1.0)


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
    norms = [StageNorms.of(stage) for stage in hidden]
    parts, widest = [], max(stage.units for stage in chain.stages)
    for rows in _chunks(len(inputs), widest, "activity", progress):
        images = chain.images(inputs[rows])
        *befores, scores = chain.values(images)
        layers = zip(hidden, befores, strict=True)
        read = [stage.pool(before.clamp(min=0)) for stage, before in layers]
        own = [before.flatten(1) for before in befores]
        choices = []
        for epsilon in epsilons:
            moved = movements(hidden, norms, [images, *read[:-1]], epsilon=epsilon)
            limits = [level * limit for limit in moved]
            pairs = zip(own, limits, strict=True)
            sparsity = tuple((values <= -limit).sum(1).cpu() for values, limit in pairs)
            kept = tuple(map(LayerStability.of, own, limits))
            choices.append(Choice(epsilon, sparsity, None, kept))
        lengths = images.flatten(1).norm(dim=1)
        parts.append(Measured.of(lengths, scores, labels[rows], own, choices))
    return together(parts)


def movements(
    hidden: Sequence[Stage], norms: Sequence[StageNorms], seen: Sequence[Tensor], *, epsilon: float
) -> list[Tensor]:
    """How far each unit of each hidden layer can move, (examples, units).

    seen   what each hidden layer reads in the network as it is
    """
    moved = seen[0].new_zeros(len(seen[0]))
    limits = []
    for stage, norm, images in zip(hidden, norms, seen, strict=True):
        # The squared length of what every position reads, (examples, positions).
        ones = images.new_ones(1, 1, *stage.layer.weight.shape[2:])
        sums = replace(stage.layer, weight=ones, bias=None)(images.square().sum(1, keepdim=True))
        patches = sums.flatten(1).add(norm.constant).sqrt() * _ROUNDING
        unit = norm.kernel * moved[:, None] + epsilon * norm.kernel_bias * (
            patches + moved[:, None]
        )
        limits.append(unit.repeat(1, stage.middle[0]))
        length = images.flatten(1).square().sum(1).add(norm.constant).sqrt() * _ROUNDING
        shift = norm.whole * moved + epsilon * norm.whole_bias * (length + moved)
        moved = norm.pool * shift * _ROUNDING
    return limits


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
    layers = [
        LayerAtEpsilon(
            name=name,
            mean=float(sparsity.double().mean()),
            smallest=int(sparsity.min()),
            sparsity=quantiles(sparsity),
            **stability.shares(),
            kinds=stability.kinds(),
        )
        for name, sparsity, stability in zip(names, choice.sparsity, choice.stability, strict=True)
    ]
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
