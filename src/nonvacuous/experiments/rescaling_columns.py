"""The same noise around the same weights, accounted for in every way: who earns the improvement?

All columns of one scale are about one randomized network, so they share its risk. They differ in
the prior (zero or the initial weights; its scale fixed or chosen from a grid that is paid for) and
in whether the symmetries of the network are used. Columns with different priors may stand side by
side; the smallest of them is not a bound unless that choice is paid for too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from nonvacuous.bounds import mcallester, seeger
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.distributions.priors import at_initialization, zero_mean
from nonvacuous.networks import LayerGraph, ScaleGroups
from nonvacuous.rescaling import rescale, rescale_with_prior_scales
from nonvacuous.rescaling.output_layer import output_layer
from nonvacuous.rescaling.quotients import quotients
from nonvacuous.rescaling.unit_layers import unit_layers


@dataclass(frozen=True)
class Column:
    """One way to account for the complexity, in nats, and the two bounds that follow.

    charge_nats   what the choice of the prior's scale from its grid costs; the bounds contain it
    """

    name: str
    kl_nats: float
    charge_nats: float
    mcallester: float
    kl_inverse: float


@dataclass(frozen=True, eq=False)
class Accounting:
    """What all columns share: the risk, sampling paid for, and what is left for the bound."""

    risk_upper: float
    examples: int
    failure: float

    def column(self, name: str, kl_nats: float, charge_nats: float = 0.0) -> Column:
        """Both bounds for one complexity."""
        numbers = {
            "empirical_risk": self.risk_upper,
            "kl_nats": kl_nats + charge_nats,
            "examples": self.examples,
            "failure": self.failure,
        }
        return Column(
            name=name,
            kl_nats=kl_nats,
            charge_nats=charge_nats,
            mcallester=mcallester(**numbers),  # type: ignore[arg-type]
            kl_inverse=seeger(**numbers, exact_moment=True),  # type: ignore[arg-type]
        )


def all_columns(
    trained: nn.Module,
    initial: nn.Module,
    *,
    scale: float,
    prior_scale: float,
    grid: ScaleGrid,
    graph: LayerGraph,
    groups: ScaleGroups,
    accounting: Accounting,
) -> tuple[Column, ...]:
    """Every column for equal noise of one scale around the trained weights."""
    Q = DiagonalGaussian.around(trained, scale=scale)
    fixed = rescale(Q, DiagonalGaussian.centered(trained, scale=prior_scale), groups)
    column = accounting.column
    columns = [
        column(f"prior scale {prior_scale:g}", fixed.kl_before),
        column(f"prior scale {prior_scale:g}, rescaled", fixed.kl_after),
    ]
    start = {name: p.detach() for name, p in initial.named_parameters()}
    for center, means, prior in (
        ("zero", None, zero_mean(grid=grid)),
        ("initial weights", start, at_initialization(initial, grid=grid)),
    ):
        chosen = prior.choose(trained, Q)
        both = rescale_with_prior_scales(Q, means, groups, grid=grid)
        each = rescale_with_prior_scales(Q, means, groups, grid=grid, per_tensor=True)
        name = f"around {center}, best prior scale"
        columns += [
            column(name, Q.kl_nats(chosen.distribution), chosen.charge_nats),
            column(f"{name}, rescaled", both.kl_after, both.charge_nats),
            column(f"{name} per tensor, rescaled", each.kl_after, each.charge_nats),
            column(
                f"{name} per tensor, rescaled, scores up to scale and shift",
                quotient_nats(Q, each.prior, graph, groups, each.log_scales),
                each.charge_nats,
            ),
        ]
        if means is None:
            # Only a prior that treats all units of a layer alike may forget their order.
            columns.append(
                column(
                    f"{name} per tensor, rescaled, scores up to scale and shift, units unordered",
                    quotient_nats(Q, each.prior, graph, groups, each.log_scales, unordered=True),
                    each.charge_nats,
                )
            )
    return tuple(columns)


def quotient_nats(
    Q: DiagonalGaussian,
    P: DiagonalGaussian,
    graph: LayerGraph,
    groups: ScaleGroups,
    log_scales: np.ndarray,
    *,
    unordered: bool = False,
) -> float:
    """The KL when also the scale and the shift of the scores are forgotten: errors see neither.

    With ``unordered`` the order of the units of each layer is forgotten too.
    """
    found = quotients(
        Q,
        P,
        groups,
        log_scales,
        loss="zero-one",
        output=output_layer(graph),
        layers=unit_layers(graph).layers if unordered else (),
    )
    return found.kl_nats
