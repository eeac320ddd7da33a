"""Evaluating: by binary search in a microsecond, or honestly, unit by unit, as a network does."""

from __future__ import annotations

import bisect
import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import nn

from nonvacuous.memorization.construction import Construction
from nonvacuous.memorization.projection import Direction
from nonvacuous.progress import Progress, Reporter

#: Hidden units times points evaluated at once.
_UNITS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Residual:
    """How far a network in floating point is from the values it memorized.

    points     points evaluated, every unit for each of them
    largest    largest distance from a value
    wrong      points nearer to another class, or None where the values are not classes
    """

    points: int
    largest: float
    wrong: int | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers; an error beyond all numbers becomes None, which JSON can hold."""
        return asdict(self) | {"largest": self.largest if math.isfinite(self.largest) else None}


@dataclass(frozen=True, eq=False)
class Interpolant:
    """The network's function along its direction: where it bends, its value and slope there."""

    construction: Construction
    unit: int
    fraction_bits: int

    def at_positions(self, positions: np.ndarray) -> np.ndarray:
        """Values at float64 positions (whole numbers where the direction is exact)."""
        knots, values, slopes = self._tables()
        segment = np.searchsorted(knots, positions, side="right") - 1
        inside = np.maximum(segment, 0)
        found = values[inside] + slopes[inside] * (positions - knots[inside])
        return np.where(segment < 0, 0.0, found)

    def exactly(self, places: list[int], unit: int) -> np.ndarray:
        """Values at exact positions in units of 2**unit, rounded once at the end."""
        fine = min(unit, self.unit)
        bends = [bend << (self.unit - fine) for bend in self._bends()]
        values = self._bend_values()
        slopes = self._slopes()
        found = np.zeros(len(places), dtype=np.float64)
        for i, place in enumerate(places):
            here = place << (unit - fine)
            segment = bisect.bisect_right(bends, here) - 1
            if segment >= 0:
                way = Fraction(here - bends[segment], 1 << (self.unit - fine))
                exact = values[segment] + slopes[segment] * way
                found[i] = float(exact / (1 << self.fraction_bits))
        return found

    def _bends(self) -> list[int]:
        # The last point as a bend too, so that every memorized value stands in the table.
        return [*self.construction.knots, self.construction.places[-1]]

    def _bend_values(self) -> list[int]:
        return [0, *self.construction.values]

    def _slopes(self) -> list[Fraction]:
        made = self.construction
        steps = zip(self._bend_values(), made.values, made.knots, made.places, strict=False)
        slopes = [Fraction(to - start, place - knot) for start, to, knot, place in steps]
        return [*slopes, slopes[-1]]

    def _tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        scale = 1 << self.fraction_bits
        return (
            np.array(self._bends(), dtype=np.float64),
            np.array([value / scale for value in self._bend_values()]),
            np.array([float(slope / scale) for slope in self._slopes()]),
        )


def predict(interpolant: Interpolant, direction: Direction, rows: np.ndarray) -> np.ndarray:
    """Values at prepared rows: exact at memorized points, O(log n) for each point."""
    if direction.is_exact:
        return interpolant.at_positions(direction.project_float(rows))
    places, unit = direction.project(rows)
    return interpolant.exactly(places, unit)


def dense_values(
    network: nn.Module,
    rows: np.ndarray,
    *,
    units: int,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> np.ndarray:
    """What a network in floating point gives at each row: every unit, some rows at a time.

    ``network`` gives one number for each row: a memorizing network without class scores. ``units``
    is the width of its widest layer, which decides how many rows fit into memory.
    """
    reporter = Reporter(progress, "evaluating")
    network = network.to(device)
    step = max(1, _UNITS_AT_ONCE // max(1, units))
    found = np.empty(len(rows), dtype=np.float64)
    with torch.no_grad():
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            # A copy of a few rows, so that arrays that must not be written to can be read.
            inputs = torch.from_numpy(rows[part].copy()).to(device)
            found[part] = network(inputs)[:, 0].cpu().double().numpy()
            reporter.report(min(start + step, len(rows)), len(rows), "every unit, every point")
    return found


def residual_of(
    found: np.ndarray, values: np.ndarray, *, is_class: bool, seconds: float
) -> Residual:
    """How far the values found are from the ones memorized; NaN counts as infinitely far."""
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.nan_to_num(np.abs(found - values), nan=np.inf, posinf=np.inf)
    wrong = int((~(distance < 0.5)).sum()) if is_class else None
    return Residual(len(found), float(distance.max()), wrong, seconds)
