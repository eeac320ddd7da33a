"""The plain test: a network's errors on examples that had no part in making it."""

from __future__ import annotations

from torch import nn

from nonvacuous.certificate import Certificate
from nonvacuous.certification import assemble, candidate, measurement
from nonvacuous.certification.job import Job
from nonvacuous.methods.held_out import HeldOut
from nonvacuous.rules.arithmetic import bound_record, counted_once
from nonvacuous.rules.digests import fixed_tensors


def make(method: HeldOut, job: Job, model: nn.Module) -> Certificate:
    module = candidate.frozen_copy(model, job.device)
    job.folder.tensors("network.safetensors", fixed_tensors(module))
    budget, bound_part = job.budget(sampled=False), job.bound_part
    failure = budget.bound.share
    errors = measurement.count_errors(module, bound_part)
    risk = counted_once(errors=errors, trials=len(bound_part), seed=job.seed)
    bound = bound_record("holdout", errors=errors, examples=len(bound_part), failure=failure)
    measured = measurement.Measured(budget, risk, bound, "deterministic")
    return assemble.seal(job, assemble.evidence_of(job, module, measured, unseen=method.unseen))
