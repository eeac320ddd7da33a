"""Grids: a number as a reference times a power of two, never below the truth, and its charge."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from nonvacuous.bounds.sparsity import choice_nats, integer_nats
from nonvacuous.errors import BadInput

#: Steps of the grid for constants per factor of two.
FINENESS = 64
_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class Charge:
    """One line of the ledger: what was chosen, and the nats that naming it costs."""

    name: str
    choice: str
    nats: float


def chosen_among(choices: int) -> tuple[Charge, ...]:
    """The line for reporting one of several certificates, theorems or priors fixed in advance."""
    if choices == 1:
        return ()
    return (Charge("which certificate is reported", f"one of {choices}", choice_nats(choices)),)


def scalar(
    name: str, value: float, known: float, *, fineness: int = FINENESS
) -> tuple[float, Charge]:
    """The smallest grid value ``known`` * 2^(j / fineness) that is not below ``value``."""
    if known <= 0.0:
        raise BadInput(
            f"{name}: it is 0 in the prior, so no grid reaches it (does the layer read padding "
            "only?); give the prior a layer that reads its input"
        )
    index = _index(value / known, fineness)
    while known * 2.0 ** (index / fineness) < value:
        index += 1
    return (
        known * 2.0 ** (index / fineness),
        Charge(name, f"reference x 2^({index}/{fineness})", integer_nats(index)),
    )


def covering(truth: Tensor, known: Tensor, exponent: float | None) -> tuple[Tensor, int]:
    """The smallest multiple of ``known``, to a power, with no entry below ``truth``; its step."""
    shape = known
    if exponent is not None:
        shape = known[..., -1:] * (known / known[..., -1:]) ** exponent * _UP
    index = _index(float((truth / shape).max()), FINENESS)
    while bool((shape * 2.0 ** (index / FINENESS) < truth).any()):
        index += 1
    return shape * 2.0 ** (index / FINENESS), index


def _index(ratio: float, fineness: int) -> int:
    # One step down and then up again until nothing is below: no tolerance can creep in.
    return math.ceil(fineness * math.log2(max(ratio, 1e-300))) - 1
