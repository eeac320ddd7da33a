"""Train a posterior: a prior, data-free or learned on one part of the data, then Q on all."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from nonvacuous.certificate import Certificate
from nonvacuous.certification.assemble import candidate_certificate, measured_best
from nonvacuous.certification.candidate import (
    Candidate,
    frozen_copy,
    prior_choices,
    require_stored_state,
    save_candidate,
    scale_search,
    with_stored_state,
    with_weights,
)
from nonvacuous.certification.job import Job
from nonvacuous.certification.measurement import candidate_twin, observation
from nonvacuous.data import Examples
from nonvacuous.distributions import grids, priors
from nonvacuous.distributions.copying import last_layer, with_fixed
from nonvacuous.errors import BadInput
from nonvacuous.methods.posterior import Posterior
from nonvacuous.rules import digests, drawing
from nonvacuous.seeds import derived_seed
from nonvacuous.training.erm import train
from nonvacuous.training.posterior import PosteriorSettings, train_posterior
from nonvacuous.training_settings import PlainTraining

#: So many examples show whether the prior's network can be made again.
_COMPARED = 2048


def make(method: Posterior, job: Job, model: nn.Module) -> Certificate:
    candidate = posterior_candidate(method, job, model)
    save_candidate(job.folder, candidate)
    # Where weights are fixed, the twin trains the others alone.
    start = with_weights(candidate.module, candidate.prior.means)
    twin = candidate_twin(job, candidate, start, method.plain_training) if method.twin else None
    _, measured = measured_best(job, [candidate])
    return candidate_certificate(job, candidate, measured, twin)


def posterior_candidate(method: Posterior, job: Job, model: nn.Module) -> Candidate:
    """Prior at the start, or learned on ``split.prior`` where the split has such a part.

    The posterior may learn from all examples: the bound counts those of ``split.bound`` alone.
    """
    examples, split, grid = job.examples, job.split, grids.ScaleGrid(method.scales)
    start = frozen_copy(model, job.device)
    draws: list[tuple[str, int]] = []
    saw = split.prior if len(split.prior) else None
    tilt = None

    def random_where_asked(network: nn.Module) -> nn.Module:
        if method.random == "all":
            return network
        return with_fixed(network, last_layer(network, examples.inputs[:2].to(job.device)))

    if saw is not None:
        tilted = method.tilt and method.predictor == "stochastic"
        fitted, aside = drawing.set_aside(saw, job.seed) if tilted else (saw, saw[:0])
        prior_seed = derived_seed(job.seed, "prior training")
        draws.append(("prior training", prior_seed))
        part, plain = examples.subset(fitted), method.plain_training
        prior_network = _train_prior(job, model, part, plain, prior_seed)
        rebuilt = with_stored_state(start, prior_network)
        few = part.subset(np.arange(min(_COMPARED, len(part))))
        require_stored_state(prior_network, rebuilt, few, whose="the prior's network")
        center = random_where_asked(prior_network)
        if len(aside):
            tilt = observation(drawing.OBSERVED, center, examples.subset(aside))
        family: priors.Prior = priors.learned(center, indices=saw, grid=grid)
    elif method.prior is not None:
        family = method.prior
        center = _centered(start, family)
    else:
        center = random_where_asked(start)
        family = priors.at_initialization(center, grid=grid)
    # Train against the middle of the grid; the member that fits best is chosen (and paid) below.
    prior = family.at(center, grid.scales[len(grid) // 2])
    posterior_seed = derived_seed(job.seed, "posterior training")
    draws.append(("posterior training", posterior_seed))
    settings = method.training
    trained = train_posterior(
        center,
        prior,
        examples,
        PosteriorSettings(**dict(settings), failure=job.failure, bound_examples=len(split.bound)),
        seed=posterior_seed,
        device=job.device,
        records=job.records("posterior.checkpoint"),
    )
    if len(grid) > 1:
        prior = family.choose(center, trained.posterior)
    return Candidate(
        module=with_weights(center, trained.posterior.means),
        prior=prior,
        posterior=trained.posterior,
        prior_description=family.description,
        posterior_description=trained_description(settings.objective),
        prior_choices=prior_choices(family, center),
        prior_saw=saw,
        fixed_before=family.fixed,
        start=start,
        prior_saw_digest=family.saw,
        prior_given=method.prior is not None,
        searches=scale_search(family, center),
        draws=tuple(draws),
        tilt=tilt,
    )


def _centered(start: nn.Module, prior: priors.Prior) -> nn.Module:
    """The network at the center of a pretrained prior, which must be a prior of this network."""
    assert prior.means is not None and prior.fixed is not None
    center = with_fixed(start, prior.means)
    own = digests.fixed_tensors(center, prior.means)
    for name in own.keys() | prior.fixed.keys():
        if (
            name not in own
            or name not in prior.fixed
            or not torch.equal(own[name].cpu(), prior.fixed[name].cpu())
        ):
            raise BadInput(
                f"{name!r} is fixed, and not the same in the network and in the prior; build "
                "nv.priors.pretrained from the network that is certified"
            )
    return with_weights(center, prior.means)


def trained_description(objective: str) -> str:
    """The posterior in words."""
    return f"Gaussian trained on the {objective} objective"


def _train_prior(
    job: Job, model: nn.Module, prior_part: Examples, settings: PlainTraining, seed: int
) -> nn.Module:
    fitted, watched = prior_part, None
    if settings.patience is not None:
        # A tenth of the prior part decides when to stop: no bound example has a say.
        order = np.random.default_rng(seed).permutation(len(prior_part))
        watched = prior_part.subset(order[: max(1, len(order) // 10)])
        fitted = prior_part.subset(order[max(1, len(order) // 10) :])
    return train(
        model,
        fitted,
        settings,
        validation=watched,
        seed=seed,
        device=job.device,
        records=job.records("prior.checkpoint"),
    ).module.requires_grad_(False)
