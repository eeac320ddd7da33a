"""The empirical risk of a frozen posterior and the bound on its risk: every number paid for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from nonvacuous.certification.candidate import Candidate, with_weights
from nonvacuous.certification.counting import summed_loss
from nonvacuous.certification.job import Job
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.records import BoundRecord, BudgetRecord, ComplexityRecord, RiskRecord
from nonvacuous.risk import estimate_risk
from nonvacuous.rules.arithmetic import (
    BOUND_LINE,
    SAMPLING_LINE,
    bound_record,
    line,
    sampled_risk,
    share,
)
from nonvacuous.rules.drawing import draw_network, sampling_seed
from nonvacuous.rules.paying import ledger
from nonvacuous.rules.tilting import temperature


@dataclass(frozen=True, eq=False)
class Measured:
    """The numbers of one certificate, before anybody has looked for mistakes in them."""

    budget: BudgetRecord
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
    budget = _ledger(job, candidate, sampled=True)
    # The seed depends on the frozen posterior: it did not exist before, and is used once.
    seed = sampling_seed(job.seed, posterior_digest, candidate.noise_digest)
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
    risk = RiskRecord(
        **risk_fields, risk_upper=sampled_risk(draft, share(line(budget, SAMPLING_LINE)))
    )
    return Measured(
        budget=budget,
        risk=risk,
        bound=_pac_bayes(candidate, risk, complexity, share(line(budget, BOUND_LINE))),
        complexity=complexity,
        draws=(("sampling", seed),),
        measured_predictor="stochastic",
    )


def _pac_bayes(
    candidate: Candidate, risk: RiskRecord, complexity: ComplexityRecord, failure: float
) -> BoundRecord:
    """At the temperature that prior examples chose, or for all temperatures at once."""
    common: dict[str, Any] = {
        "empirical_risk": risk.risk_upper,
        "kl_nats": complexity.kl_nats,
        "examples": len(candidate.split.bound),
        "failure": failure,
    }
    if candidate.tilt is None:
        return bound_record("seeger", **common, exact_moment=True)
    suits = temperature(
        errors=candidate.tilt.errors,
        trials=candidate.tilt.trials,
        examples=len(candidate.split.bound),
        failure=failure,
    )
    return bound_record("catoni", **common, temperature=suits)


def measure_drawn(
    job: Job,
    candidate: Candidate,
    posterior_digest: str,
    complexity: ComplexityRecord,
) -> Measured:
    budget = _ledger(job, candidate, sampled=False)
    seed = sampling_seed(job.seed, posterior_digest, candidate.noise_digest)
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
            failure=share(line(budget, BOUND_LINE)),
            exact_moment=True,
        ),
        complexity=complexity.model_copy(update={"log_density_ratio": ratio}),
        draws=(("sampling", seed),),
        measured_predictor="drawn",
        drawn=weights,
    )


def _ledger(job: Job, candidate: Candidate, *, sampled: bool) -> BudgetRecord:
    return ledger(
        mode=job.mode,
        failure=job.failure,
        attempts=job.attempts,
        sampled=sampled,
        choices=candidate.prior_choices,
    )
