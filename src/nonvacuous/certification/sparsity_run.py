"""Mode sparsity from its settings to a sealed certificate."""

from __future__ import annotations

from torch import nn

from nonvacuous.audit.digests import fixed_tensors
from nonvacuous.certificate import Certificate
from nonvacuous.certification.assemble import sparsity_certificate
from nonvacuous.certification.candidate import frozen_copy
from nonvacuous.certification.job import Job
from nonvacuous.certification.recipe import Recipe
from nonvacuous.certification.run_folder import RunFolder
from nonvacuous.certification.sparsity_measurement import SparseMeasurement, measure_sparse
from nonvacuous.certification.sparsity_mode import (
    SparseCandidate,
    check_theorem,
    given_candidate,
    scaled,
    sparse_twin,
    trained_candidate,
)
from nonvacuous.certification.sparsity_settings import SparsitySettings
from nonvacuous.certification.twin import trained_twin
from nonvacuous.data import Examples, Split
from nonvacuous.distributions.priors import Prior
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.errors import BadInput
from nonvacuous.records import TwinRecord
from nonvacuous.risk import Loss, zero_one
from nonvacuous.sparsity.noise import FEWEST


def sparse_settings(
    given: SparsitySettings | None, mode: str, loss: Loss
) -> SparsitySettings | None:
    """The settings of mode sparsity; None in every other."""
    if mode != "sparsity":
        if given is not None:
            raise BadInput(f"sparsity settings would change nothing in mode {mode}; leave them out")
        return None
    if loss.name != zero_one.name:
        raise BadInput(
            f"mode sparsity bounds how often the network errs, not the loss {loss.name!r}; leave "
            "loss out"
        )
    return given or SparsitySettings()


def sparse_examples(
    settings: SparsitySettings, prior: Prior | None, examples: Examples, test: Examples | None
) -> tuple[Examples, Examples | None]:
    """Inputs of norm 1 where that was asked for, or where the network is trained here."""
    wanted = prior is None if settings.unit_norm is None else settings.unit_norm
    if not wanted:
        return examples, test
    return scaled(examples), None if test is None else scaled(test)


def sparse_run(
    job: Job,
    model: nn.Module,
    split: Split,
    prior: Prior | None,
    settings: SparsitySettings,
    recipe: Recipe | None,
) -> Certificate:
    """Train or take the fixed network, measure it, and seal what was found.

    ``recipe`` trains the held-out twin of a given network; without it there is no twin.
    """
    check_theorem(model, settings)
    if len(split.bound) < FEWEST:
        raise BadInput(
            f"{job.examples.name}: {len(split.bound)} of {len(job.examples)} examples are left for "
            f"the bound; a sparsity certificate needs at least {FEWEST} that the prior has not "
            "seen. Bring more examples, or take a prior that needs none"
        )
    if prior is None:
        candidate = trained_candidate(
            model,
            job.examples,
            split,
            settings=settings,
            seed=job.seed,
            device=job.device,
            folder=job.folder,
            progress=job.progress,
        )
    else:
        candidate = given_candidate(model, job.examples, split, prior=prior)
    beside = None if recipe is None else _twin(job, model, candidate, prior, settings, recipe)
    measured = measure_sparse(job, candidate, settings)
    _save_sparse(job.folder, candidate, measured)
    return sparsity_certificate(job, candidate, measured, beside)


def _twin(
    job: Job,
    model: nn.Module,
    candidate: SparseCandidate,
    prior: Prior | None,
    settings: SparsitySettings,
    recipe: Recipe,
) -> TwinRecord | None:
    if candidate.saw is not None or prior is None:
        return sparse_twin(
            candidate,
            model,
            job.examples,
            settings=settings,
            failure=job.failure,
            seed=job.seed,
            device=job.device,
            folder=job.folder,
            progress=job.progress,
        )
    if candidate.start is None:
        return None  # a prior of zeros says nothing about where training starts
    return trained_twin(
        frozen_copy(candidate.start).requires_grad_(True),
        job.examples,
        recipe=recipe,
        failure=job.failure,
        seed=job.seed,
        device=job.device,
        folder=job.folder,
        progress=job.progress,
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
