"""Audit first, compute then: every check whose facts are known before anything is trained."""

from __future__ import annotations

from torch import nn

from nonvacuous.audit.evidence import StoredEvidence
from nonvacuous.audit.registry import required
from nonvacuous.certification.candidate import frozen_copy
from nonvacuous.certification.job import Job
from nonvacuous.certification.versions import software
from nonvacuous.errors import Refused


def refuse_beforehand(job: Job, model: nn.Module) -> None:
    """Raise what the audit would say at the end anyway; whatever needs results is left to it."""
    split = job.split
    transform = "; ".join(job.examples.preprocessing) or "as given"
    evidence = StoredEvidence(
        software(job.device)["nonvacuous"],
        mode=job.mode,
        predictor=job.predictor,
        module=frozen_copy(model, job.device),
        examples=job.examples,
        split=split,
        loss=job.loss,
        seed=job.seed,
        evaluation_transform=transform,
        preprocessing_saw=split.prior if job.standardized else None,
        prior_saw=split.prior if len(split.prior) else None,
        test=job.test,
        attempts_paid=job.attempts,
        groups_declared=None,
        pretrained=job.pretrained,
        unseen=getattr(job.method, "unseen", False),
        start=job.method.starting_network(model, job.device),
    )
    for check in required(mode=job.mode, predictor=job.predictor):
        outcome = check.on_part(evidence)
        if outcome is not None and outcome.effect == "refused":
            raise Refused(f"refused before anything was computed: {check.name}? {outcome.detail}")
