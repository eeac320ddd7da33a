"""A small honest sparsity certificate in the making, for tests to spoil."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from nonvacuous.audit.evidence import Evidence
from nonvacuous.certificate import Certificate
from nonvacuous.certification.assemble import candidate_evidence
from nonvacuous.certification.job import Job
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.certify import certify
from nonvacuous.data import Examples, Split, split_examples
from nonvacuous.distributions.priors import learned
from nonvacuous.methods import Sparsity
from nonvacuous.methods.sparsity.candidate import given_candidate
from nonvacuous.methods.sparsity.making import measure_sparse
from nonvacuous.models import build
from nonvacuous.risk.losses import zero_one
from nonvacuous.settings import Run

from . import worlds

ARCHITECTURE = "mlp:8/no-bias"
QUICK = Sparsity(passes=2, search_examples=100, steps=60, prior_steps=60)


def examples(count: int = 260, *, seed: int = 0) -> Examples:
    return worlds.examples(count, seed=seed)


def split(data: Examples) -> Split:
    return split_examples(data, prior_fraction=0.3, seed=4)


def network(seed: int = 0) -> nn.Module:
    return build(ARCHITECTURE, (4,), 3, seed=seed).eval()


def near(module: nn.Module, step: float = 0.01) -> nn.Module:
    """A network that has moved a little."""
    moved = worlds.moved(module, step)
    other = network()
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(moved[name])
    return other


def evidence(settings: Sparsity = QUICK) -> Evidence:
    """Honest evidence: a network near its prior, which saw other examples than the bound counts."""
    center = network()
    return evidence_of(near(center), center, examples(), settings)


def evidence_of(
    module: nn.Module, center: nn.Module, data: Examples, settings: Sparsity
) -> Evidence:
    """What certifying a network with a prior at ``center`` leaves for the audit."""
    parts = split(data)
    candidate = given_candidate(module, data, parts, prior=learned(center, indices=parts.prior))
    job = Job(
        method=settings,
        architecture="own",
        examples=data,
        test=None,
        split=parts,
        loss=zero_one,
        failure=0.05,
        attempts=1,
        seed=7,
        device=torch.device("cpu"),
        folder=RunFolder(None),
        progress=None,
    )
    return candidate_evidence(job, *measure_sparse(settings, job, candidate))


def run(folder: Path | None, **changes: Any) -> Certificate:
    """A real run: prior, network, certificate and files."""
    arguments: dict[str, Any] = {
        "method": QUICK,
        "folder": Run(folder=folder, architecture=ARCHITECTURE),
        "seed": 3,
    }
    return certify(network(), examples(), **{**arguments, **changes})
