"""From a frozen candidate to a sealed certificate: measure, bound, audit, seal.

Audited first, too: every check whose facts are known before anything is trained.
"""

from __future__ import annotations

import contextlib
import functools
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import scipy
import torch
from torch import nn

import nonvacuous
from nonvacuous import audit
from nonvacuous.audit.evidence import Evidence, Search, StoredEvidence
from nonvacuous.audit.registry import required
from nonvacuous.certificate import Certificate, status_of
from nonvacuous.certification.candidate import Candidate, RescalingFacts, frozen_copy
from nonvacuous.certification.columns import column_records, paper_accounting
from nonvacuous.certification.job import Job
from nonvacuous.certification.measurement import (
    Measured,
    complexity_of,
    measure,
    observations,
)
from nonvacuous.data import Examples, Split
from nonvacuous.errors import Refused, Unsupported
from nonvacuous.records import (
    BoundRecord,
    BudgetRecord,
    ComplexityRecord,
    DataRecord,
    DistributionRecord,
    LossRecord,
    ModelRecord,
    Observation,
    RescalingRecord,
    RiskRecord,
    TwinRecord,
)
from nonvacuous.rules.arithmetic import (
    baseline_record,
    recompute_bound,
    statement_of,
)
from nonvacuous.rules.digests import array_digest, example_set, fixed_tensors, tensors_digest
from nonvacuous.rules.outcomes import outcome_digest
from nonvacuous.rules.symmetries import captured


def measured_best(job: Job, candidates: Sequence[Candidate]) -> tuple[Candidate, Measured]:
    """The frozen posterior with the smallest bound; each of them pays for the choice."""
    all_measured = [(c, measure(job, c, complexity(job, c))) for c in candidates]
    return min(all_measured, key=lambda pair: recompute_bound(pair[1].bound))


def candidate_evidence(job: Job, candidate: Candidate, measured: Measured) -> Evidence:
    """The facts that a certificate with a prior is made from."""
    digest = candidate.posterior.digest()
    return evidence_of(
        job,
        candidate.module,
        measured_predictor=measured.measured_predictor,
        bound=measured.bound,
        budget=measured.budget,
        risk=measured.risk,
        searches=(*candidate.searches, *_symmetry_search(job)),
        prior=candidate.prior,
        posterior=candidate.posterior,
        complexity=measured.complexity,
        posterior_at_kl=digest,
        posterior_at_risk=digest,
        fixed_before=candidate.fixed_before,
        prior_saw=candidate.saw,
        prior_given=candidate.prior_given,
        draws=(*candidate.draws, ("freeze", 0), *measured.draws),
        pretrained=job.pretrained,
        start=candidate.start,
        graph=candidate.graph,
        drawn=measured.drawn,
        prior_saw_digest=candidate.saw_digest,
        tilt=candidate.tilt,
        noise_digest=candidate.noise_digest,
        **measured.facts,
    )


def candidate_certificate(
    job: Job, candidate: Candidate, measured: Measured, twin: TwinRecord | None
) -> Certificate:
    """A certificate for the posterior, one network drawn from it, or the one in its middle."""
    if measured.drawn is not None:
        job.folder.tensors("drawn.safetensors", measured.drawn, kind="weights")
    evidence = candidate_evidence(job, candidate, measured)
    shaped = None if evidence.data is None else evidence.data.prior
    saw = None if candidate.saw is None or shaped is None else shaped.index_digest
    digests = candidate.prior.digest(), candidate.posterior.digest()
    return seal(
        job,
        evidence,
        twin=twin,
        prior=DistributionRecord(
            description=candidate.prior_description, digest=digests[0], saw=saw
        ),
        posterior=DistributionRecord(
            description=candidate.posterior_description, digest=digests[1]
        ),
        rescaling=candidate.rescaling,
    )


def complexity(job: Job, candidate: Candidate) -> ComplexityRecord:
    if candidate.complexity is not None:
        return candidate.complexity
    graph = candidate.graph
    if graph is None and job.quotients:
        with contextlib.suppress(Unsupported):  # no graph, no symmetry that is known
            graph = captured(candidate.module, job.examples.inputs)
    return complexity_of(job, candidate.posterior, candidate.prior, graph)


def evidence_of(
    job: Job,
    module: nn.Module,
    *,
    measured_predictor: str,
    bound: BoundRecord,
    budget: BudgetRecord,
    risk: RiskRecord,
    **facts: Any,
) -> Evidence:
    """What every certificate is audited by, and the facts that only its own kind has."""
    return Evidence(
        mode=job.mode,
        predictor=job.predictor,
        measured_predictor=measured_predictor,
        module=module,
        examples=job.examples,
        split=job.split,
        loss=job.loss,
        bound=bound,
        budget=budget,
        risk=risk,
        seed=job.seed,
        evaluation_transform=job.examples.steps,
        risk_transform=job.examples.steps,
        preprocessing_saw=job.split.prior if job.standardized else None,
        test_reads=("freeze", "report") if job.test is not None else ("freeze",),
        test=job.test,
        standing=None
        if job.charging is None
        else job.charging.end(
            outcome_digest(
                module,
                job.bound_part,
                distributions=(facts.get("prior"), facts.get("posterior")),
                # As counted: what its upper end is depends on the share of the confidence.
                numbers={"bound": bound.name, **risk.model_dump(exclude={"risk_upper"})},
            )
        ),
        attempts_paid=job.attempts,
        risk_upper=recompute_bound(bound),
        confidence=1.0 - job.failure,
        data=_data_record(job.examples, job.split),
        **facts,
    )


def _symmetry_search(job: Job) -> tuple[Search, ...]:
    """Which symmetries to forget, and of which layers, is a choice of posterior."""
    if not job.quotients:
        return ()
    reason = "the bound holds for all posteriors at once, the averaged ones included"
    return (Search("posterior symmetries", 2 ** len(job.quotients), charge="free", reason=reason),)


def _data_record(examples: Examples, split: Split) -> DataRecord:
    def part(indices: Any) -> Any:
        return example_set(examples, indices) if len(indices) else None

    return DataRecord(
        name=examples.name,
        classes=examples.classes,
        preprocessing=examples.steps,
        bound=example_set(examples, split.bound),
        prior=part(split.prior),
        held_out=part(split.heldout),
    )


def _rescaling_record(facts: RescalingFacts, evidence: Evidence) -> RescalingRecord:
    assert evidence.complexity is not None and evidence.risk_upper is not None
    return RescalingRecord(
        kl_before=facts.kl_before,
        kl_after=facts.kl_after,
        log_scales_digest=array_digest(facts.log_scales),
        noise_digest=evidence.noise_digest,
        columns=column_records(
            facts,
            evidence.complexity,
            evidence.bound,
            evidence.budget,
            risk_upper=evidence.risk_upper,
        ),
        paper=paper_accounting(facts.paper, evidence.risk, evidence.bound),
    )


def seal(
    job: Job,
    evidence: Evidence,
    *,
    twin: TwinRecord | None = None,
    prior: DistributionRecord | None = None,
    posterior: DistributionRecord | None = None,
    rescaling: RescalingFacts | None = None,
    observed: tuple[Observation, ...] | None = None,
) -> Certificate:
    """``observed``: error rates beside the promise, where they are not those of one network."""
    assumptions = audit.run(evidence)
    module, data = evidence.module, evidence.data
    assert data is not None
    random = () if evidence.posterior is None else evidence.posterior.names
    risk_upper = recompute_bound(evidence.bound)
    if observed is None:
        observed = observations(job, module, evidence.posterior)
    fields: dict[str, Any] = dict(
        status=status_of(assumptions),
        mode=job.mode,
        predictor=job.predictor,
        loss=LossRecord(name=job.loss.name, lower=job.loss.lower, upper=job.loss.upper),
        confidence=1.0 - job.failure,
        risk_upper=risk_upper,
        bound=evidence.bound,
        budget=evidence.budget,
        data=data,
        model=ModelRecord(
            architecture=job.architecture,
            parameters=sum(p.numel() for p in module.parameters()),
            fixed_digest=tensors_digest(fixed_tensors(module, random)),
            conversions=job.conversions,
        ),
        prior=prior,
        posterior=posterior,
        complexity=evidence.complexity,
        rescaling=None if rescaling is None else _rescaling_record(rescaling, evidence),
        sparsity=evidence.sparsity,
        progressive=evidence.progressive,
        empirical=evidence.risk,
        held_out_twin=twin,
        baseline=baseline_record(
            evidence.examples.class_counts(evidence.split.bound),
            evidence.examples.class_names,
            evidence.budget,
        ),
        observed=(*observed, *(() if evidence.tilt is None else (evidence.tilt,))),
        assumptions=assumptions,
        audit=audit.registry.VERSION,
        seed=job.seed,
        software=software(job.device),
        artifacts=job.folder.artifacts(),
    )
    draft = Certificate.model_construct(**fields)
    return Certificate.sealed(statement=statement_of(draft), **fields)


def software(device: torch.device) -> dict[str, str]:
    """Versions of what takes part in the arithmetic, and what decides how sums are rounded."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "nonvacuous": nonvacuous.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "device": f"{device.type} ({kind})",
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
    }


@functools.cache
def _processor() -> str:
    """Its name, where the system tells, and the instructions that torch uses of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(named, platform.processor() or platform.machine())
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def refuse_beforehand(job: Job, model: nn.Module) -> None:
    """Raise what the audit would say at the end anyway; whatever needs results is left to it."""
    split = job.split
    evidence = StoredEvidence(
        software(job.device)["nonvacuous"],
        mode=job.mode,
        predictor=job.predictor,
        module=frozen_copy(model, job.device),
        examples=job.examples,
        split=split,
        loss=job.loss,
        seed=job.seed,
        evaluation_transform=job.examples.steps,
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
