"""Outward rounding: what leaves this room may be too large by a hair, never too small.

Each function takes a number that was computed with a handful of correctly rounded operations
and widens it by more than those operations can have lost.
"""

from __future__ import annotations

import math

#: 2**-52, the distance from 1 to the next double.
EPSILON = 2.0**-52


def up(value: float, *, ulps: int = 8) -> float:
    """``value`` raised by ``ulps`` units of relative rounding error (and at least one step)."""
    if value == 0.0 or math.isinf(value):
        return value
    return math.nextafter(value + abs(value) * (ulps * EPSILON), math.inf)


def down(value: float, *, ulps: int = 8) -> float:
    """``value`` lowered by ``ulps`` units of relative rounding error (and at least one step)."""
    return -up(-value, ulps=ulps)


def as_risk(value: float) -> float:
    """A bound on a risk says nothing beyond [0, 1], so it is clipped there."""
    return min(1.0, max(0.0, value))
