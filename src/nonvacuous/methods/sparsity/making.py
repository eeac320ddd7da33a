"""The sparsity method from its settings to a sealed certificate: every term measured and paid."""

from __future__ import annotations

from typing import Any

from torch import nn

from nonvacuous.audit import claim_checks, evidence
from nonvacuous.audit.ledger_checks import GRID
from nonvacuous.certificate import Certificate
from nonvacuous.certification import assemble, measurement
from nonvacuous.certification.candidate import Candidate, save_candidate, with_weights
from nonvacuous.certification.job import Job
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.methods.sparsity import Sparsity
from nonvacuous.methods.sparsity import candidate as candidates
from nonvacuous.rules import derandomization as rules
from nonvacuous.rules.arithmetic import bound_record, risk_record
from nonvacuous.rules.convolutions import convolution_records, tensor_scales
from nonvacuous.sparsity.certify import certify_sparse, final_seed
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import read_network, read_parameters
from nonvacuous.sparsity.noise import FEWEST
from nonvacuous.sparsity.setting import SparseSettings, frozen_setting, total_nats
from nonvacuous.sparsity_records import ConvolutionRecord, NoiseLayer, SparsityRecord

#: Theorem A draws no noise, so nothing is spent on sampling.
_NOISELESS = "A"
_NAMED = "named on grids that were fixed before the data, item by item"
_FREE = "the bound holds for all weights at once"


def make(method: Sparsity, job: Job, model: nn.Module) -> Certificate:
    """Train or take the fixed network, measure it, and seal what was measured."""
    if len(job.split.bound) < FEWEST:
        raise BadInput(
            f"{job.examples.name}: {len(job.split.bound)} of {len(job.examples)} examples are left "
            f"for the bound; a sparsity certificate needs at least {FEWEST} that the prior has not "
            "seen. Bring more examples, or take a prior that needs none"
        )
    if method.given is None:
        fixed = candidates.trained_candidate(method, job, model)
    else:
        fixed = candidates.given_candidate(model, job.examples, job.split, prior=method.given)
    twin = candidates.sparse_twin(method, job, fixed, model) if method.twin else None
    candidate, measured = measure_sparse(method, job, fixed)
    save_candidate(job.folder, candidate)
    weights = dict(candidate.module.state_dict())
    job.folder.tensors("weights.safetensors", weights, kind="weights")
    return assemble.candidate_certificate(job, candidate, measured, twin)


def measure_sparse(
    method: Sparsity, job: Job, candidate: candidates.SparseCandidate
) -> tuple[Candidate, measurement.Measured]:
    """Search a setting, freeze it, draw fresh noise, count, and write every term down."""
    example = job.examples.inputs[:2].cpu()
    layers, tensors = read_parameters(candidate.module, example)
    prior_layers = read_network(with_weights(candidate.module, candidate.center), example)
    noiseless = method.theorem == _NOISELESS
    budget, bound_part = job.budget(sampled=not noiseless), job.bound_part
    failure = budget.bound.share
    sampling_failure = None if noiseless else budget.sampling.share
    asked = SparseSettings(
        theorem=method.theorem,
        variant=method.variant,
        confidence=1.0 - failure,
        sampling_failure=sampling_failure or failure,
        passes=method.passes,
        subset=method.search_examples,
    )
    where: dict[str, Any] = {"device": job.device, "progress": job.progress}
    certified = certify_sparse(layers, prior_layers, bound_part, asked, seed=job.seed, **where)
    shortest, longest = rules.norm_range(bound_part, constant=rules.counts_constant(layers))
    charges = rules.charge_records(certified.charges)
    images, shapes = None, tuple[ConvolutionRecord | None, ...]([None] * len(tensors))
    if isinstance(layers, ConvChain):
        images, shapes = layers.input_shape, convolution_records(layers, certified.scales)
    distances = certified.squared_distances
    rows = zip(layers.names, tensors, certified.scales, distances, shapes, strict=True)
    theorem, digest = certified.theorem, layers.digest()
    setting = frozen_setting(
        theorem, method.variant, certified.details["setting"], convolutional=images is not None
    )
    risk = risk_record(
        sampling_failure,
        errors=certified.errors,
        trials=certified.trials,
        scheme="every example once" if noiseless else "fresh noise",
        identical=False,
        seed=final_seed(job.seed, digest, setting),
    )
    loss_upper = rules.loss_upper_of(theorem, certified.escape, risk)
    record = SparsityRecord(
        theorem=theorem,
        variant=method.variant,
        layers=tuple(
            NoiseLayer(
                name=name, tensors=own, scale=scale, squared_distance=distance, convolution=shape
            )
            for name, own, scale, distance, shape in rows
        ),
        network_digest=digest,
        escape=certified.escape,
        setting=vars(setting),
        charges=charges,
        grid_nats=total_nats(charges),
        choices=1,
        passes=0 if noiseless else method.passes,
        loss_upper=loss_upper,
        device="cuda" if job.device.type == "cuda" else "cpu",
        prior=candidate.kind,  # type: ignore[arg-type]
        prior_fraction=len(job.split.prior) / len(job.split),
        shortest_input=shortest,
        longest_input=longest,
        threshold=rules.finite(certified.threshold),
        margin=rules.finite(certified.margin),
        images=images,
    )
    # Equal noise around network and prior, in float64: the KL of the theorem.
    scales = tensor_scales(record)
    network = {name: p.detach().double() for name, p in candidate.module.named_parameters()}
    center = {name: candidate.center[name].double() for name in network}
    posterior = DiagonalGaussian.from_means(network, scales)
    prior = DiagonalGaussian.from_means(center, scales)
    complexity = measurement.complexity_of(job, posterior, prior, None)
    measured = measurement.Measured(
        budget=budget,
        risk=risk,
        bound=bound_record(
            "derandomized",
            loss_upper=loss_upper,
            escape=record.escape,
            kl_nats=complexity.kl_nats,
            grid_nats=record.grid_nats,
            examples=len(bound_part),
            failure=failure,
        ),
        complexity=complexity,
        draws=() if noiseless else (("sampling", risk.seed),),
        measured_predictor=claim_checks.NOISY,
        facts={
            "sparsity": record,
            "layers": layers,
            "prior_layers": prior_layers,
            **measurement.frozen_posterior(posterior),
        },
    )
    prior_description, posterior_description = rules.descriptions(record, len(job.split.prior))
    noisy = Candidate(
        module=candidate.module,
        prior=prior,
        posterior=posterior,
        prior_description=prior_description,
        posterior_description=posterior_description,
        prior_choices=1,
        searches=(
            evidence.Search("setting of the loss", len(charges) + 1, charge=GRID, reason=_NAMED),
            evidence.Search("training of the network", 2, charge="free", reason=_FREE),
        ),
        **candidate.facts,
    )
    return noisy, measured
