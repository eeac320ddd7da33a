"""From a frozen candidate to a sealed certificate: measure, bound, audit, seal.

Audited first, too: every check whose facts are known before anything is trained.
"""

from __future__ import annotations

import contextlib
import functools
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import scipy
import torch
from torch import nn

import nonvacuous
from nonvacuous import audit, records
from nonvacuous.audit.evidence import RECORDED, Evidence, Search, StoredEvidence
from nonvacuous.audit.registry import required
from nonvacuous.certificate import Certificate, status_of
from nonvacuous.certification.candidate import FACTS, Candidate, frozen_copy
from nonvacuous.certification.job import Job
from nonvacuous.certification.measurement import Measured, complexity_of, measure, observations
from nonvacuous.errors import Refused, Unsupported
from nonvacuous.rules import arithmetic, outcomes, symmetries
from nonvacuous.rules.digests import example_set, fixed_tensors, tensors_digest
from nonvacuous.seeds import DRAWS


def measured_best(job: Job, candidates: Sequence[Candidate]) -> tuple[Candidate, Measured]:
    """The frozen posterior with the smallest bound; each of them pays for the choice."""
    all_measured = []
    for candidate in candidates:
        graph, cost = candidate.graph, candidate.complexity
        if cost is None and graph is None and job.method.quotients:
            with contextlib.suppress(Unsupported):  # no graph, no symmetry that is known
                graph = symmetries.captured(candidate.module, job.examples.inputs)
        cost = cost or complexity_of(job, candidate.posterior, candidate.prior, graph)
        all_measured.append((candidate, measure(job, candidate, cost)))
    return min(all_measured, key=lambda pair: arithmetic.recompute_bound(pair[1].bound))


def candidate_evidence(job: Job, candidate: Candidate, measured: Measured) -> Evidence:
    """The facts that a certificate with a prior is made from."""
    facts: dict[str, Any] = {name: getattr(candidate, name) for name in FACTS}
    choices, searches = 2 ** len(job.method.quotients), candidate.searches
    if choices > 1:
        # Which symmetries to forget, and of which layers, is a choice of posterior.
        reason = "the bound holds for all posteriors at once, the averaged ones included"
        searches += (Search("posterior symmetries", choices, charge="free", reason=reason),)
    return evidence_of(job, candidate.module, measured, searches=searches, **facts)


def candidate_certificate(
    job: Job, candidate: Candidate, measured: Measured, twin: records.TwinRecord | None
) -> Certificate:
    """A certificate for the posterior, one network drawn from it, or the one in its middle."""
    if measured.drawn is not None:
        job.folder.tensors("drawn.safetensors", measured.drawn, kind="weights")
    return seal(job, candidate_evidence(job, candidate, measured), candidate, twin=twin)


def evidence_of(
    job: Job,
    module: nn.Module,
    measured: Measured,
    *,
    draws: tuple[tuple[str, int], ...] = (),
    **facts: Any,
) -> Evidence:
    """What every certificate is audited by, and the facts that only its own kind has.

    ``draws``: those before everything was frozen.
    """
    standing, bound, risk, examples = None, measured.bound, measured.risk, job.examples
    if job.charging is not None:
        outcome = outcomes.outcome_digest(
            module,
            job.bound_part,
            distributions=(facts.get("prior"), facts.get("posterior")),
            # As counted: what its upper end is depends on the share of the confidence.
            numbers={"bound": bound.name, **risk.model_dump(exclude={"risk_upper"})},
        )
        standing = job.charging.end(outcome)
    return Evidence(
        **_known_beforehand(job),
        measured_predictor=measured.measured_predictor,
        module=module,
        bound=bound,
        budget=measured.budget,
        risk=risk,
        complexity=measured.complexity,
        drawn=measured.drawn,
        # Both as the code has it: risks are measured on parts of these examples, and test examples
        # are read for the observations alone, which come after this.
        risk_transform=job.examples.steps,
        test_reads=("freeze", "report") if job.test is not None else ("freeze",),
        standing=standing,
        risk_upper=arithmetic.recompute_bound(bound),
        confidence=1.0 - job.failure,
        data=records.DataRecord(
            name=examples.name,
            classes=examples.classes,
            preprocessing=examples.steps,
            bound=example_set(examples, job.split.bound),
            prior=example_set(examples, job.split.prior) if len(job.split.prior) else None,
            held_out=example_set(examples, job.split.heldout) if len(job.split.heldout) else None,
        ),
        draws=(*draws, ("freeze", 0), *measured.draws),
        **measured.facts,
        **facts,
    )


def _known_beforehand(job: Job) -> dict[str, Any]:
    return dict(
        mode=job.method.mode,
        predictor=job.predictor,
        examples=job.examples,
        split=job.split,
        loss=job.loss,
        seed=job.seed,
        evaluation_transform=job.examples.steps,
        preprocessing_saw=job.split.prior if getattr(job.method, "standardize", False) else None,
        test=job.test,
        attempts_paid=job.attempts,
        pretrained=getattr(job.method, "pretrained", None),
    )


def seal(
    job: Job,
    evidence: Evidence,
    candidate: Candidate | None = None,
    *,
    twin: records.TwinRecord | None = None,
    observed: tuple[records.Observation, ...] | None = None,
) -> Certificate:
    """``observed``: error rates beside the promise, where they are not those of one network."""
    module, data = evidence.module, evidence.data
    assert data is not None
    random = () if evidence.posterior is None else evidence.posterior.names
    if observed is None:
        observed = observations(job, module, evidence.posterior)
    assumptions = audit.run(replace(evidence, observed=observed))
    fields: dict[str, Any] = dict(
        **{name: getattr(evidence, name) for name in RECORDED},
        status=status_of(assumptions),
        loss=records.LossRecord(name=job.loss.name, lower=job.loss.lower, upper=job.loss.upper),
        model=records.ModelRecord(
            architecture=job.architecture,
            parameters=sum(p.numel() for p in module.parameters()),
            fixed_digest=tensors_digest(fixed_tensors(module, random)),
            conversions=job.conversions,
        ),
        empirical=evidence.risk,
        held_out_twin=twin,
        baseline=arithmetic.baseline_record(
            evidence.examples.class_counts(evidence.split.bound),
            evidence.examples.class_names,
            evidence.budget,
        ),
        observed=(*observed, *(() if evidence.tilt is None else (evidence.tilt,))),
        assumptions=assumptions,
        audit=audit.registry.present_version(),
        software=software(job.device),
        artifacts=job.folder.artifacts(),
    )
    if candidate is not None:
        shaped = None if candidate.prior_saw is None else data.prior
        fields["prior"] = records.DistributionRecord(
            description=candidate.prior_description,
            digest=candidate.prior.digest(),
            saw=None if shaped is None else shaped.index_digest,
        )
        fields["posterior"] = records.DistributionRecord(
            description=candidate.posterior_description, digest=candidate.posterior.digest()
        )
        fields["rescaling"] = candidate.rescaling
    draft = Certificate.model_construct(**fields)
    return Certificate.sealed(statement=arithmetic.statement_of(draft), **fields)


def software(device: torch.device) -> dict[str, str]:
    """Versions of what takes part in the arithmetic, what a seed draws and how sums are rounded."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "nonvacuous": nonvacuous.__version__,
        "draws": DRAWS,
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
    # Where it can, large layers are trained in bfloat16; processors of one name may differ in that.
    rough = ", bfloat16" if torch.cpu._is_avx512_bf16_supported() else ""
    return f"{name} ({torch.backends.cpu.get_cpu_capability()}{rough})"


def refuse_beforehand(job: Job, model: nn.Module) -> None:
    """Raise what the audit would say at the end anyway; whatever needs results is left to it."""
    prior = job.split.prior
    evidence = StoredEvidence(
        **_known_beforehand(job),
        module=frozen_copy(model, job.device),
        prior_saw=prior if len(prior) else None,
        groups_declared=None,
        unseen=getattr(job.method, "unseen", False),
        start=job.method.starting_network(model, job.device),
    )
    for check in required(mode=job.method.mode, predictor=job.predictor):
        outcome = check.on_part(evidence)
        if outcome is not None and outcome.effect == "refused":
            raise Refused(f"refused before anything was computed: {check.name}? {outcome.detail}")
