"""Theorem A: the paper's way, one set of good noise for all inputs, with explicit constants.

Statement and proof: docs/theory/sparsity.md, 4. No noise is drawn: the loss is computed from the
network without noise, with thresholds three and four times those of the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from nonvacuous.bounds.sparsity import block_noise_quantile, row_noise_quantile
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.constants import Charge, Ledger, scalar
from nonvacuous.sparsity.judging import Judge, Judged, Move, close, descend, vacuous
from nonvacuous.sparsity.noise import Inputs, NoisyPass, clean_pass, pair_margins
from nonvacuous.sparsity.norms import frobenius_norm, row_norm, spectral_norm
from nonvacuous.sparsity.setting import SparseSettings, UniformSetting
from nonvacuous.sparsity.weights import Layers

_SAFE = 1.0 + 1e-9
#: What rounding can do to a pre-activation or score, relative to row norm times input norm: where
#: terms cancel, the result itself is no measure of it.
_ROOM = 1e-11
_STRIDES = (8, 4, 2, 1)
_ROUNDS = 8
#: Examples on which settings are compared, unless the caller says otherwise.
_SUBSET = 3000
#: Share of the examples that may have fewer inactive units than the search starts from.
_QUANTILE = 0.01


@dataclass(frozen=True)
class UniformConstants:
    """Grid values: xi per layer, nu per hidden layer, with their charges."""

    xi: tuple[float, ...]
    nu: tuple[float, ...]
    charges: tuple[Charge, ...]


class UniformEvaluator(Judge[UniformSetting]):
    """Theorem A for one network and prior.

    With ``block`` above 1 the units of hidden layers are counted in blocks of so many neighbors,
    which are inactive as a whole (docs/theory/sparsity.md, 4b).
    """

    sampled = False

    def __init__(
        self, layers: Layers, prior: Layers, asked: SparseSettings, device: torch.device
    ) -> None:
        self.layers, self.block = layers, asked.block
        self._check_block()
        super().__init__(layers, prior, asked, device)
        self.groups = tuple(width // self.block for width in layers.widths)
        self._matrices = layers.augmented
        self._known = prior.reference().augmented
        # Whatever is inactive, these stay the same, and they cost most.
        self._spectral = [
            (spectral_norm(mine), spectral_norm(theirs))
            for mine, theirs in zip(self._matrices[:-1], self._known[:-1], strict=True)
        ]
        self.constants = cache(self._round)

    def scales(self, setting: UniformSetting) -> tuple[float, ...]:
        """sigma_k: the largest noise whose sparse norms stay within the levels."""
        used = self.constants(setting.inactive)
        share = setting.escape_probability / (2 * self.layers.hidden + 1)
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

    def details(self, setting: UniformSetting) -> dict[str, Any]:
        return {
            "inactive": list(setting.inactive),
            "epsilons": list(setting.epsilons),
            **({} if self.block == 1 else {"block": self.block}),
        }

    def charges(self, setting: UniformSetting) -> tuple[Charge, ...]:
        own = setting.charges(sparse=self.sparse, groups=self.groups)
        return (*self._shared, *own, *self.constants(setting.inactive).charges)

    def fresh_passes(
        self, setting: UniformSetting, inputs: Inputs, *, passes: int, seed: int
    ) -> Iterator[tuple[Inputs, NoisyPass]]:
        """Nothing is random: the network itself, once."""
        yield inputs, clean_pass(self.network, inputs)

    def loss_upper(self, setting: UniformSetting, errors: int, trials: int) -> float:
        """On examples that meet the conditions, noise gives a loss with the escape probability."""
        escape = setting.escape_probability
        return min(1.0, (escape + (1.0 - escape) * errors / trials) * (1.0 + 1e-12))

    def judged(
        self, setting: UniformSetting, inputs: Inputs, noisy: NoisyPass | None = None
    ) -> Judged:
        """The failures, the threshold of the margin and the margin.

        The network itself, whose pass ``noisy`` is, fails level (3, 4), so that noise may fail
        level (2, 2).
        """
        clean = noisy or clean_pass(self.network, inputs)
        used, gammas = self.constants(setting.inactive), growths(setting.epsilons)
        size = inputs.norms
        failed = torch.zeros_like(inputs.labels, dtype=torch.bool)
        for k, z in enumerate(clean.before):
            if setting.inactive[k]:
                level = (3.0 * _SAFE * gammas[k] + _ROOM) * used.xi[k] * size
                highest = self.grouped(z)
                failed |= (highest <= -level[:, None]).sum(1) < setting.inactive[k]
            size = used.nu[k] * size
            if self.layers.biases[k + 1] is not None:
                size = (size.square() + 1.0).sqrt()
        level = 4.0 * _SAFE * gammas[-1] * used.xi[-1] * size
        margin = pair_margins(clean.scores, inputs.labels).amin(1)
        room = 2.0 * _ROOM * used.xi[-1] * size
        return failed | ~(margin > level + room), level, margin, close(level, margin)

    def search(self, inputs: Inputs, *, seed: int, progress: Progress | None) -> UniformSetting:
        """Coordinate by coordinate; like every search, free in the PAC-Bayes part.

        With sparsity at least one unit of every hidden layer is asked to stay inactive; without,
        none.
        """
        device, groups = inputs.first.device, self.groups
        generator = torch.Generator(device).manual_seed(derived_seed(seed, "search"))
        order = torch.randperm(len(inputs), generator=generator, device=device)
        part = inputs.part(order[: self.asked.subset or _SUBSET])
        clean = clean_pass(self.network, part)

        def objective(setting: UniformSetting) -> float:
            failed = self.judged(setting, part, clean)[0]
            escape, share = setting.escape_probability, float(failed.double().mean())
            upper = min(1.0, escape + (1.0 - escape) * share)
            bound = self.bound(setting, upper, examples=len(inputs))
            return bound if bound < 1.0 else vacuous(share, self.kl(setting) / len(inputs))

        asked = [(0,) * len(groups)]
        kind = UniformSetting
        later = [partial(kind.one_scale, layer=k + 1) for k in range(len(groups))]
        moves: list[Move[UniformSetting]] = [kind.all_scales, *later, kind.other_escape]
        if self.sparse:
            quiet = ((self.grouped(z) < 0).sum(1).double() for z in clean.before)
            most = (max(1, int(torch.quantile(counts, _QUANTILE))) for counts in quiet)
            asked = [
                tuple(min(count, width - 1) for count, width in zip(most, groups, strict=True)),
                tuple(min(1, width - 1) for width in groups),
            ]
            moves += [
                partial(kind.other_inactive, layer=layer, width=width)
                for layer, width in enumerate(groups)
            ]
        steps, firsts = (0,) * len(groups), range(-48, 1, 6)
        starts = [kind(each, first, steps, 4) for each in asked for first in firsts]
        return descend(
            starts, objective, moves, rounds=_ROUNDS, progress=progress, strides=_STRIDES
        )

    def grouped(self, values: Tensor) -> Tensor:
        """The largest entry of every block: a block is inactive where all of it is."""
        return values if self.block == 1 else values.unflatten(1, (-1, self.block)).amax(2)

    def _check_block(self) -> None:
        if self.block > 1 and any(bias is not None for bias in self.layers.biases):
            raise BadInput(
                "blocks of units need a network without biases; leave them out, or block=1"
            )
        if any(width % self.block for width in self.layers.widths):
            raise BadInput(
                f"blocks of {self.block} units do not divide hidden layers of {self.layers.widths} "
                "units; choose a size that does"
            )

    def _block(self, layer: int) -> int:
        """How many inputs of a layer are counted as one; those of the first have no blocks."""
        return self.block if layer else 1

    def _active(self, inactive: tuple[int, ...]) -> list[int]:
        """How many (blocks of) inputs of each layer may be active, the constant included."""
        return [
            matrix.shape[1] // self._block(k) - spared
            for k, (matrix, spared) in enumerate(zip(self._matrices, (0, *inactive), strict=True))
        ]

    def _round(self, inactive: tuple[int, ...]) -> UniformConstants:
        """Norms of the network for these numbers of inactive units, rounded up on the grid."""
        xi, nu, ledger = [], [], Ledger()
        for k, inputs in enumerate(self._active(inactive)):
            name = self.layers.names[k]
            mine, theirs = self._matrices[k], self._known[k]
            own, known = (
                row_norm(matrix, columns=inputs, block=self._block(k)) for matrix in (mine, theirs)
            )
            xi.append(ledger.paid(scalar(f"row norm of layer {name}", own, known)))
            if k < self.layers.hidden:
                rows, blocks = self.groups[k] - inactive[k], (self.block, self._block(k))
                # For one row or one column the second is exact.
                own, known = (
                    min(norm, frobenius_norm(matrix, rows=rows, columns=inputs, blocks=blocks))
                    for norm, matrix in zip(self._spectral[k], (mine, theirs), strict=True)
                )
                nu.append(ledger.paid(scalar(f"norm of layer {name}", own, known)))
        return UniformConstants(tuple(xi), tuple(nu), tuple(ledger.charges))


def growths(epsilons: Sequence[float]) -> tuple[float, ...]:
    """gamma_k = product of (1 + epsilon) up to layer k, minus one."""
    return tuple(map(math.expm1, accumulate(map(math.log1p, epsilons))))
