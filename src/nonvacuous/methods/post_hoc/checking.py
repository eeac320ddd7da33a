"""What verify asks of noise around given weights: what it is called, and its rescaling columns."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from nonvacuous.certificate import Certificate
from nonvacuous.certification import columns, gauge
from nonvacuous.data.files import read_npz_arrays
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.kinds import Center
from nonvacuous.methods.post_hoc.making import POSTERIOR_SCALES, noise_descriptions
from nonvacuous.networks import LayerGraph
from nonvacuous.records import RescalingRecord
from nonvacuous.rules import arithmetic, digests
from nonvacuous.verification.checking import COLUMNS, LOG_SCALES, PriorChecking
from nonvacuous.verification.findings import Disagreement, NotAsked, equal
from nonvacuous.verification.inquiry import Inquiry

#: Ways that only the certified posterior is accounted for in.
_STEPS = ("scale of the scores", "shift of the scores", "order of the units")
#: Descents on two machines may end this far apart, relative to the KL.
_RELATIVE = 1e-6


class MethodChecking(PriorChecking):
    """A posterior that is noise around given weights, moved to where it is cheapest."""

    def posteriors(self, certificate: Certificate, method: dict[str, Any]) -> Collection[str]:
        scales = method.get("posterior_scales") or POSTERIOR_SCALES.scales
        return noise_descriptions(scales, rescaled=certificate.rescaling is not None)

    def rescaling(self, certificate: Certificate) -> str:
        rescaling, complexity = certificate.rescaling, certificate.complexity
        assert rescaling is not None
        if complexity is None:
            raise Disagreement("there is no KL that a rescaling could have changed.")
        equal(rescaling.kl_after, arithmetic.total_nats(complexity.terms), "rescaling.kl_after")
        if "kl_nats" not in certificate.bound.inputs:
            equal(len(rescaling.columns), 0, "rescaling.columns")
            equal(rescaling.paper, None, "rescaling.paper")
            return "the bound is not in the KL: no columns."
        if rescaling.paper is not None:
            nats = rescaling.paper.kl_before, rescaling.paper.kl_after
            again = columns.paper_accounting(nats, certificate.empirical, certificate.bound)
            equal(rescaling.paper, again, "rescaling.paper")
        if not rescaling.columns:
            # What it rests on is recomputed together with the columns, and never written alone.
            equal(rescaling.paper, None, "rescaling.paper")
            return "no columns."
        accounting = columns.accounting_of(certificate.bound, certificate.budget)
        for position, column in enumerate(rescaling.columns):
            where = f"rescaling.columns.{position}"
            expected = accounting.bounds(column.kl_nats, column.charge_nats)
            if column.certified:
                expected["kl_inverse"] = certificate.risk_upper
            for name, value in expected.items():
                equal(getattr(column, name), value, f"{where}.{name}")
        certified = next(c for c in rescaling.columns if c.certified)
        where = f"rescaling.columns.{rescaling.columns.index(certified)}"
        equal(certified.kl_nats, complexity.kl_nats, f"{where}.kl_nats")
        choices = certificate.budget.bound.choices
        if abs(certified.charge_nats - math.log(choices)) > 1e-9 * (1.0 + math.log(choices)):
            raise Disagreement(
                f"it says {certified.charge_nats!r}, but choosing among {choices} costs "
                f"{math.log(choices)!r} nats.",
                f"{where}.charge_nats",
            )
        steps = columns.certified_steps(
            certified.center,
            columns.first_step(rescaling.columns),
            certified.charge_nats,
            complexity,
        )
        for step in steps:
            same = [c for c in rescaling.columns if (c.center, c.way) == (step.center, step.way)]
            if len(same) != 1:
                raise Disagreement(f"there are {len(same)} columns for {step.way!r}.")
            where = f"rescaling.columns.{rescaling.columns.index(same[0])}"
            if step.way in _STEPS:  # others have the name of the column that they are found in
                equal(same[0].name, step.name, f"{where}.name")
            equal(same[0].kl_nats, step.kl_nats, f"{where}.kl_nats")
            equal(same[0].charge_nats, step.charge_nats, f"{where}.charge_nats")
        equal(certified.way, steps[-1].way, "rescaling.columns")
        return f"{len(rescaling.columns)} columns; the certified one is {certified.name!r}."

    def read_more(self, inquiry: Inquiry) -> None:
        rescaling = inquiry.certificate.rescaling
        if rescaling is None:
            return
        digest_field = "rescaling.log_scales_digest"

        def work(path: Path) -> str:
            log_scales = np.asarray(read_npz_arrays(path)["log_scales"], dtype=np.float64)
            equal(rescaling.log_scales_digest, digests.array_digest(log_scales), digest_field)
            inquiry.contents.log_scales = log_scales
            return f"{log_scales.size} log-scales, digest recomputed."

        inquiry.ask(LOG_SCALES, "the rescaling is the recorded one", digest_field, work)

    def columns(self, inquiry: Inquiry, graph: LayerGraph) -> None:
        inquiry.expect(COLUMNS, "rescaling.columns", lambda: _columns(inquiry, graph))


def _columns(inquiry: Inquiry, graph: LayerGraph) -> str:
    certificate, contents = inquiry.certificate, inquiry.contents
    posterior, prior, log_scales = contents.posterior, contents.prior, contents.log_scales
    rescaling, settings = certificate.rescaling, contents.settings
    assert posterior is not None and prior is not None and rescaling is not None
    own_prior = contents.method.get("prior")
    scales, per_tensor = (
        (own_prior.get(name) if isinstance(own_prior, dict) else None)
        if "format" in settings
        else settings.get(f"prior_{name}")  # runs of the first format have them on top
        for name in ("scales", "per_tensor")
    )
    if log_scales is None or not isinstance(scales, list) or not scales:
        raise NotAsked("the scales and settings of the run are not at hand.", needed=False)
    hidden, groups = gauge.free_scales(graph, certificate.loss.name)
    own = next(column.center for column in rescaling.columns if column.certified)
    compared = columns.comparison_columns(
        posterior,
        hidden,
        groups,
        log_scales,
        center=own,
        means=prior.means,
        grid=ScaleGrid(tuple(scales)),
        per_tensor=bool(per_tensor),
    )
    _compare(rescaling, compared, own)
    _near(rescaling.kl_before, compared.before, "rescaling.kl_before")
    if rescaling.paper is not None:
        _near(rescaling.paper.kl_before, compared.paper[0], "rescaling.paper.kl_before")
        _near(rescaling.paper.kl_after, compared.paper[1], "rescaling.paper.kl_after")
    return f"{len(compared.columns)} of {len(rescaling.columns)} columns, recomputed."


def _compare(rescaling: RescalingRecord, compared: columns.Compared, own: Center) -> None:
    certified = (own, columns.first_step(rescaling.columns))
    recorded = {(c.center, c.way): (n, c) for n, c in enumerate(rescaling.columns)}
    for column in compared.columns:
        if (column.center, column.way) not in recorded:
            raise Disagreement(f"the column {column.name!r} is missing.")
        position, own_column = recorded.pop((column.center, column.way))
        where = f"rescaling.columns.{position}"
        equal(own_column.name, column.name, f"{where}.name")
        if (column.center, column.way) == certified:
            continue  # the certified posterior itself, which is compared with its own terms
        _near(own_column.kl_nats, column.kl_nats, f"{where}.kl_nats")
        _near(own_column.charge_nats, column.charge_nats, f"{where}.charge_nats")
    odd = [c.name for _, c in recorded.values() if c.way not in _STEPS]
    if odd:
        raise Disagreement(f"there should be no column {odd[0]!r}.")


def _near(claimed: float, recomputed: float, field: str) -> None:
    if not abs(claimed - recomputed) <= _RELATIVE * (1.0 + abs(recomputed)):
        raise Disagreement(f"it says {claimed!r}, recomputed {recomputed!r}.", field)
