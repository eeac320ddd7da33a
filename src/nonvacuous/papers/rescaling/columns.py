"""One randomized network accounted for in every way, as the rescaling figure records it."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from nonvacuous.bounds import sampling
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.kinds import Center
from nonvacuous.networks import LayerGraph, ScaleGroups
from nonvacuous.rescaling.columns import (
    Accounted,
    Accounting,
    best_scale_columns,
    fixed_scale_columns,
    symmetry_columns,
)
from nonvacuous.rescaling.quotients import symmetries_of
from nonvacuous.risk import RiskEstimate
from nonvacuous.study.settings import Frozen

#: The part of the failure probability that pays for sampling a risk.
_SAMPLING_SHARE = 0.2


class Column(Frozen):
    """One way to account for the complexity, in nats, and the two bounds that follow.

    charge_nats   what the choice of the prior's scale from its grid costs; the bounds contain it
    """

    name: str
    kl_nats: float
    charge_nats: float
    mcallester: float
    kl_inverse: float

    @classmethod
    def of(cls, column: Accounted, accounting: Accounting) -> Column:
        """Both bounds for one complexity."""
        return cls(
            name=column.name,
            kl_nats=column.kl_nats,
            charge_nats=column.charge_nats,
            mcallester=accounting.mcallester(column.total_nats),
            kl_inverse=accounting.kl_inverse(column.total_nats),
        )


def accounting_of(risk: RiskEstimate, *, examples: int, confidence: float) -> Accounting:
    """What all columns of a randomized network share: its risk, with sampling paid for."""
    failure = 1.0 - confidence
    assert risk.errors is not None
    upper = sampling(errors=risk.errors, trials=risk.trials, failure=failure * _SAMPLING_SHARE)
    return Accounting(upper, examples, failure * (1.0 - _SAMPLING_SHARE))


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
    prior = DiagonalGaussian.centered(trained, scale=prior_scale)
    columns = [*fixed_scale_columns(Q, prior, groups, center="zero", scale=prior_scale)]
    symmetries = symmetries_of(graph)
    start = {name: p.detach() for name, p in initial.named_parameters()}
    centers: tuple[tuple[Center, dict[str, Tensor] | None], ...] = (
        ("zero", None),
        ("initialization", start),
    )
    for center, means in centers:
        found = best_scale_columns(Q, means, groups, center=center, grid=grid)
        each = found.per_tensor
        given, shared, per_tensor = found.columns
        unmoved = replace(
            given,
            name=f"{given.name} per tensor",
            kl_nats=each.kl_before,
            charge_nats=each.charge_before_nats,
        )
        columns += [given, shared, unmoved, per_tensor]
        columns += symmetry_columns(
            Q,
            each.prior,
            groups,
            each.log_scales,
            symmetries=symmetries,
            loss="zero-one",
            center=center,
            charge_nats=each.charge_nats,
        )
    return tuple(Column.of(column, accounting) for column in columns)
