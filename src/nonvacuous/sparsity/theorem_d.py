"""Theorem D: a margin threshold from the error that noise can have made, layer by layer.

Statement and proof: docs/theory/sparsity.md, 5. The names are those of the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from nonvacuous.bounds.sparsity import (
    chi_quantile,
    kink,
    self_normalized_quantile,
    two_sided_quantile,
)
from nonvacuous.sparsity.constants import Constants
from nonvacuous.sparsity.noise import NoisyPass
from nonvacuous.sparsity.theorem_e import KINK


@dataclass(frozen=True, eq=False)
class Quantiles:
    """The quantiles for one escape probability, all rounded up.

    coordinates   T_k of each hidden layer (empty without sparsity)
    chi           per hidden layer a table over the number of units
    output        t(p)
    """

    coordinates: tuple[float, ...]
    chi: tuple[Tensor, ...]
    output: float


@lru_cache(maxsize=256)
def quantiles(
    widths: tuple[int, ...], escape: float, sparse: bool, device: torch.device
) -> Quantiles:
    """Share the escape probability among the events of the proof."""
    hidden = len(widths)
    share = escape / (2 * hidden if sparse else hidden)
    coordinates = tuple(two_sided_quantile(failure=share, events=d) for d in widths)
    # Only layers before the last hidden one need the length of their noise.
    chi = []
    for width in widths[:-1]:
        entries = range(width + 1) if sparse else (width,) * (width + 1)
        table = [chi_quantile(degrees=n, failure=share) for n in entries]
        chi.append(torch.tensor(table, dtype=torch.float64, device="cpu").to(device))
    return Quantiles(coordinates if sparse else (), tuple(chi), self_normalized_quantile(share))


def thresholds(
    noisy: NoisyPass, labels: Tensor, constants: Constants, escape: float, *, sparse: bool
) -> Tensor:
    """D(W', x) for every example and every class that may have beaten the label."""
    scales, hidden = noisy.scales, len(noisy.before)
    widths = tuple(z.shape[1] for z in noisy.before)
    used = quantiles(widths, escape, sparse, labels.device)
    error = torch.zeros_like(scales[0])
    before = torch.full_like(labels, 0)
    for k in range(hidden):
        units = torch.full_like(labels, widths[k])
        row_table, spectral = constants.rows[k], constants.spectral[k]
        if sparse:
            reach = scales[k] * used.coordinates[k]
            if row_table is not None:
                reach = reach + row_table[before] * error
            units = (noisy.before[k] > -2.0 * _safe(reach)[:, None]).sum(1)
        carried = torch.zeros_like(error)
        if row_table is not None:
            stretch = torch.full_like(error, spectral)
            if sparse:
                # A block of n rows stretches at most sqrt(n) times as much as its longest row.
                stretch = torch.minimum(stretch, units.double().sqrt() * row_table[before])
            carried = stretch * error
        # The noise of the last hidden layer is dealt with by concentration, not by its length.
        error = carried + scales[k] * used.chi[k][units] if k < hidden - 1 else carried
        before = units
    noise = scales[-2][:, None]
    norms, whole = constants.norms(labels, before), constants.sums(labels)
    means = KINK * whole
    if sparse:
        level = used.coordinates[-1]
        near = (noisy.before[-1].abs() < 2.0 * level * _safe(noise)).sum(1)
        rest = kink(level)
        means = (KINK - rest) * constants.sums(labels, near) + rest * whole
    spread = (noise.square() * norms.square() + 2.0 * scales[-1][:, None].square()).sqrt()
    return norms * error[:, None] + noise * (means + KINK * norms) + used.output * spread


def _safe(value: Tensor) -> Tensor:
    """Room for rounding where a comparison decides which units are counted."""
    return value * (1.0 + 1e-9)
