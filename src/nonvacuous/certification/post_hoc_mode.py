"""A given trained network: noise around its weights, a prior that its training data never saw.

Which amount of noise serves best is found by trying a grid on the bound examples, each in the best
gauge of the network (see ``gauge``). These choices are free: the bound holds for all posteriors at
once. The choice of the prior's scale is not, and is paid for as a union over its grid.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from nonvacuous.audit.evidence import Search
from nonvacuous.bounds import seeger
from nonvacuous.certification.candidate import (
    Candidate,
    RescalingFacts,
    frozen_copy,
    with_weights,
)
from nonvacuous.certification.columns import center_of, certified_way, comparison_columns
from nonvacuous.certification.gauge import Gauge, Rescaled, best_in_orbit, find_gauge
from nonvacuous.data import Examples, Split
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.distributions.priors import Prior
from nonvacuous.risk import Loss, estimate_risk
from nonvacuous.seeds import derived_seed
from nonvacuous.training import Progress

#: Standard deviations tried for the posterior.
POSTERIOR_SCALES = ScaleGrid.geometric(0.001, 0.3, 24)
#: Pairs of a draw and an example spent on each of them.
SEARCH_TRIALS = 10_000


def post_hoc_candidate(
    model: nn.Module,
    examples: Examples,
    split: Split,
    *,
    prior: Prior,
    posterior_scales: ScaleGrid,
    rescaling: bool,
    loss: Loss,
    failure: float,
    seed: int,
    device: torch.device,
    progress: Progress | None,
) -> Candidate:
    module = frozen_copy(model, device)
    bound_part = examples.subset(split.bound).to(device)
    gauge = find_gauge(module, examples, prior, loss) if rescaling else "it was not asked for"
    search_seed = derived_seed(seed, "posterior scale search")
    best: tuple[float, float, Rescaled] | None = None
    for tried, scale in enumerate(posterior_scales.scales):
        found = _in_gauge(gauge, module, prior, scale)
        generator = torch.Generator(device=device).manual_seed(search_seed)
        estimate = estimate_risk(
            with_weights(module, found.posterior.means),
            found.posterior,
            bound_part,
            loss=loss,
            trials=SEARCH_TRIALS,
            generator=generator,
        )
        value = seeger(
            empirical_risk=estimate.total / estimate.trials,
            kl_nats=found.kl_nats,
            examples=len(split.bound),
            failure=failure,
        )
        if best is None or value < best[0]:
            best = (value, scale, found)
        if progress is not None:
            message = f"noise {scale:.4g} gives {value:.3f}"
            progress("noise", tried + 1, len(posterior_scales), message)
    assert best is not None
    _, scale, found = best
    facts = _facts(gauge, module, prior, found)
    where = "around the given weights" if facts is None else "around the weights, rescaled,"
    return Candidate(
        module=with_weights(module, found.posterior.means),
        split=split,
        prior=found.prior,
        posterior=found.posterior,
        prior_description=prior.description,
        posterior_description=f"Gaussian {where} with scale {scale:.6g}",
        prior_choices=_choices(prior, module),
        saw=split.prior if len(split.prior) else None,
        fixed_before=prior.fixed,
        start=with_weights(module, prior.means)
        if prior.kind == "initialization" and prior.means is not None
        else None,
        saw_digest=prior.saw,
        searches=_searches(prior, module, posterior_scales, facts),
        draws=(("posterior scale search", search_seed),),
        rescaling=facts,
        graph=gauge.graph if isinstance(gauge, Gauge) else None,
    )


def _in_gauge(gauge: Gauge | str, module: nn.Module, prior: Prior, scale: float) -> Rescaled:
    if isinstance(gauge, Gauge):
        return best_in_orbit(gauge, module, prior, scale)
    posterior = DiagonalGaussian.around(module, scale=scale)
    chosen = prior.choose(module, posterior).distribution
    return Rescaled(posterior, chosen, np.zeros(0), posterior.kl_nats(chosen))


def _facts(
    gauge: Gauge | str, module: nn.Module, prior: Prior, found: Rescaled
) -> RescalingFacts | None:
    """The same randomized network accounted for in other ways: who earns the improvement?"""
    if not isinstance(gauge, Gauge):
        return None
    compared = comparison_columns(
        found.posterior,
        gauge.hidden,
        gauge.groups,
        found.log_scales,
        center=center_of(prior.kind),
        means=found.prior.means,
        grid=prior.grid,
    )
    return RescalingFacts(
        log_scales=found.log_scales,
        kl_before=compared.before(center_of(prior.kind), per_tensor=prior.per_tensor),
        kl_after=found.kl_nats,
        columns=compared.columns,
        center=center_of(prior.kind),
        way=certified_way(gauge.hidden, gauge.groups, prior.grid, per_tensor=prior.per_tensor),
        charge_nats=prior.charge_nats(module),
    )


def _searches(
    prior: Prior, module: nn.Module, scales: ScaleGrid, facts: RescalingFacts | None
) -> tuple[Search, ...]:
    free = "the bound holds for all posteriors at once"
    searches = [Search("posterior scale", len(scales), charge="free", reason=free)]
    if facts is not None:
        searches.append(Search("rescaling", facts.log_scales.size + 1, charge="free", reason=free))
    if len(prior.grid) > 1:
        reason = "a union over the grid of scales that was fixed before the data"
        choices = _choices(prior, module)
        searches.append(Search("prior scale", choices, charge="bound", reason=reason))
    return tuple(searches)


def _choices(prior: Prior, module: nn.Module) -> int:
    tensors = len(list(module.named_parameters())) if prior.per_tensor else 1
    return len(prior.grid) ** tensors
