"""Which units keep their sign: surely active, surely inactive, or too near zero to tell.

A pre-activation farther from zero than a threshold keeps its sign under every change of the
weights that the threshold allows. Such a unit is either linear or absent: only the others bend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nonvacuous.bounds import checks
from nonvacuous.sparsity.radii import LocalScales, growth


def stability_thresholds(
    scales: LocalScales, epsilons: Sequence[float], *, level: float = 1.0
) -> tuple[float, ...]:
    """For each hidden layer, how far a pre-activation can move: level * growth_k * unit_k.

    At level 1 this is the sensitivity theorem: pre-activations beyond it keep their sign as long
    as the layers before have at most the active units that ``scales`` counts on.
    """
    factor = checks.positive("level", level)
    return tuple(
        factor * gamma * unit
        for gamma, unit in zip(growth(epsilons), scales.units[:-1], strict=False)
    )


@dataclass(frozen=True, eq=False)
class LayerStability:
    """For each unit of a layer, on how many examples it was what.

    active      surely active
    inactive    surely inactive
    unstable    neither: its sign may change
    examples    how many examples were looked at
    """

    active: Tensor
    inactive: Tensor
    unstable: Tensor
    examples: int

    def shares(self) -> tuple[float, float, float]:
        """Of all pairs of a unit and an example: surely active, surely inactive, unstable."""
        pairs = self.examples * len(self.active)
        first, second, third = (
            int(counts.sum()) / pairs for counts in (self.active, self.inactive, self.unstable)
        )
        return first, second, third

    def kinds(self) -> dict[str, int]:
        """How many units are surely active on every example, and so on."""
        every = self.examples
        always_on, always_off = self.active == every, self.inactive == every
        stable = self.unstable == 0
        return {
            "active on every example": int(always_on.sum()),
            "inactive on every example": int(always_off.sum()),
            "stable, but not the same on every example": int(
                (stable & ~always_on & ~always_off).sum()
            ),
            "unstable on some examples": int(((self.unstable > 0) & (self.unstable < every)).sum()),
            "unstable on every example": int((self.unstable == every).sum()),
        }


@dataclass(eq=False)
class StabilityCount:
    """Adds up stability over chunks of examples."""

    _active: list[Tensor] = field(default_factory=list)
    _inactive: list[Tensor] = field(default_factory=list)
    _examples: int = 0

    def add(self, preactivations: Sequence[Tensor], thresholds: Sequence[Tensor | float]) -> None:
        """Count one chunk; a threshold is one number, or one for each example."""
        if not self._active:
            for values in preactivations:
                for counts in (self._active, self._inactive):
                    counts.append(values.new_zeros(values.shape[1], dtype=torch.int64))
        for number, (values, threshold) in enumerate(zip(preactivations, thresholds, strict=True)):
            if isinstance(threshold, Tensor) and threshold.dim() == 1:
                threshold = threshold[:, None]
            self._active[number] += (values >= threshold).sum(0)
            self._inactive[number] += (values <= -threshold).sum(0)
        self._examples += len(preactivations[0])

    def result(self) -> tuple[LayerStability, ...]:
        """One record for each hidden layer."""
        return tuple(
            LayerStability(on, off, self._examples - on - off, self._examples)
            for on, off in zip(self._active, self._inactive, strict=True)
        )


def unit_stability(
    preactivations: Sequence[Tensor], thresholds: Sequence[Tensor | float]
) -> tuple[LayerStability, ...]:
    """Stability of every unit of every hidden layer, from the pre-activations of all examples."""
    count = StabilityCount()
    count.add(preactivations, thresholds)
    return count.result()
