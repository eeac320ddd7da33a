"""The setting of a certificate: everything that was chosen, and what naming the choice costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nonvacuous.bounds.sparsity import choice_nats, integer_nats
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.grids import Charge
from nonvacuous.sparsity.theorem_e import TAILS, Tail
from nonvacuous.sparsity.theorem_f import SIZES

#: Escape probabilities to choose from.
ESCAPES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.45)
#: Scales are 2^(j/4): the first layer's j is one of these, the others are steps between layers.
FIRST_SCALE = range(-80, 41)
_PER_DOUBLING = 4
#: Steps per factor of two of the cap, and of the rate of the exponential tail.
_TAIL_FINENESS = {"cap": 8, "exponential": 4, SIZES: 16}


@dataclass(frozen=True)
class Scales:
    """What every theorem with noise chooses.

    first      the first layer's noise scale is 2^(first/4)
    steps      log2 of the ratio of the other layers' scales to the layer before, times 4
    escape     position in ESCAPES
    """

    first: int
    steps: tuple[int, ...]
    escape: int

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise scale of each layer."""
        total, scales = self.first, [2.0 ** (self.first / _PER_DOUBLING)]
        for step in self.steps:
            total += step
            scales.append(2.0 ** (total / _PER_DOUBLING))
        return tuple(scales)

    @property
    def escape_probability(self) -> float:
        return ESCAPES[self.escape]

    def scale_charges(self) -> tuple[Charge, ...]:
        """What naming these three costs."""
        return (
            Charge("noise scale of layer 1", f"2^({self.first}/4)", choice_nats(len(FIRST_SCALE))),
            *(
                Charge(
                    f"noise scale of layer {layer}",
                    f"2^({step}/4) times layer {layer - 1}'s",
                    integer_nats(step),
                )
                for layer, step in enumerate(self.steps, start=2)
            ),
            Charge("escape probability", f"{self.escape_probability:g}", choice_nats(len(ESCAPES))),
        )


@dataclass(frozen=True)
class Setting(Scales):
    """Choices of Theorem D, E or F: noise scales, escape probability, and

    tail       Theorem E: "cap" or "exponential"; Theorem F: "sizes"
    factor     Theorems E and F: log2 of the tail's factor, in steps of the grid
    anchored   E and F with sparsity only: whether mean shifts meet the prior's output weights
    named      whether constants of the output layer are named for each pair of classes
    """

    tail: str | None = None
    factor: int = 0
    anchored: bool = False
    named: bool = False

    @property
    def tail_rule(self) -> Tail:
        """The tail of Theorem E in numbers."""
        assert self.tail is not None
        return Tail(self.tail, self.tail_factor)

    @property
    def tail_factor(self) -> float:
        """The tail's factor as a number."""
        assert self.tail is not None
        return float(2.0 ** (self.factor / _TAIL_FINENESS[self.tail]))

    def charges(self, *, sparse: bool) -> tuple[Charge, ...]:
        """What naming these choices costs; constants of the network are charged elsewhere."""
        lines = list(self.scale_charges())
        if self.tail is not None:
            if self.tail in TAILS:
                lines.append(Charge("tail: form", self.tail, choice_nats(len(TAILS))))
            text = f"2^({self.factor}/{_TAIL_FINENESS[self.tail]})"
            name = (
                "tail: factor" if self.tail in TAILS else "room above the reference's activations"
            )
            lines.append(Charge(name, text, integer_nats(self.factor)))
            if sparse:
                way = "the prior's output weights" if self.anchored else "sums of the largest"
                lines.append(Charge("mean shifts: form", way, choice_nats(2)))
        return tuple(lines)


def kl_nats(squared_distances: tuple[float, ...], sigmas: tuple[float, ...]) -> float:
    """KL divergence of equal Gaussians around two networks: sum of |W_k - W0_k|^2 / 2 sigma_k^2."""
    for sigma in sigmas:
        # Beyond, squares vanish or overflow.
        if not 1e-60 <= sigma <= 1e60:
            raise BadInput(f"a noise scale of {sigma:.0e} lies outside 1e-60 to 1e60")
    terms = (d / (2.0 * s * s) for d, s in zip(squared_distances, sigmas, strict=True))
    return math.fsum(terms) * (1.0 + 1e-12)


def total_nats(charges: tuple[Charge, ...]) -> float:
    """The sum of a ledger, rounded up."""
    return math.fsum(line.nats for line in charges) * (1.0 + 1e-12)
