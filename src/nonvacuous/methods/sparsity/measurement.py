"""From a fixed network and its prior to the numbers of a sparsity certificate: every term paid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nonvacuous.audit.claim_checks import NOISY
from nonvacuous.audit.evidence import Search
from nonvacuous.audit.ledger_checks import GRID
from nonvacuous.certification.candidate import with_weights
from nonvacuous.certification.job import Job
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.methods.sparsity.candidate import SparseCandidate, layer_tensors
from nonvacuous.records import BoundRecord, BudgetRecord, ComplexityRecord, KlTerm, RiskRecord
from nonvacuous.rules.arithmetic import (
    bound_record,
    complexity_nats,
    ledger,
    line,
    sampled_risk,
    share,
)
from nonvacuous.rules.convolutions import convolution_records, tensor_scales
from nonvacuous.rules.derandomization import (
    charge_records,
    charged_nats,
    counts_constant,
    loss_upper_of,
    norm_range,
    setting_of,
)
from nonvacuous.sparsity.certificate import SparseSettings, SparsityCertificate
from nonvacuous.sparsity.certify import certify_sparse
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.sparsity.recount import Network, final_seed
from nonvacuous.sparsity_records import NoiseLayer, SparsityRecord

if TYPE_CHECKING:
    from nonvacuous.methods.sparsity import Sparsity

#: Theorem A draws no noise, so nothing is spent on sampling.
_NOISELESS = "A"


@dataclass(frozen=True, eq=False)
class SparseMeasurement:
    """The numbers of one certificate, before anybody has looked for mistakes in them."""

    layers: Network
    prior_layers: Network
    prior: DiagonalGaussian
    posterior: DiagonalGaussian
    budget: BudgetRecord
    risk: RiskRecord
    complexity: ComplexityRecord
    bound: BoundRecord
    record: SparsityRecord
    searches: tuple[Search, ...]
    draws: tuple[tuple[str, int], ...]
    measured_predictor: str = NOISY


def measure_sparse(method: Sparsity, job: Job, candidate: SparseCandidate) -> SparseMeasurement:
    """Search a setting, freeze it, draw fresh noise, count, and write every term down."""
    example = job.examples.inputs[:2].cpu()
    layers = read_network(candidate.module, example)
    prior_layers = read_network(with_weights(candidate.module, candidate.center), example)
    tensors = layer_tensors(candidate.module, layers)
    noiseless = method.theorem == _NOISELESS
    budget = ledger(
        mode=job.mode, failure=job.failure, attempts=job.attempts, sampled=not noiseless
    )
    bound_part = job.examples.subset(candidate.split.bound)
    failure = share(line(budget, "bound"))
    sampling_failure = None if noiseless else share(line(budget, "sampling"))
    certified = certify_sparse(
        layers,
        prior_layers,
        bound_part,
        SparseSettings(
            theorem=method.theorem,
            variant=method.variant,
            confidence=1.0 - failure,
            sampling_failure=sampling_failure or failure,
            passes=method.passes,
            subset=method.search_examples,
        ),
        seed=job.seed,
        device=job.device,
        progress=job.progress,
    )
    shortest, longest = norm_range(bound_part, constant=counts_constant(layers))
    charges = charge_records(certified.charges)
    shapes = (
        convolution_records(layers, certified.scales)
        if isinstance(layers, ConvChain)
        else (None,) * len(tensors)
    )
    record = SparsityRecord(
        theorem=certified.theorem,
        variant=method.variant,
        layers=tuple(
            NoiseLayer(
                name=name, tensors=own, scale=scale, squared_distance=distance, convolution=shape
            )
            for name, own, scale, distance, shape in zip(
                layers.names,
                tensors,
                certified.scales,
                certified.squared_distances,
                shapes,
                strict=True,
            )
        ),
        network_digest=layers.digest(),
        escape=certified.escape,
        setting={
            name: tuple(value) if isinstance(value, list) else value
            for name, value in certified.details["setting"].items()
        },
        charges=charges,
        grid_nats=charged_nats(charges),
        choices=1,
        passes=0 if noiseless else method.passes,
        loss_upper=1.0,
        device="cuda" if job.device.type == "cuda" else "cpu",
        prior=candidate.kind,  # type: ignore[arg-type]
        prior_fraction=len(candidate.split.prior) / len(candidate.split),
        shortest_input=shortest,
        longest_input=longest,
        threshold=certified.threshold if math.isfinite(certified.threshold) else None,
        margin=certified.margin if math.isfinite(certified.margin) else None,
        images=layers.input_shape if isinstance(layers, ConvChain) else None,
    )
    risk = _risk(job, record, certified, sampling_failure)
    loss_upper = loss_upper_of(record.theorem, record.escape, risk)
    record = record.model_copy(update={"loss_upper": loss_upper})
    posterior, prior = _noise(record, candidate)
    kl_terms = tuple(
        KlTerm(tensor=name, size=posterior.means[name].numel(), nats=nats)
        for name, nats in posterior.kl_to(prior).items()
    )
    complexity = ComplexityRecord(terms=kl_terms, kl_nats=complexity_nats(kl_terms))
    drawn = () if noiseless else (("sampling", risk.seed),)
    return SparseMeasurement(
        layers=layers,
        prior_layers=prior_layers,
        prior=prior,
        posterior=posterior,
        budget=budget,
        risk=risk,
        complexity=complexity,
        bound=bound_record(
            "derandomized",
            loss_upper=loss_upper,
            escape=record.escape,
            kl_nats=complexity.kl_nats,
            grid_nats=record.grid_nats,
            examples=len(bound_part),
            failure=failure,
        ),
        record=record,
        searches=_searches(record),
        draws=(*candidate.draws, ("freeze", 0), *drawn),
    )


def _risk(
    job: Job, record: SparsityRecord, certified: SparsityCertificate, failure: float | None
) -> RiskRecord:
    draft = RiskRecord(
        errors=certified.errors,
        trials=certified.trials,
        scheme="every example once" if failure is None else "fresh noise",
        identical=False,
        seed=final_seed(job.seed, record.network_digest, setting_of(record)),
        risk_upper=1.0,
    )
    return draft.model_copy(update={"risk_upper": sampled_risk(draft, failure)})


def _noise(
    record: SparsityRecord, candidate: SparseCandidate
) -> tuple[DiagonalGaussian, DiagonalGaussian]:
    """Equal noise around network and prior, in float64: the KL of the theorem."""
    scales = tensor_scales(record)
    network = {name: p.detach().double() for name, p in candidate.module.named_parameters()}
    center = {name: candidate.center[name].double() for name in network}
    return (
        DiagonalGaussian.from_means(network, scales),
        DiagonalGaussian.from_means(center, scales),
    )


def _searches(record: SparsityRecord) -> tuple[Search, ...]:
    return (
        Search(
            "setting of the loss",
            len(record.charges) + 1,
            charge=GRID,
            reason="named on grids that were fixed before the data, item by item",
        ),
        Search(
            "training of the network",
            2,
            charge="free",
            reason="the bound holds for all weights at once",
        ),
    )
