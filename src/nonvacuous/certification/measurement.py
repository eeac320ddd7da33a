"""A frozen posterior in numbers: its empirical risk, its cost, the bound, all paid for; and error
rates beside the promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from nonvacuous import records
from nonvacuous.certification.candidate import Candidate, with_weights
from nonvacuous.certification.job import Job
from nonvacuous.data import Examples
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks import LayerGraph
from nonvacuous.risk.losses import Loss, zero_one
from nonvacuous.risk.pairs import estimate_risk
from nonvacuous.rules import arithmetic
from nonvacuous.rules.drawing import draw_network, sampling_seed, temperature
from nonvacuous.rules.symmetries import symmetry_savings
from nonvacuous.seeds import derived_seed

_BATCH = 2048


def summed_loss(module: nn.Module, examples: Examples, loss: Loss) -> float:
    """The sum of the loss over the examples, each seen once by the network in evaluation mode."""
    device = next(module.parameters(), torch.empty(0)).device
    total = torch.zeros((), dtype=torch.float64, device=device)
    with torch.no_grad():
        for start in range(0, len(examples), _BATCH):
            inputs = examples.inputs[start : start + _BATCH].to(device)
            labels = examples.labels[start : start + _BATCH].to(device)
            total += loss(module(inputs), labels).double().sum()
    return float(total)


def count_errors(module: nn.Module, examples: Examples) -> int:
    """How many examples the network gets wrong; a tie is an error."""
    return round(summed_loss(module, examples, zero_one))


@dataclass(frozen=True, eq=False)
class Measured:
    """The numbers of one certificate, before anybody has looked for mistakes in them."""

    budget: records.BudgetRecord
    risk: records.RiskRecord
    bound: records.BoundRecord
    measured_predictor: str
    complexity: records.ComplexityRecord | None = None
    #: (purpose, seed) of every random stream used on the way.
    draws: tuple[tuple[str, int], ...] = ()
    drawn: dict[str, torch.Tensor] | None = None
    #: Facts for the audit that only certificates of one kind have.
    facts: dict[str, Any] = field(default_factory=dict)


def measure(job: Job, candidate: Candidate, complexity: records.ComplexityRecord) -> Measured:
    """The posterior, or one network drawn from it: whatever the promise is about."""
    drawn = job.predictor == "drawn"
    budget = job.budget(
        sampled=not drawn, choices=candidate.prior_choices, measured=candidate.measured
    )
    failure = budget.bound.share
    # The seed depends on the frozen posterior: it did not exist before, and is used once.
    frozen = frozen_posterior(candidate.posterior)
    seed = sampling_seed(job.seed, frozen["posterior_at_risk"], candidate.noise_digest)
    weights = None
    if drawn:
        weights = draw_network(candidate.posterior, seed)
        weights = {name: tensor.to(job.device) for name, tensor in weights.items()}
        risk = _drawn_risk(job, with_weights(candidate.module, weights), seed)
        ratio = candidate.posterior.log_density_ratio(candidate.prior, weights)
        complexity = complexity.model_copy(update={"log_density_ratio": ratio})
        bound = arithmetic.bound_record(
            "disintegrated",
            empirical_risk=risk.risk_upper,
            log_density_ratio=ratio,
            examples=len(job.split.bound),
            failure=failure,
            exact_moment=True,
        )
    else:
        risk = _sampled_risk(job, candidate, seed, budget.sampling.share)
        bound = _pac_bayes(job, candidate, risk, complexity, failure)
    sampled = (("sampling", seed),)
    return Measured(budget, risk, bound, job.predictor, complexity, sampled, weights, frozen)


def frozen_posterior(posterior: DiagonalGaussian) -> dict[str, str]:
    """For the audit: the posterior as it is between its KL and the measuring of its risk."""
    digest = posterior.digest()
    return {"posterior_at_kl": digest, "posterior_at_risk": digest}


def _drawn_risk(job: Job, network: nn.Module, seed: int) -> records.RiskRecord:
    loss = summed_loss(network, job.bound_part, job.loss)
    counts: Any = {"errors": round(loss)} if job.loss.binary else {"errors": None, "total": loss}
    return arithmetic.counted_once(**counts, trials=len(job.split.bound), seed=seed)


def _sampled_risk(job: Job, candidate: Candidate, seed: int, failure: float) -> records.RiskRecord:
    progress = job.progress
    estimate = estimate_risk(
        candidate.module,
        candidate.posterior,
        job.bound_part.to(job.device),
        loss=job.loss,
        trials=job.trials,
        generator=torch.Generator(device=job.device).manual_seed(seed),
        progress=None
        if progress is None
        else lambda done, total: progress("sampling", done, total, "independent trials"),
    )
    return arithmetic.risk_record(
        failure,
        errors=estimate.errors,
        total=estimate.total if estimate.errors is None else None,
        trials=estimate.trials,
        scheme="pairs",
        identical=estimate.identical,
        seed=seed,
    )


def _pac_bayes(
    job: Job,
    candidate: Candidate,
    risk: records.RiskRecord,
    complexity: records.ComplexityRecord,
    failure: float,
) -> records.BoundRecord:
    """At the temperature that prior examples chose, or for all temperatures at once."""
    common: dict[str, Any] = {
        "empirical_risk": risk.risk_upper,
        "kl_nats": complexity.kl_nats,
        "examples": len(job.split.bound),
        "failure": failure,
    }
    tilt = candidate.tilt
    if tilt is None:
        return arithmetic.bound_record("seeger", **common, exact_moment=True)
    examples = common["examples"]
    suits = temperature(errors=tilt.errors, trials=tilt.trials, examples=examples, failure=failure)
    return arithmetic.bound_record("catoni", **common, temperature=suits)


def complexity_of(
    job: Job,
    posterior: DiagonalGaussian,
    prior: DiagonalGaussian,
    graph: LayerGraph | None,
    *,
    overlaps: bool = True,
) -> records.ComplexityRecord:
    """The complexity that enters the bound; without a graph no symmetry is known.

    Without ``overlaps`` units are not compared, which takes long, and it is no larger.
    """
    terms = tuple(
        records.KlTerm(tensor=name, size=posterior.means[name].numel(), nats=nats)
        for name, nats in posterior.kl_to(prior).items()
    )
    savings: tuple[records.SymmetrySaving, ...] = ()
    which, loss = job.method.quotients, job.loss.name
    if which and graph is not None:
        savings = symmetry_savings(
            graph, posterior, prior, loss=loss, which=which, overlaps=overlaps
        )
    return records.ComplexityRecord(
        terms=terms, symmetries=savings, kl_nats=arithmetic.complexity_nats(terms, savings)
    )


ON_BOUND, ON_TEST = "on the bound examples", "on the test examples"
RANDOMIZED_ON_TEST = f"the randomized network {ON_TEST}"
#: Trials of the randomized network on the test examples, at most.
_TRIALS = 20_000


def observed_network(predictor: str) -> str:
    return "the network" if predictor == "deterministic" else "the network with the mean weights"


def observation_seed(seed: int, posterior_digest: str) -> int:
    return derived_seed(seed, "test", posterior_digest)


def observations(
    job: Job, module: nn.Module, posterior: DiagonalGaussian | None
) -> tuple[records.Observation, ...]:
    """Plain error rates; the test examples are read here, once, at the end."""
    network = observed_network(job.predictor)
    parts = [(ON_BOUND, job.bound_part)]
    if job.test is not None:
        parts.append((ON_TEST, job.test))
    observed = [
        records.Observation(
            name=f"{network} {where}", errors=count_errors(module, part), trials=len(part)
        )
        for where, part in parts
    ]
    if job.test is not None and job.predictor == "stochastic" and posterior is not None:
        seed = observation_seed(job.seed, posterior.digest())
        estimate = estimate_risk(
            module,
            posterior,
            job.test.to(job.device),
            loss=zero_one,
            trials=min(job.trials, _TRIALS),
            generator=torch.Generator(device=job.device).manual_seed(seed),
        )
        assert estimate.errors is not None
        observed.append(
            records.Observation(
                name=RANDOMIZED_ON_TEST, errors=estimate.errors, trials=estimate.trials
            )
        )
    return tuple(observed)
