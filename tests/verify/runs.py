"""Run folders made by hand: a sealed certificate with every file it rests on."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

import nonvacuous as nv
from nonvacuous import audit
from nonvacuous.audit.evidence import Evidence
from nonvacuous.certificate import Certificate, status_of
from nonvacuous.certification.assemble import software
from nonvacuous.certification.candidate import with_weights
from nonvacuous.certification.measurement import (
    ON_BOUND,
    ON_TEST,
    RANDOMIZED_ON_TEST,
    observation,
    observation_seed,
    observed_network,
    plain_test,
    trials_of,
)
from nonvacuous.certification.run_folder import FORMAT, to_toml
from nonvacuous.certify import certify
from nonvacuous.data.files import sha256_of_file as file_digest
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.distributions.priors import at_initialization, described, zero_mean
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.methods import HeldOut, Posterior
from nonvacuous.methods.posterior.making import trained_description
from nonvacuous.models import build
from nonvacuous.records import (
    DistributionRecord,
    LossRecord,
    ModelRecord,
    Observation,
)
from nonvacuous.risk.losses import zero_one
from nonvacuous.rules.arithmetic import baseline_record, recompute_bound, statement_of
from nonvacuous.rules.digests import fixed_tensors, tensors_digest
from nonvacuous.verify import Verification
from tests.audit import sparse_conv_worlds, sparse_worlds, worlds
from tests.training.calls import train

ARCHITECTURE = "mlp:8"
KINDS = ("stochastic", "drawn", "holdout")
#: As many as the ledger of the worlds pays for, with the one that they use.
PRIOR_SCALES = (0.02, 0.05, 0.1, 0.2)


def network(seed: int = 0) -> nn.Module:
    return build(ARCHITECTURE, (4,), 3, seed=seed).eval()


def evidence_of(kind: str) -> Evidence:
    """Honest evidence about a built-in architecture."""
    make = {
        "stochastic": lambda: worlds.stochastic(module=network()),
        "drawn": lambda: worlds.drawn(module=network()),
        "holdout": lambda: worlds.holdout(module=network()),
    }
    return make[kind]()


def fields_of(evidence: Evidence, *, architecture: str = ARCHITECTURE) -> dict[str, Any]:
    """Everything of a certificate but its files and its digest."""
    assumptions = audit.run(evidence)
    risk_upper = recompute_bound(evidence.bound)
    confidence = 1.0 - evidence.budget.failure
    assert evidence.data is not None
    random = () if evidence.posterior is None else evidence.posterior.names
    fields: dict[str, Any] = {
        "status": status_of(assumptions),
        "mode": evidence.mode,
        "predictor": evidence.predictor,
        "loss": LossRecord(name=evidence.loss.name),
        "confidence": confidence,
        "risk_upper": risk_upper,
        "bound": evidence.bound,
        "budget": evidence.budget,
        "data": evidence.data,
        "model": ModelRecord(
            architecture=architecture,
            parameters=sum(p.numel() for p in evidence.module.parameters()),
            fixed_digest=tensors_digest(fixed_tensors(evidence.module, random)),
        ),
        "complexity": evidence.complexity,
        "empirical": evidence.risk,
        "baseline": baseline_record(
            evidence.examples.class_counts(evidence.split.bound),
            evidence.examples.class_names,
            evidence.budget,
        ),
        "held_out_twin": None
        if evidence.prior is None
        else plain_test(
            with_weights(evidence.module, evidence.prior.means),
            evidence.examples,
            evidence.split,
            failure=evidence.budget.failure,
            separate=False,
        ),
        "observed": _observed(evidence),
        "assumptions": assumptions,
        "audit": audit.registry.present_version(),
        "seed": evidence.seed,
        "software": software(torch.device("cpu")),
    }
    if evidence.posterior is not None and evidence.prior is not None:
        assert evidence.data.prior is not None
        fields["prior"] = DistributionRecord(
            description=described("learned", PRIOR_SCALES, per_tensor=False),
            digest=evidence.prior.digest(),
            saw=evidence.data.prior.index_digest,
        )
        fields["posterior"] = DistributionRecord(
            description=trained_description("quadratic"), digest=evidence.posterior.digest()
        )
    fields["statement"] = statement_of(Certificate.model_construct(**fields))
    return fields


def _observed(evidence: Evidence) -> tuple[Observation, ...]:
    """What a run observes of the network itself."""
    who = observed_network(evidence.predictor)
    assert evidence.test is not None
    observed = [
        observation(f"{who} {ON_BOUND}", evidence.module, evidence.bound_part),
        observation(f"{who} {ON_TEST}", evidence.module, evidence.test),
    ]
    if evidence.predictor == "stochastic":
        assert evidence.posterior is not None
        seed = observation_seed(evidence.seed, evidence.posterior.digest())
        options = {"loss": zero_one, "trials": 200, "seed": seed, "device": torch.device("cpu")}
        drawn = trials_of(evidence.module, evidence.posterior, evidence.test, **options)
        counts = {"errors": drawn.errors, "trials": drawn.trials}
        observed.append(Observation(name=RANDOMIZED_ON_TEST, **counts))
    return tuple(observed)


def settings_of(evidence: Evidence, *, architecture: str) -> dict[str, Any]:
    """The settings that such a run would have been started with."""
    method = HeldOut(unseen=True)
    if evidence.prior is not None:
        method = Posterior(
            predictor=evidence.predictor,
            prior_scale=PRIOR_SCALES,
            trials=evidence.risk.trials,
            pretrained=evidence.pretrained,
        )
    return {
        "format": FORMAT,
        "mode": evidence.mode,
        "confidence": 1.0 - evidence.budget.failure,
        "seed": evidence.seed,
        "attempts": 1,
        "loss": evidence.loss.name,
        "architecture": architecture,
        "source": evidence.examples.name,
        "data_name": evidence.examples.name,
        "preprocessing": "as given",
        "weights": "0" * 64,
        "split": evidence.split.digest(),
        "method": method.record(),
    }


def write_run(
    folder: Path, evidence: Evidence, *, architecture: str = ARCHITECTURE, **changes: Any
) -> Certificate:
    """Write the whole run folder and return its certificate."""
    folder.mkdir(parents=True, exist_ok=True)
    if evidence.posterior is not None and evidence.start is None:
        # Nobody trained it here: whoever made it says where its weights come from.
        evidence = worlds.changed(evidence, pretrained="made by hand")
    settings = to_toml(settings_of(evidence, architecture=architecture))
    (folder / "config.toml").write_text(settings, encoding="utf-8")
    evidence.split.save(folder / "split.npz")
    files = ["config.toml", "split.npz"]
    random: tuple[str, ...] = ()
    if evidence.posterior is not None and evidence.prior is not None:
        evidence.prior.save(folder / "prior.safetensors")
        evidence.posterior.save(folder / "posterior.safetensors")
        files += ["prior.safetensors", "posterior.safetensors"]
        random = evidence.posterior.names
    if evidence.predictor == "drawn":
        assert evidence.drawn is not None
        save_tensors(folder / "drawn.safetensors", evidence.drawn, kind="weights")
        files.append("drawn.safetensors")
    fixed = fixed_tensors(evidence.module, random)
    if fixed:
        save_tensors(folder / "network.safetensors", fixed, kind="network")
        files.append("network.safetensors")
    # Written by every run, and no evidence: their content does not matter.
    (folder / "events.jsonl").write_text("{}\n", encoding="utf-8")
    fields = fields_of(evidence, architecture=architecture) | {
        "artifacts": {name: file_digest(folder / name) for name in files}
    }
    certificate = Certificate.sealed(**{**fields, **changes})
    certificate.save(folder / "certificate.json")
    return certificate


def post_hoc_run(folder: Path, *, prior: str = "zero-mean") -> Certificate:
    """A real post-hoc run, with its rescaling columns and symmetries, of a network in no hurry."""
    start = network()
    fitted = train(start, worlds.examples(), epochs=20, batch_size=20, learning_rate=0.1)
    grid = ScaleGrid((0.1, 0.3, 1.0))
    return certify(
        fitted.module,
        worlds.examples(),
        method=nv.PostHoc(
            prior=zero_mean(grid=grid)
            if prior == "zero-mean"
            else at_initialization(start, grid=grid),
            posterior_scales=ScaleGrid((0.05,)),
            trials=500,
            twin=False,
        ),
        folder=nv.Run(folder=folder, architecture=ARCHITECTURE),
    )


def make_run(folder: Path, kind: str = "stochastic", **changes: Any) -> Certificate:
    """An honest run of that kind."""
    if kind == "post-hoc":
        return post_hoc_run(folder)
    if kind == "sparsity":
        return sparse_worlds.run(folder)
    if kind == "convolutional":
        return sparse_conv_worlds.run(folder)
    return write_run(folder, evidence_of(kind), **changes)


def resealed(certificate: Certificate, **changes: Any) -> Certificate:
    """A forgery: the same certificate with other fields, and a digest that matches them."""
    names = set(Certificate.model_fields) - {"digest", "format"}
    fields = {name: copy.deepcopy(getattr(certificate, name)) for name in names}
    return Certificate.sealed(**{**fields, **changes})


def failed_fields(verification: Verification) -> list[str]:
    return [finding.field for finding in verification.failures]
