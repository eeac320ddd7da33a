"""Outward rounding: what leaves this room may be too large by a hair, never too small.

Each function takes a number that was computed with a handful of correctly rounded operations
and widens it by more than those operations can have lost.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from nonvacuous.errors import InvalidCertificate

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


def rounded_up_sum(*parts: float) -> float:
    """A sum of nonnegative numbers, rounded up; 0 where all are 0."""
    total = math.fsum(parts)
    return math.nextafter(total * (1 + EPSILON), math.inf) if total > 0 else 0.0


def remaining_nats(kl_nats: float, *savings: float) -> float:
    """What is left of a KL after savings, rounded up.

    Each saving is the difference between two KLs, so what is left is a KL and cannot be negative.
    Where it is, by more than rounding explains, two savings were counted that exclude one
    another, and no number is given.
    """
    left = math.fsum([kl_nats, *(-saving for saving in savings)])
    slack = 8 * EPSILON * (kl_nats + math.fsum(savings))
    if left < -slack:
        raise InvalidCertificate(
            f"savings of {math.fsum(savings):.6g} nats are claimed on a KL of {kl_nats:.6g} nats: "
            "the result would be a negative KL, which does not exist; some savings exclude one "
            "another (as the symmetry of a layer's units, computed with the full last layer, "
            "excludes the shift of the scores)"
        )
    return math.nextafter(left + slack, math.inf) if left + slack > 0 else 0.0


def same_upper_end(recorded: float, recomputed: float) -> bool:
    """Whether a recorded end is the recomputed one; an earlier release may have rounded up more.

    Ends that two releases compute in different ways differ by less than one part in 10^9.

    >>> same_upper_end(0.1 + 1e-12, 0.1), same_upper_end(0.1 - 1e-12, 0.1)
    (True, False)
    """
    return recomputed <= recorded <= recomputed * (1.0 + 1e-9)


def shown_up(value: float, digits: int = 4) -> str:
    """Some decimals, never below the number itself: what is printed must be true as printed.

    >>> shown_up(0.26504), shown_up(1.301, 2), shown_up(0.5)
    ('0.2651', '1.31', '0.5000')
    """
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING))


def shown_down(value: float, digits: int = 4) -> str:
    """Some decimals, never above the number itself: for lower bounds."""
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_FLOOR))


def shown_confidence(confidence: float, digits: int = 10) -> str:
    """So many digits that count; every digit where they would make it certain.

    >>> shown_confidence(0.95), shown_confidence(1.0 - 1e-11)
    ('0.95', '0.99999999999')
    """
    shown = f"{confidence:.{digits}g}"
    return repr(confidence) if shown == "1" else shown
