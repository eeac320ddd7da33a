"""Theorem A: the paper's way, one set of good noise for all inputs, with explicit constants.

Statement and proof: docs/theory/sparsity.md, 4. No noise is drawn: the loss is computed from the
network without noise, with thresholds three and four times those of the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nonvacuous.bounds.sparsity import (
    block_noise_quantile,
    choice_nats,
    derandomized,
    integer_nats,
    row_noise_quantile,
)
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.constants import Charge, chosen_among, reference, scalar
from nonvacuous.sparsity.judging import vacuous
from nonvacuous.sparsity.noise import Inputs, clean_pass, pair_margins
from nonvacuous.sparsity.norms import frobenius_norm, row_norm, spectral_norm
from nonvacuous.sparsity.setting import ESCAPES, FIRST_SCALE, kl_nats, total_nats
from nonvacuous.sparsity.weights import Layers

_SAFE = 1.0 + 1e-9
#: What rounding can do to a pre-activation or score, relative to row norm times input norm: where
#: terms cancel, the result itself is no measure of it.
_ROOM = 1e-11


@dataclass(frozen=True)
class UniformSetting:
    """Choices of Theorem A.

    inactive   s_k: how many units (blocks) of each hidden layer are asked to stay inactive
    first      the first layer's relative noise level is 2^(first/4)
    steps      log2 of the ratio of the other levels to the layer before, times 4
    escape     position in ESCAPES
    """

    inactive: tuple[int, ...]
    first: int
    steps: tuple[int, ...]
    escape: int

    @property
    def escape_probability(self) -> float:
        return ESCAPES[self.escape]

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Relative noise levels."""
        total, levels = self.first, [2.0 ** (self.first / 4.0)]
        for step in self.steps:
            total += step
            levels.append(2.0 ** (total / 4.0))
        return tuple(levels)


@dataclass(frozen=True)
class UniformConstants:
    """Grid values: xi per layer, nu per hidden layer, with their charges."""

    xi: tuple[float, ...]
    nu: tuple[float, ...]
    charges: tuple[Charge, ...]


class UniformEvaluator:
    """Theorem A for one network and prior.

    With ``block`` above 1 the units of hidden layers are counted in blocks of so many neighbors,
    which are inactive as a whole (docs/theory/sparsity.md, 4b).
    """

    def __init__(
        self,
        layers: Layers,
        prior: Layers,
        *,
        sparse: bool,
        choices: int = 1,
        device: torch.device | str = "cpu",
        block: int = 1,
    ) -> None:
        self.layers, self.sparse, self.block = layers, sparse, block
        _check_block(layers, block)
        self.groups = tuple(width // block for width in layers.widths)
        self.on_device, self.device = layers.to(device), torch.device(device)
        self._shared = chosen_among(choices)
        self.distances = layers.squared_distances(prior)
        self._matrices = _augmented(layers)
        self._known = _augmented(reference(prior))
        # Whatever is inactive, these stay the same, and they cost most.
        self._spectral = [
            (spectral_norm(mine), spectral_norm(theirs))
            for mine, theirs in zip(self._matrices[:-1], self._known[:-1], strict=True)
        ]
        self._constants: dict[tuple[int, ...], UniformConstants] = {}

    def constants(self, inactive: tuple[int, ...]) -> UniformConstants:
        """Norms of the network for these numbers of inactive units, rounded up on the grid."""
        if inactive not in self._constants:
            self._constants[inactive] = self._round(inactive)
        return self._constants[inactive]

    def scales(self, setting: UniformSetting) -> tuple[float, ...]:
        """sigma_k: the largest noise whose sparse norms stay within the levels."""
        used, share = self.constants(setting.inactive), self._share(setting)
        active = self._active(setting.inactive)
        scales = []
        for k, epsilon in enumerate(setting.epsilons):
            rows, columns = self._matrices[k].shape
            size, inputs = self._block(k), active[k]
            row = row_noise_quantile(
                rows=rows, columns=columns // size, active=inputs, failure=share, block=size
            )
            scale = epsilon * used.xi[k] / row
            if k < self.layers.hidden:
                block = block_noise_quantile(
                    rows=self.groups[k],
                    active_rows=self.groups[k] - setting.inactive[k],
                    columns=columns // size,
                    active_columns=inputs,
                    failure=share,
                    blocks=(self.block, size),
                )
                scale = min(scale, epsilon * used.nu[k] / block)
            scales.append(scale * (1.0 - 1e-12))
        return tuple(scales)

    def kl(self, setting: UniformSetting) -> float:
        return kl_nats(self.distances, self.scales(setting))

    def charges(self, setting: UniformSetting) -> tuple[Charge, ...]:
        """Every choice inside the loss, by name."""
        lines = [
            Charge(
                "noise level of layer 1", f"2^({setting.first}/4)", choice_nats(len(FIRST_SCALE))
            )
        ]
        for layer, step in enumerate(setting.steps, start=2):
            text = f"2^({step}/4) times layer {layer - 1}'s"
            lines.append(Charge(f"noise level of layer {layer}", text, integer_nats(step)))
        text = f"{setting.escape_probability:g}"
        lines.append(Charge("escape probability", text, choice_nats(len(ESCAPES))))
        if self.sparse:
            for layer, (count, width) in enumerate(
                zip(setting.inactive, self.groups, strict=True), start=1
            ):
                if count not in range(width):
                    raise BadInput(
                        f"{count} inactive units are asked of layer {layer}, which has {width}; at "
                        f"most {width - 1} are among the choices that are paid for"
                    )
                lines.append(
                    Charge(f"inactive units of layer {layer}", str(count), choice_nats(width))
                )
        return (*self._shared, *lines, *self.constants(setting.inactive).charges)

    def failures(self, setting: UniformSetting, inputs: Inputs) -> Tensor:
        """True where the network itself fails level (3, 4), so that noise may fail level (2, 2)."""
        before, scores = clean_pass(self.on_device, inputs)
        return self.judged(setting, inputs, before, scores)[0]

    def judged(
        self, setting: UniformSetting, inputs: Inputs, before: Sequence[Tensor], scores: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The failures, the threshold of the margin and the margin."""
        used, gammas = self.constants(setting.inactive), growths(setting.epsilons)
        size = inputs.norms
        failed = torch.zeros_like(inputs.labels, dtype=torch.bool)
        for k, z in enumerate(before):
            if setting.inactive[k]:
                level = (3.0 * _SAFE * gammas[k] + _ROOM) * used.xi[k] * size
                highest = self.grouped(z)
                failed |= (highest <= -level[:, None]).sum(1) < setting.inactive[k]
            size = used.nu[k] * size
            if self.layers.biases[k + 1] is not None:
                size = (size.square() + 1.0).sqrt()
        level = 4.0 * _SAFE * gammas[-1] * used.xi[-1] * size
        margin = pair_margins(scores, inputs.labels).amin(1)
        room = 2.0 * _ROOM * used.xi[-1] * size
        return failed | ~(margin > level + room), level, margin

    def grouped(self, values: Tensor) -> Tensor:
        """The largest entry of every block: a block is inactive where all of it is."""
        return values if self.block == 1 else values.unflatten(1, (-1, self.block)).amax(2)

    def _block(self, layer: int) -> int:
        """How many inputs of a layer are counted as one; those of the first have no blocks."""
        return self.block if layer else 1

    def _share(self, setting: UniformSetting) -> float:
        return setting.escape_probability / (2 * self.layers.hidden + 1)

    def _active(self, inactive: tuple[int, ...]) -> list[int]:
        """How many (blocks of) inputs of each layer may be active, the constant included."""
        return [
            matrix.shape[1] // self._block(k) - spared
            for k, (matrix, spared) in enumerate(zip(self._matrices, (0, *inactive), strict=True))
        ]

    def _round(self, inactive: tuple[int, ...]) -> UniformConstants:
        xi, nu, charges = [], [], []
        for k, inputs in enumerate(self._active(inactive)):
            name = self.layers.names[k]
            mine, theirs = self._matrices[k], self._known[k]
            value, line = scalar(
                f"row norm of layer {name}",
                row_norm(mine, columns=inputs, block=self._block(k)),
                row_norm(theirs, columns=inputs, block=self._block(k)),
            )
            xi.append(value)
            charges.append(line)
            if k < self.layers.hidden:
                rows, blocks = self.groups[k] - inactive[k], (self.block, self._block(k))
                # For one row or one column the second is exact.
                own, known = (
                    min(norm, frobenius_norm(matrix, rows=rows, columns=inputs, blocks=blocks))
                    for norm, matrix in zip(self._spectral[k], (mine, theirs), strict=True)
                )
                value, line = scalar(f"norm of layer {name}", own, known)
                nu.append(value)
                charges.append(line)
        return UniformConstants(tuple(xi), tuple(nu), tuple(charges))


def _check_block(layers: Layers, block: int) -> None:
    if block > 1 and any(bias is not None for bias in layers.biases):
        raise BadInput("blocks of units need a network without biases; leave them out, or block=1")
    if any(width % block for width in layers.widths):
        raise BadInput(
            f"blocks of {block} units do not divide hidden layers of {layers.widths} units; choose "
            "a size that does"
        )


def _augmented(layers: Layers) -> list[Tensor]:
    """The matrices with the bias as one more column, for the constant input."""
    return [
        matrix if bias is None else torch.cat([matrix, bias[:, None]], dim=1)
        for matrix, bias in zip(layers.weights, layers.biases, strict=True)
    ]


def growths(epsilons: Sequence[float]) -> tuple[float, ...]:
    """gamma_k = product of (1 + epsilon) up to layer k, minus one."""
    total, result = 0.0, []
    for epsilon in epsilons:
        total += math.log1p(epsilon)
        result.append(math.expm1(total))
    return tuple(result)


# Searching for the setting of Theorem A; like every search, free in the PAC-Bayes part.

_STRIDES = (8, 4, 2, 1)
_ROUNDS = 8
#: Share of the examples that may have fewer inactive units than the search starts from.
_QUANTILE = 0.01


def search_uniform(
    evaluator: UniformEvaluator,
    inputs: Inputs,
    *,
    failure: float,
    subset: int,
    seed: int,
    progress: Progress | None = None,
) -> UniformSetting:
    """The setting of Theorem A with the smallest estimated bound, coordinate by coordinate.

    With sparsity at least one unit of every hidden layer is asked to stay inactive; without, none.
    """
    device = inputs.first.device
    generator = torch.Generator(device).manual_seed(derived_seed(seed, "search"))
    order = torch.randperm(len(inputs), generator=generator, device=device)
    part = inputs.part(order[:subset])
    before, scores = clean_pass(evaluator.on_device, part)
    seen: dict[UniformSetting, float] = {}
    reporter = Reporter(progress, "search")

    def value(setting: UniformSetting) -> float:
        if setting in seen:
            return seen[setting]
        complexity = evaluator.kl(setting) / len(inputs)
        failed, _, _ = evaluator.judged(setting, part, before, scores)
        escape, share = setting.escape_probability, float(failed.double().mean())
        bound = derandomized(
            loss_upper=min(1.0, escape + (1.0 - escape) * share),
            escape=escape,
            kl_nats=min(evaluator.kl(setting), 1e9),
            grid_nats=total_nats(evaluator.charges(setting)),
            examples=len(inputs),
            failure=failure,
        )
        seen[setting] = bound if bound < 1.0 else vacuous(share, complexity)
        reporter.report(len(seen), len(seen) + 1, f"{len(seen)} settings tried")
        return seen[setting]

    inactive = tuple(
        max(1, int(torch.quantile((evaluator.grouped(z) < 0).sum(1).double(), _QUANTILE)))
        if evaluator.sparse
        else 0
        for z in before
    )
    inactive = tuple(min(s, w - 1) for s, w in zip(inactive, evaluator.groups, strict=True))
    steps = (0,) * evaluator.layers.hidden
    starts = [UniformSetting(inactive, first, steps, 4) for first in range(-48, 1, 6)]
    if evaluator.sparse:
        fewest = tuple(min(1, count - 1) for count in evaluator.groups)
        starts += [UniformSetting(fewest, first, steps, 4) for first in range(-48, 1, 6)]
    best = min(starts, key=value)
    for stride in _STRIDES:
        for _ in range(_ROUNDS):
            previous = best
            for axis in range(2 * evaluator.layers.hidden + 2):
                for direction in (stride, -stride):
                    moved = _moved(best, axis, direction, evaluator)
                    while moved is not None and value(moved) < value(best):
                        best = moved
                        moved = _moved(best, axis, direction, evaluator)
            if best == previous:
                break
    reporter.report(1, 1, "setting found", always=True)
    return best


def _moved(
    setting: UniformSetting, axis: int, stride: int, evaluator: UniformEvaluator
) -> UniformSetting | None:
    hidden = evaluator.layers.hidden
    if axis == 0:
        first = setting.first + stride
        return replace(setting, first=first) if first in FIRST_SCALE else None
    if axis <= hidden:
        steps = list(setting.steps)
        steps[axis - 1] += stride
        if axis < hidden:
            steps[axis] -= stride
        return replace(setting, steps=tuple(steps))
    if axis == hidden + 1:
        escape = setting.escape + (1 if stride > 0 else -1)
        return replace(setting, escape=escape) if 0 <= escape < len(ESCAPES) else None
    if not evaluator.sparse:
        return None
    layer = axis - hidden - 2
    count = setting.inactive[layer] + stride
    if not 1 <= count < evaluator.groups[layer]:
        return None
    return replace(
        setting, inactive=(*setting.inactive[:layer], count, *setting.inactive[layer + 1 :])
    )
