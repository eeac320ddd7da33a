"""A given trained network: noise around its weights, a prior that its training data never saw.

Which noise serves best is tried on the bound examples (see ``noise_search``), and the posterior is
moved to the gauge where its KL is smallest (see ``gauge``). These choices are free: the bound holds
for all posteriors at once. The choice of the prior's scale is not, and is paid for as a union over
its grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from nonvacuous.audit.evidence import Search
from nonvacuous.certificate import Certificate
from nonvacuous.certification import assemble, columns, measurement
from nonvacuous.certification.adapting import FOLDED, folded, folded_prior, has_batch_norm
from nonvacuous.certification.candidate import (
    Candidate,
    frozen_copy,
    prior_choices,
    save_candidate,
    scale_search,
    start_at,
    with_weights,
)
from nonvacuous.certification.gauge import Gauge, Rescaled, find_gauge
from nonvacuous.certification.job import Job
from nonvacuous.certification.noise_search import NoiseSearch
from nonvacuous.distributions import grids, priors
from nonvacuous.kinds import Center, Way
from nonvacuous.methods.post_hoc import PostHoc
from nonvacuous.records import BOUND_LINE, SAMPLING_LINE, RescalingRecord
from nonvacuous.rules.digests import array_digest
from nonvacuous.seeds import derived_seed

#: Standard deviations tried for the posterior.
POSTERIOR_SCALES = grids.ScaleGrid.geometric(0.001, 0.3, 24)
_WHERE = {
    "given": "the given weights",
    "balanced": "the balanced weights",
    "nearest": "the weights in the gauge nearest to the prior's center",
    "cheapest": "the weights in the gauge that the prior prefers",
}


def make(method: PostHoc, job: Job, model: nn.Module) -> Certificate:
    split, prior, network, note = job.split, method.family, model, ""
    if has_batch_norm(model):
        inputs = job.examples.inputs[:2]
        prior, network, note = folded_prior(model, prior, inputs), folded(model, inputs), FOLDED
    module = frozen_copy(network, job.device)
    given = method.posterior_scales
    scales = POSTERIOR_SCALES if given is None else grids.ScaleGrid(given)
    gauge = find_gauge(module, job.examples, prior, job.loss) if method.rescaling else None
    seed = derived_seed(job.seed, "posterior scale search")
    chosen, noise_digest = NoiseSearch(job, module, prior, scales, gauge, seed).run()
    rescaled, free = gauge is not None, "the bound holds for all posteriors at once"
    searches = [Search("posterior scale", len(scales), charge="free", reason=free)]
    if gauge is not None:
        moves = gauge.groups.size + 1
        searches.append(Search("posterior gauge", len(gauge.wheres), charge="free", reason=free))
        searches.append(Search("rescaling", moves, charge="free", reason=free))
    searches += scale_search(prior, module)
    if len(chosen) > 1:
        line = SAMPLING_LINE if job.predictor == "stochastic" else BOUND_LINE
        reason = "all of them were sampled, and the smallest bound is issued"
        searches.append(Search("posterior measured", len(chosen), charge=line, reason=reason))
    candidates = [
        Candidate(
            module=with_weights(module, best.rescaled.posterior.means),
            prior=best.rescaled.prior,
            posterior=best.rescaled.posterior,
            prior_description=prior.description,
            posterior_description=_noise_text(best.where, best.scale, rescaled=rescaled) + note,
            prior_choices=prior_choices(prior, module),
            prior_saw=split.prior if len(split.prior) else None,
            fixed_before=prior.fixed,
            start=start_at(module, prior),
            prior_saw_digest=prior.saw,
            searches=tuple(searches),
            draws=(("posterior scale search", seed),),
            prior_given=True,
            noise_digest=noise_digest,
            graph=None if gauge is None else gauge.graph,
            complexity=complexity,
            measured=len(chosen),
        )
        for best, complexity in chosen
    ]
    candidate, measured = assemble.measured_best(job, candidates)
    if gauge is not None:
        moved = chosen[candidates.index(candidate)][0].rescaled
        rescaling = _rescaling(gauge, module, prior, moved, noise_digest, measured)
        candidate = replace(candidate, rescaling=rescaling, log_scales=moved.log_scales)
    save_candidate(job.folder, candidate)
    twin, means = None, method.family.means
    if method.twin and (candidate.prior_saw is not None or means is not None):
        # A zero-mean prior says nothing about where training starts.
        start = model if means is None else with_weights(model, means)
        twin = measurement.candidate_twin(job, candidate, start, method.plain_training)
    return assemble.candidate_certificate(job, candidate, measured, twin)


def noise_descriptions(scales: Sequence[float], *, rescaled: bool) -> frozenset[str]:
    """Every posterior that these scales allow, in words."""
    plain = frozenset(_noise_text(w, s, rescaled=rescaled) for w in _WHERE for s in scales)
    return plain | {f"{text}{FOLDED}" for text in plain}


def _noise_text(where: str, scale: float, *, rescaled: bool) -> str:
    moved = ", then rescaled" if rescaled else ""
    return f"Gaussian around {_WHERE[where]} with scale {scale:.6g}{moved}"


def _rescaling(
    gauge: Gauge,
    module: nn.Module,
    prior: priors.Prior,
    moved: Rescaled,
    noise_digest: str | None,
    measured: measurement.Measured,
) -> RescalingRecord:
    """The same randomized network accounted for in other ways: who earns the improvement?"""
    assert prior.kind != "pretrained"  # given weights take no such prior
    assert measured.complexity is not None
    center: Center = "zero" if prior.kind == "zero-mean" else prior.kind
    compared = columns.comparison_columns(
        moved.posterior,
        gauge.hidden,
        gauge.groups,
        moved.log_scales,
        center=center,
        means=moved.prior.means,
        grid=prior.grid,
        per_tensor=prior.per_tensor,
    )
    # Where the certified posterior stands before further symmetries are forgotten.
    way: Way = "best scale per tensor, rescaled" if prior.per_tensor else "best scale, rescaled"
    if gauge.groups.size > gauge.hidden.size:
        way = "scale of the scores"
    elif len(prior.grid) == 1:
        way = "fixed scale, rescaled"
    charge_nats = prior.charge_nats(module)
    steps = columns.certified_steps(center, way, charge_nats, measured.complexity)
    return RescalingRecord(
        kl_before=compared.before,
        kl_after=moved.kl_nats,
        log_scales_digest=array_digest(moved.log_scales),
        noise_digest=noise_digest,
        columns=columns.column_records(steps, compared.columns, measured.bound, measured.budget),
        paper=columns.paper_accounting(compared.paper, measured.risk, measured.bound),
    )
