"""Scales that are fixed before the data, and what choosing one of them afterwards costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nonvacuous.bounds import checks
from nonvacuous.errors import BadInput


@dataclass(frozen=True)
class ScaleGrid:
    """A finite set of prior scales, written down before any bound data is seen.

    A bound that must hold for every scale of the grid at once pays a union bound: each scale gets
    an equal share of the failure probability, which adds ``ln(len(grid))`` nats to the KL.

    >>> round(ScaleGrid((0.1, 0.3, 1.0)).charge_nats(), 4)
    1.0986
    """

    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        # Each is charged, so none may appear twice.
        scales = checks.grid_of("a grid of scales", self.scales)
        object.__setattr__(self, "scales", tuple(sorted(scales)))

    @classmethod
    def geometric(cls, lowest: float, highest: float, count: int) -> ScaleGrid:
        """``count`` scales from lowest to highest, each a fixed multiple of the one before."""
        if count < 1 or not 0 < lowest <= highest < math.inf or (count == 1) != (lowest == highest):
            raise BadInput(
                "a geometric grid needs 0 < lowest < highest and at least two scales (or one scale "
                f"with lowest == highest), got lowest={lowest!r}, highest={highest!r}, "
                f"count={count!r}"
            )
        if count == 1:
            return cls((lowest,))
        ratio = highest / lowest
        inner = (lowest * ratio ** (step / (count - 1)) for step in range(1, count - 1))
        return cls((lowest, *inner, highest))

    def __len__(self) -> int:
        return len(self.scales)

    def cheapest_for(
        self,
        sharing: Sequence[Sequence[str]],
        energies: Mapping[str, float],
        weights: Mapping[str, int],
    ) -> dict[str, float]:
        """For each tensor the scale with the least KL; each entry of ``sharing`` shares one.

        ``energies`` are squared distances from the prior means, posterior variances included, and
        ``weights`` how many there are. As a function of the prior scale s the KL is
        energy / (2 s^2) + weights * ln s, plus a constant.
        """
        scales: dict[str, float] = {}
        for names in sharing:
            energy = math.fsum(energies[name] for name in names)
            count = sum(weights[name] for name in names)
            costs = [energy / (2 * s * s) + count * math.log(s) for s in self.scales]
            scales |= dict.fromkeys(names, self.scales[costs.index(min(costs))])
        return scales

    def charge_nats(self, *, choices: int = 1) -> float:
        """Nats to add to the KL when ``choices`` scales are each chosen freely from the grid."""
        checks.count("choices", choices, minimum=1)
        if len(self.scales) == 1:
            return 0.0
        return math.nextafter(choices * math.log(len(self.scales)), math.inf)


DEFAULT_GRID = ScaleGrid.geometric(0.001, 1.0, 25)
