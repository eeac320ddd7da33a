"""A given trained network: noise around its weights, a prior that its training data never saw.

Which amount of noise serves best is found by trying a grid on the bound examples. That choice is
free: the bound holds for all posteriors at once. The choice of the prior's scale is not, and is
paid for as a union over its grid.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from nonvacuous.audit.evidence import Search
from nonvacuous.bounds import seeger
from nonvacuous.certification.candidate import Candidate, frozen_copy, with_weights
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
    loss: Loss,
    failure: float,
    seed: int,
    device: torch.device,
    progress: Progress | None,
) -> Candidate:
    module = frozen_copy(model, device)
    bound_part = examples.subset(split.bound).to(device)
    search_seed = derived_seed(seed, "posterior scale search")
    best: tuple[float, DiagonalGaussian, DiagonalGaussian] | None = None
    for tried, scale in enumerate(posterior_scales.scales):
        posterior = DiagonalGaussian.around(module, scale=scale)
        chosen = prior.choose(module, posterior).distribution
        generator = torch.Generator(device=device).manual_seed(search_seed)
        estimate = estimate_risk(
            module, posterior, bound_part, loss=loss, trials=SEARCH_TRIALS, generator=generator
        )
        value = seeger(
            empirical_risk=estimate.total / estimate.trials,
            kl_nats=posterior.kl_nats(chosen),
            examples=len(split.bound),
            failure=failure,
        )
        # Among vacuous scales the least KL is the least hopeless.
        order = value if value < 1.0 else 1.0 + math.log1p(posterior.kl_nats(chosen))
        if best is None or order < best[0]:
            best = (order, posterior, chosen)
        if progress is not None:
            message = f"noise {scale:.4g} gives {value:.3f}"
            progress("noise", tried + 1, len(posterior_scales), message)
    assert best is not None
    _, posterior, chosen = best
    scale = float(next(iter(posterior.scales.values())).flatten()[0])
    searches = [
        Search(
            "posterior scale",
            len(posterior_scales),
            charge="free",
            reason="the bound holds for all posteriors at once",
        )
    ]
    if len(prior.grid) > 1:
        searches.append(
            Search(
                "prior scale",
                _choices(prior, module),
                charge="bound",
                reason="a union over the grid of scales that was fixed before the data",
            )
        )
    return Candidate(
        module=module,
        split=split,
        prior=chosen,
        posterior=posterior,
        prior_description=prior.description,
        posterior_description=f"Gaussian around the given weights with scale {scale:.6g}",
        prior_choices=_choices(prior, module),
        saw=split.prior if len(split.prior) else None,
        fixed_before=prior.fixed,
        start=with_weights(module, prior.means)
        if prior.kind == "initialization" and prior.means is not None
        else None,
        saw_digest=prior.saw,
        searches=tuple(searches),
        draws=(("posterior scale search", search_seed),),
    )


def _choices(prior: Prior, module: nn.Module) -> int:
    tensors = len(list(module.named_parameters())) if prior.per_tensor else 1
    return len(prior.grid) ** tensors
