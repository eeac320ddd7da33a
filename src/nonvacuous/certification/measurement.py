"""The empirical risk of a frozen posterior and the bound on its risk: every number paid for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from nonvacuous.audit.arithmetic import bound_record, sampled_risk
from nonvacuous.audit.drawing import draw_network, sampling_seed
from nonvacuous.bounds import ConfidenceBudget
from nonvacuous.certification.candidate import Candidate, with_weights
from nonvacuous.certification.counting import summed_loss
from nonvacuous.certification.job import Job
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.records import BoundRecord, ComplexityRecord, RiskRecord
from nonvacuous.risk import estimate_risk

#: The part of the failure probability that pays for Monte Carlo where there is any.
SAMPLING_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Measured:
    """The numbers of one certificate, before anybody has looked for mistakes in them."""

    budget: ConfidenceBudget
    risk: RiskRecord
    bound: BoundRecord
    complexity: ComplexityRecord | None
    draws: tuple[tuple[str, int], ...]
    measured_predictor: str
    drawn: dict[str, torch.Tensor] | None = None


def measure_stochastic(
    job: Job,
    candidate: Candidate,
    posterior_digest: str,
    complexity: ComplexityRecord,
) -> Measured:
    budget = open_budget(job)
    sampling_failure = budget.spend(
        "sampling", SAMPLING_SHARE * budget.remaining, reason="Monte-Carlo estimate of the risk"
    )
    share = _pay_bound(budget, candidate)
    # The seed depends on the frozen posterior: it did not exist before, and is used once.
    seed = sampling_seed(job.seed, posterior_digest)
    generator = torch.Generator(device=job.device).manual_seed(seed)
    progress = job.progress
    estimate = estimate_risk(
        candidate.module,
        candidate.posterior,
        job.examples.subset(candidate.split.bound).to(job.device),
        loss=job.loss,
        trials=job.trials,
        generator=generator,
        progress=None
        if progress is None
        else lambda done, total: progress("sampling", done, total, "independent trials"),
    )
    risk_fields: dict[str, Any] = {
        "errors": estimate.errors,
        "total": estimate.total if estimate.errors is None else None,
        "trials": estimate.trials,
        "scheme": "pairs",
        "identical": estimate.identical,
        "seed": seed,
    }
    draft = RiskRecord(**risk_fields, risk_upper=1.0)
    risk = RiskRecord(**risk_fields, risk_upper=sampled_risk(draft, sampling_failure))
    return Measured(
        budget=budget,
        risk=risk,
        bound=bound_record(
            "seeger",
            empirical_risk=risk.risk_upper,
            kl_nats=complexity.kl_nats,
            examples=len(candidate.split.bound),
            failure=share,
            exact_moment=True,
        ),
        complexity=complexity,
        draws=(("sampling", seed),),
        measured_predictor="stochastic",
    )


def measure_drawn(
    job: Job,
    candidate: Candidate,
    posterior_digest: str,
    complexity: ComplexityRecord,
) -> Measured:
    budget = open_budget(job)
    share = _pay_bound(budget, candidate)
    seed = sampling_seed(job.seed, posterior_digest)
    weights = draw_network(candidate.posterior, seed)
    drawn_file = job.folder.file("drawn.safetensors")
    if drawn_file is not None:
        save_tensors(drawn_file, weights, kind="weights")
    weights = {name: tensor.to(job.device) for name, tensor in weights.items()}
    bound_part = job.examples.subset(candidate.split.bound)
    total = summed_loss(with_weights(candidate.module, weights), bound_part, job.loss)
    fields: dict[str, Any] = {
        "errors": round(total) if job.loss.binary else None,
        "total": None if job.loss.binary else total,
        "trials": len(bound_part),
        "scheme": "every example once",
        "identical": True,
        "seed": seed,
    }
    draft = RiskRecord(**fields, risk_upper=1.0)
    risk = RiskRecord(**fields, risk_upper=sampled_risk(draft, None))
    ratio = candidate.posterior.log_density_ratio(candidate.prior, weights)
    return Measured(
        budget=budget,
        risk=risk,
        bound=bound_record(
            "disintegrated",
            empirical_risk=risk.risk_upper,
            log_density_ratio=ratio,
            examples=len(bound_part),
            failure=share,
            exact_moment=True,
        ),
        complexity=complexity.model_copy(update={"log_density_ratio": ratio}),
        draws=(("sampling", seed),),
        measured_predictor="drawn",
        drawn=weights,
    )


def open_budget(job: Job) -> ConfidenceBudget:
    budget = ConfidenceBudget(failure=job.failure)
    if job.attempts > 1:
        others = job.failure * (job.attempts - 1) / job.attempts
        budget.spend(
            "other certificates",
            others,
            reason=f"{job.attempts} certificates on the same examples share the confidence",
        )
    return budget


def _pay_bound(budget: ConfidenceBudget, candidate: Candidate) -> float:
    if candidate.prior_choices == 1:
        return budget.spend_rest("bound", reason="PAC-Bayes bound, prior fixed before the data")
    return budget.choose(
        "bound",
        budget.remaining,
        choices=candidate.prior_choices,
        reason="PAC-Bayes bound, union over the grid of prior scales",
    )
