"""Prior scales that may be chosen after seeing the data, and what each choice costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nonvacuous.distributions import ScaleGrid
from nonvacuous.errors import BadInput


@dataclass(frozen=True)
class EndlessGrid:
    """The scales ``largest * exp(-j / steps)`` for j = 1, 2, 3, ...: ever finer, without an end.

    Scale number j gets the share 6 / (pi^2 j^2) of the failure probability; the shares sum to
    one, so choosing number j costs ln(pi^2 j^2 / 6) nats. Both fields must be fixed before the
    data, like the scales of a :class:`~nonvacuous.distributions.ScaleGrid`.

    >>> grid = EndlessGrid(largest=1.0, steps=10)
    >>> round(grid.scale(23), 4), round(grid.charge_of(23), 4)
    (0.1003, 6.7687)
    """

    largest: float
    steps: float

    def __post_init__(self) -> None:
        for name in ("largest", "steps"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"{name} must be strictly positive and finite, got {value!r}")

    def scale(self, number: int) -> float:
        """The scale with this number (1, 2, 3, ...)."""
        return self.largest * math.exp(-number / self.steps)

    def charge_of(self, number: int) -> float:
        """Nats to add to the KL for choosing this number, rounded up."""
        return math.nextafter(math.log(math.pi**2 * number**2 / 6), math.inf)


PriorGrid = ScaleGrid | EndlessGrid


@dataclass(frozen=True)
class Choice:
    """One scale for each tensor, and the charge for having chosen it."""

    scales: Mapping[str, float]
    charge_nats: float


def choose_scales(
    grid: PriorGrid,
    sharing: Sequence[Sequence[str]],
    energies: Mapping[str, float],
    weights: Mapping[str, int],
) -> Choice:
    """The scales of the grid with the least KL plus charge.

    ``sharing`` lists the sets of tensors that share a scale, ``energies`` the squared distance
    of each tensor from the prior means, posterior variances included. As a function of the prior
    scale S the KL is energy / (2 S^2) + weights * ln S, plus a constant.
    """
    scales: dict[str, float] = {}
    charges: list[float] = []
    for names in sharing:
        energy = math.fsum(energies[name] for name in names)
        count = sum(weights[name] for name in names)
        best, charge = _cheapest(grid, energy, count)
        scales |= dict.fromkeys(names, best)
        charges.append(charge)
    if isinstance(grid, ScaleGrid):
        return Choice(scales, grid.charge_nats(choices=len(charges)))
    return Choice(scales, math.nextafter(math.fsum(charges), math.inf))


def _cheapest(grid: PriorGrid, energy: float, count: int) -> tuple[float, float]:
    if isinstance(grid, ScaleGrid):
        best = min(grid.scales, key=lambda s: energy / (2 * s * s) + count * math.log(s))
        return best, 0.0
    # Past the best scale without a charge everything gets worse, so the search ends there.
    ideal = math.sqrt(energy / count) if count else grid.largest
    last = max(1, math.ceil(grid.steps * math.log(grid.largest / ideal)) + 1)
    numbers = np.arange(1, last + 1)
    scales = grid.largest * np.exp(-numbers / grid.steps)
    costs = energy / (2 * scales**2) + count * np.log(scales) + 2 * np.log(numbers)
    number = int(numbers[np.argmin(costs)])
    return grid.scale(number), grid.charge_of(number)
