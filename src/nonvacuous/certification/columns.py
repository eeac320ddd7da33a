"""The columns of a post-hoc certificate: the certified number beside other ways to account for it.

All columns are about the certified randomized network. Those "as given" take its posterior back
to the gauge in which the weights came: the same predictions with the same probabilities, so the
same risk. Whoever writes these columns and whoever checks them call the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nonvacuous import records
from nonvacuous.distributions import DiagonalGaussian, grids
from nonvacuous.kinds import Center, Way
from nonvacuous.networks import ScaleGroups
from nonvacuous.rescaling.columns import (
    Accounted,
    Accounting,
    best_scale_columns,
    fixed_scale_columns,
    named_step,
)
from nonvacuous.rescaling.solver import push
from nonvacuous.rules.arithmetic import complexity_nats, recompute_bound, total_nats

#: Of the prior around zero in the paper on rescaling.
PAPER_SCALE = 1.0
_MOVED = ("best scale, rescaled", "best scale per tensor, rescaled")


@dataclass(frozen=True, eq=False)
class Compared:
    """Columns for comparison.

    before  the KL in the given gauge, with the best scales of the certified prior's family
    paper   the KL as given and rescaled under the paper's prior
    """

    columns: tuple[Accounted, ...]
    before: float
    paper: tuple[float, float]


def comparison_columns(
    posterior: DiagonalGaussian,
    hidden: ScaleGroups,
    groups: ScaleGroups,
    log_scales: np.ndarray,
    *,
    center: Center,
    means: Mapping[str, Tensor],
    grid: grids.ScaleGrid,
    per_tensor: bool,
) -> Compared:
    """The posterior under other priors, in the given gauge and rescaled.

    log_scales   how the posterior was moved away from the given gauge, one entry for each of
                 ``groups``; the columns move it by ``hidden`` scales only
    center       what the certified prior is centered on, with its means; priors centered on zero
                 are compared with in any case
    grid         the scales that may be chosen, for all weights or ``per_tensor``; the largest one
                 is the fixed scale
    """
    given = push(posterior, groups, -log_scales, dtype=torch.float64)
    fixed_scale = grid.scales[-1]
    columns: list[Accounted] = []
    given_nats: dict[Center, float] = {}
    families: dict[Center, dict[str, Tensor]] = {
        "zero": {name: torch.zeros_like(mean) for name, mean in given.means.items()}
    }
    if center != "zero":
        families[center] = {name: means[name].to(mean) for name, mean in given.means.items()}
    for around, prior_means in families.items():
        prior = DiagonalGaussian.from_means(prior_means, fixed_scale)
        fixed = fixed_scale_columns(given, prior, hidden, center=around, scale=fixed_scale)
        columns += fixed
        given_nats[around] = fixed[0].kl_nats
        if len(grid) > 1:
            best, each = best_scale_columns(given, prior_means, hidden, center=around, grid=grid)
            columns += best
            given_nats[around] = each.kl_before if per_tensor else best[0].kl_nats
    unit = DiagonalGaussian.from_means(families["zero"], PAPER_SCALE)
    before, after = fixed_scale_columns(given, unit, hidden, center="zero", scale=PAPER_SCALE)
    return Compared(tuple(columns), given_nats[center], (before.kl_nats, after.kl_nats))


def accounting_of(bound: records.BoundRecord, budget: records.BudgetRecord) -> Accounting:
    """What all columns share. They pay for choices in nats, so the whole line is theirs."""
    return Accounting(
        risk_upper=float(bound.inputs["empirical_risk"]),
        examples=int(bound.inputs["examples"]),
        failure=budget.bound.failure,
    )


def column_records(
    steps: tuple[Accounted, ...],
    compared: tuple[Accounted, ...],
    bound: records.BoundRecord,
    budget: records.BudgetRecord,
) -> tuple[records.RescalingColumn, ...]:
    """All columns, comparisons first; the last step of the certified prior is the certificate.

    A bound for one drawn network is not in the KL, and has no columns.
    """
    if "kl_nats" not in bound.inputs:
        return ()
    accounting, (first, *further) = accounting_of(bound, budget), steps
    # Without the scale of the scores, the first step is one of the comparisons, found again.
    same = [c for c in compared if (c.center, c.way) == (first.center, first.way)]
    shown = [column for column in compared if column not in same]
    # What the first step starts from stands right before it.
    shown.sort(
        key=lambda c: (
            c.center == first.center,
            c.way in _MOVED and c.charge_nats == first.charge_nats and c.center == first.center,
        )
    )
    shown += [replace(first, name=same[0].name) if same else first, *further]
    written = []
    for column in shown:
        certified = column is shown[-1]
        bounds = accounting.bounds(column.kl_nats, column.charge_nats)
        if certified:
            # The certificate divides its failure probability instead of adding a charge to the KL:
            # the same up to rounding, and its own number is the one that counts.
            bounds["kl_inverse"] = recompute_bound(bound)
        written.append(records.RescalingColumn(**vars(column) | bounds, certified=certified))
    return tuple(written)


def paper_accounting(
    nats: tuple[float, float], risk: records.RiskRecord, bound: records.BoundRecord
) -> records.PaperAccounting | None:
    """The paper's formula beside the certificate; a bound for one drawn network has none."""
    if "kl_nats" not in bound.inputs:
        return None
    examples = int(bound.inputs["examples"])
    return records.PaperAccounting.of(
        nats, prior_scale=PAPER_SCALE, mean=risk.mean, examples=examples
    )


def certified_steps(
    center: Center, way: Way, charge_nats: float, complexity: records.ComplexityRecord
) -> tuple[Accounted, ...]:
    """The certified posterior, then with one symmetry after another forgotten."""
    shifts = tuple(s for s in complexity.symmetries if s.symmetry == "translation")
    steps: tuple[tuple[Way, bool, float], ...] = (
        (way, True, total_nats(complexity.terms)),
        ("shift of the scores", bool(shifts), complexity_nats(complexity.terms, shifts)),
        ("order of the units", len(complexity.symmetries) > len(shifts), complexity.kl_nats),
    )
    return tuple(
        Accounted(named_step(center, step), center, step, kl_nats, charge_nats)
        for step, used, kl_nats in steps
        if used
    )


def first_step(columns: tuple[records.RescalingColumn, ...]) -> Way:
    """Where the certified posterior stood before further symmetries were forgotten."""
    certified = next(position for position, column in enumerate(columns) if column.certified)
    further = {"shift of the scores", "order of the units"}
    return next(c.way for c in reversed(columns[: certified + 1]) if c.way not in further)
