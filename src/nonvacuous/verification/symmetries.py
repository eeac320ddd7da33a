"""The symmetries of the network: what they save, and the columns that compare with and without."""

from __future__ import annotations

from typing import Any

from torch import nn

from nonvacuous.certificate import Certificate
from nonvacuous.certification.columns import Compared, comparison_columns, first_step
from nonvacuous.certification.gauge import free_scales
from nonvacuous.data import Examples
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.errors import Unsupported
from nonvacuous.networks import LayerGraph
from nonvacuous.records import RescalingRecord
from nonvacuous.rescaling.columns import Center
from nonvacuous.rules.symmetries import (
    captured,
    disagreeing_saving,
    symmetry_savings,
    used_in,
)
from nonvacuous.verification.findings import Collector, Disagreement, equal
from nonvacuous.verification.run_folder import Contents

_SAVINGS = "symmetries save what is recorded"
_COLUMNS = "the rescaling columns follow from the stored tensors"
#: Descents on two machines may end this far apart, relative to the KL.
_RELATIVE = 1e-6


def skip_symmetries(certificate: Certificate, findings: Collector, why: str) -> None:
    """Note that these questions were not asked, where there was something to ask."""
    if certificate.complexity is not None and certificate.complexity.symmetries:
        findings.skip(_SAVINGS, "complexity.symmetries", why)
    if certificate.rescaling is not None and certificate.rescaling.columns:
        # Comparisons: the promise does not use them.
        findings.skip(_COLUMNS, "rescaling.columns", why, needed=False)


def check_symmetries(
    certificate: Certificate,
    contents: Contents,
    module: nn.Module,
    bound_part: Examples,
    findings: Collector,
) -> None:
    """Recompute from prior, posterior and network. Nothing is asked where none was used."""
    complexity, rescaling = certificate.complexity, certificate.rescaling
    posterior, prior = contents.posterior, contents.prior
    if complexity is None or posterior is None or prior is None:
        skip_symmetries(certificate, findings, "prior and posterior are not both at hand.")
        return
    if not complexity.symmetries and (rescaling is None or not rescaling.columns):
        return
    try:
        graph = captured(module, bound_part.inputs)
    except Unsupported as error:
        # Another version of torch may see the network otherwise than the one that made it.
        skip_symmetries(certificate, findings, f"the network cannot be captured here: {error}")
        return

    def savings() -> str:
        again = symmetry_savings(
            graph,
            posterior,
            prior,
            loss=certificate.loss.name,
            which=used_in(complexity),
        )
        wrong = disagreeing_saving(complexity.symmetries, again)
        if wrong is not None:
            raise Disagreement(f"{wrong}.")
        return f"{complexity.symmetry_nats:.6g} nats, recomputed from the stored tensors."

    if complexity.symmetries:
        findings.expect(_SAVINGS, "complexity.symmetries", savings)
    if rescaling is None or not rescaling.columns:
        return
    if contents.log_scales is None or not _scales(contents.settings):
        why = "the scales and settings of the run are not at hand."
        findings.skip(_COLUMNS, "rescaling.columns", why, needed=False)
        return
    findings.expect(
        _COLUMNS,
        "rescaling.columns",
        lambda: _columns(certificate, rescaling, contents, graph),
    )


def _prior_of(settings: dict[str, Any]) -> dict[str, Any]:
    """The scales of the prior and whose they are; runs of the first format have them on top."""
    if "format" not in settings:
        names = {"prior_scales": "scales", "prior_per_tensor": "per_tensor"}
        return {new: settings[old] for old, new in names.items() if old in settings}
    prior = settings.get("method", {}).get("prior")
    return prior if isinstance(prior, dict) else {}


def _scales(settings: dict[str, Any]) -> tuple[float, ...]:
    scales = _prior_of(settings).get("scales")
    return tuple(scales) if isinstance(scales, list) else ()


def _columns(
    certificate: Certificate,
    rescaling: RescalingRecord,
    contents: Contents,
    graph: LayerGraph,
) -> str:
    posterior, prior, log_scales = contents.posterior, contents.prior, contents.log_scales
    assert posterior is not None and prior is not None and log_scales is not None
    hidden, groups = free_scales(graph, certificate.loss.name)
    own = next(column.center for column in rescaling.columns if column.certified)
    compared = comparison_columns(
        posterior,
        hidden,
        groups,
        log_scales,
        center=own,
        means=prior.means,
        grid=ScaleGrid(_scales(contents.settings)),
    )
    _compare(rescaling, compared, own)
    per_tensor = bool(_prior_of(contents.settings).get("per_tensor"))
    _near(rescaling.kl_before, compared.before(own, per_tensor=per_tensor), "rescaling.kl_before")
    return f"{len(compared.columns)} of {len(rescaling.columns)} columns, recomputed."


def _compare(rescaling: RescalingRecord, compared: Compared, own: Center) -> None:
    certified = (own, first_step(rescaling.columns))
    recorded = {(c.center, c.way): (n, c) for n, c in enumerate(rescaling.columns)}
    for column in compared.columns:
        if (column.center, column.way) not in recorded:
            raise Disagreement(f"the column {column.name!r} is missing.")
        position, found = recorded.pop((column.center, column.way))
        where = f"rescaling.columns.{position}"
        equal(found.name, column.name, f"{where}.name")
        if (column.center, column.way) == certified:
            continue  # the certified posterior itself, which is compared with its own terms
        _near(found.kl_nats, column.kl_nats, f"{where}.kl_nats")
        _near(found.charge_nats, column.charge_nats, f"{where}.charge_nats")
    steps = {"scale of the scores", "shift of the scores", "order of the units"}
    odd = [c.name for _, c in recorded.values() if c.way not in steps]
    if odd:
        raise Disagreement(f"there should be no column {odd[0]!r}.")


def _near(claimed: float, recomputed: float, field: str) -> None:
    if not abs(claimed - recomputed) <= _RELATIVE * (1.0 + abs(recomputed)):
        raise Disagreement(f"it says {claimed!r}, recomputed {recomputed!r}.", field)
