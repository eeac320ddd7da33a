"""One randomized network, accounted for in every way: who earns the improvement?

All columns are about the same randomized network, so they share its risk. They differ in the prior
(centered on zero or on the initial weights; its scale fixed or chosen from a grid that is paid for)
and in the symmetries of the network that are used. Columns with different priors may stand side by
side; the smallest of them is not a bound unless that choice is paid for too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nonvacuous.bounds import mcallester, rounding, seeger
from nonvacuous.distributions import DiagonalGaussian, ScaleGrid
from nonvacuous.kinds import Center, Way
from nonvacuous.networks.scale_groups import ScaleGroups
from nonvacuous.rescaling import prior_scales, solver
from nonvacuous.rescaling.quotients import Symmetries, quotients

#: Steps of :func:`nonvacuous.rescaling.quotients.quotients`.
_STEPS: tuple[Way, ...] = ("scale of the scores", "shift of the scores", "order of the units")
_CENTERS: Mapping[Center, str] = {
    "zero": "zero",
    "initialization": "initial weights",
    "learned": "weights of the prior part",
    "pretrained": "weights trained on other data",
}


@dataclass(frozen=True)
class Accounted:
    """One way to account for the complexity, in nats.

    charge_nats   what the choice of the prior's scale from its grid costs
    """

    name: str
    center: Center
    way: Way
    kl_nats: float
    charge_nats: float = 0.0


@dataclass(frozen=True)
class Accounting:
    """What all columns share: the risk, sampling paid for, and what is left for the bound."""

    risk_upper: float
    examples: int
    failure: float

    def bounds(self, kl_nats: float, charge_nats: float) -> dict[str, float]:
        """By a square root, and by the inverse of the binary kl, which is never above the other."""
        numbers: dict[str, Any] = {
            "empirical_risk": self.risk_upper,
            "kl_nats": rounding.rounded_up_sum(kl_nats, charge_nats),
            "examples": self.examples,
            "failure": self.failure,
        }
        inverse = seeger(**numbers, exact_moment=True)
        return {"mcallester": mcallester(**numbers), "kl_inverse": inverse}


def fixed_scale_columns(
    Q: DiagonalGaussian, P: DiagonalGaussian, groups: ScaleGroups, *, center: Center, scale: float
) -> tuple[Accounted, ...]:
    """A prior ``P`` whose scale was fixed beforehand: the network as given, and rescaled."""
    quotient = solver.rescale(Q, P, groups)
    name = f"around {_CENTERS[center]}, prior scale {scale:g}"
    return (
        Accounted(name, center, "fixed scale", quotient.kl_before),
        Accounted(f"{name}, rescaled", center, "fixed scale, rescaled", quotient.kl_after),
    )


def best_scale_columns(
    Q: DiagonalGaussian,
    means: Mapping[str, Tensor] | None,
    groups: ScaleGroups,
    *,
    center: Center,
    grid: ScaleGrid,
) -> tuple[tuple[Accounted, ...], prior_scales.PriorScaling]:
    """Scales from a grid: one for all tensors, as given and rescaled; one each, rescaled.

    ``means`` of None stand for zero. With the columns comes what the last of them tells of.
    """
    both = prior_scales.rescale_with_prior_scales(Q, means, groups, grid=grid)
    each = prior_scales.rescale_with_prior_scales(Q, means, groups, grid=grid, per_tensor=True)
    name = f"around {_CENTERS[center]}, best prior scale"
    ways: tuple[tuple[str, Way, float, prior_scales.PriorScaling], ...] = (
        ("", "best scale", both.kl_before, both),
        (", rescaled", "best scale, rescaled", both.kl_after, both),
        (" per tensor, rescaled", "best scale per tensor, rescaled", each.kl_after, each),
    )
    columns = tuple(
        Accounted(f"{name}{words}", center, way, kl_nats, scaling.charge_nats)
        for words, way, kl_nats, scaling in ways
    )
    return columns, each


def named_step(center: Center, way: Way) -> str:
    """The name of a column that forgets one more symmetry than the column before it."""
    return f"around {_CENTERS[center]}, + {way}"


def symmetry_columns(
    Q: DiagonalGaussian,
    scaling: prior_scales.PriorScaling,
    groups: ScaleGroups,
    symmetries: Symmetries,
    *,
    center: Center,
) -> tuple[Accounted, ...]:
    """What forgetting the scale and the shift of the scores, then the units' order, adds to it.

    For the 0-1 loss, which sees none of them. Those that the prior does not have add no column.
    """
    quotient = quotients(Q, scaling.prior, groups, scaling.log_scales, symmetries)
    refused = {refusal.layer for refusal in quotient.refused}
    ordered = all(layer.name in refused for layer in symmetries.layers)
    return tuple(
        Accounted(named_step(center, way), center, way, kl_nats, scaling.charge_nats)
        for way in _STEPS
        if (kl_nats := quotient.columns.get(f"+ {way}")) is not None
        and not (ordered and way == "order of the units")
    )
