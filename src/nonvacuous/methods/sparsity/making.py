"""The sparsity method from its settings to a sealed certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from nonvacuous.audit.evidence import Evidence
from nonvacuous.certificate import Certificate
from nonvacuous.certification.assemble import evidence_of, seal
from nonvacuous.certification.candidate import frozen_copy
from nonvacuous.certification.job import Job
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.certification.twin import trained_twin
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.errors import BadInput
from nonvacuous.methods.sparsity.candidate import (
    SparseCandidate,
    given_candidate,
    sparse_twin,
    trained_candidate,
)
from nonvacuous.methods.sparsity.measurement import SparseMeasurement, measure_sparse
from nonvacuous.records import DistributionRecord, TwinRecord
from nonvacuous.rules.digests import fixed_tensors
from nonvacuous.sparsity.noise import FEWEST

if TYPE_CHECKING:
    from nonvacuous.methods.sparsity import Sparsity


def make(method: Sparsity, job: Job, model: nn.Module) -> Certificate:
    """Train or take the fixed network, measure it, and seal what was measured."""
    if len(job.split.bound) < FEWEST:
        raise BadInput(
            f"{job.examples.name}: {len(job.split.bound)} of {len(job.examples)} examples are left "
            f"for the bound; a sparsity certificate needs at least {FEWEST} that the prior has not "
            "seen. Bring more examples, or take a prior that needs none"
        )
    if method.given is None:
        candidate = trained_candidate(method, job, model)
    else:
        candidate = given_candidate(model, job.examples, job.split, prior=method.given)
    twin = _twin(method, job, candidate, model) if method.twin else None
    measured = measure_sparse(method, job, candidate)
    _save_sparse(job.folder, candidate, measured)
    return sparsity_certificate(job, candidate, measured, twin)


def _twin(
    method: Sparsity, job: Job, candidate: SparseCandidate, model: nn.Module
) -> TwinRecord | None:
    if candidate.saw is not None or method.given is None:
        return sparse_twin(method, job, candidate, model)
    if candidate.start is None:
        return None  # a prior of zeros says nothing about where training starts
    start = frozen_copy(candidate.start).requires_grad_(True)
    return trained_twin(job, start, method.plain_training)


def sparsity_evidence(
    job: Job, candidate: SparseCandidate, measured: SparseMeasurement
) -> Evidence:
    """The facts that a sparsity certificate is made from."""
    digest = measured.posterior.digest()
    return evidence_of(
        job,
        candidate.module,
        measured_predictor=measured.measured_predictor,
        bound=measured.bound,
        budget=measured.budget,
        risk=measured.risk,
        searches=measured.searches,
        prior=measured.prior,
        posterior=measured.posterior,
        complexity=measured.complexity,
        posterior_at_kl=digest,
        posterior_at_risk=digest,
        fixed_before=candidate.fixed_before,
        prior_saw=candidate.saw,
        # Only a prior that came from outside brings a record of its own.
        prior_given=candidate.saw_digest is not None,
        draws=measured.draws,
        pretrained=job.pretrained,
        start=candidate.start,
        prior_saw_digest=candidate.saw_digest,
        sparsity=measured.record,
        layers=measured.layers,
        prior_layers=measured.prior_layers,
    )


def sparsity_certificate(
    job: Job, candidate: SparseCandidate, measured: SparseMeasurement, twin: TwinRecord | None
) -> Certificate:
    """A certificate for the fixed network itself, from losses of noise around it."""
    evidence = sparsity_evidence(job, candidate, measured)
    data = evidence.data
    assert data is not None
    return seal(
        job,
        evidence,
        twin=twin,
        prior=DistributionRecord(
            description=candidate.description,
            digest=measured.prior.digest(),
            saw=data.prior.index_digest
            if candidate.saw is not None and data.prior is not None
            else None,
        ),
        posterior=DistributionRecord(
            description="Gaussian noise around the network's weights, one scale for each layer"
            + ("" if measured.record.images is None else ", smaller on biases of convolutions"),
            digest=measured.posterior.digest(),
        ),
    )


def _save_sparse(run: RunFolder, candidate: SparseCandidate, measured: SparseMeasurement) -> None:
    """The Gaussians, the network's own weights, and whatever else it holds."""
    for name, distribution in (("prior", measured.prior), ("posterior", measured.posterior)):
        path = run.file(f"{name}.safetensors")
        if path is not None:
            distribution.save(path)
    path = run.file("weights.safetensors")
    if path is not None:
        save_tensors(path, dict(candidate.module.state_dict()), kind="weights")
    path = run.file("network.safetensors")
    fixed = fixed_tensors(candidate.module, measured.posterior.names)
    if path is not None and fixed:
        save_tensors(path, fixed, kind="network")
