"""certify: the one call. Orchestration, no mathematics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from nonvacuous.audit.digests import tensors_digest
from nonvacuous.audit.paying import failure_of
from nonvacuous.audit.symmetries import SYMMETRIES
from nonvacuous.bounds import checks
from nonvacuous.certificate import Certificate
from nonvacuous.certification.assemble import holdout_certificate, random_certificate
from nonvacuous.certification.candidate import Candidate, frozen_copy, with_weights
from nonvacuous.certification.charging import charging
from nonvacuous.certification.job import Job
from nonvacuous.certification.post_hoc_mode import POSTERIOR_SCALES, post_hoc_candidate
from nonvacuous.certification.posterior_mode import posterior_candidate
from nonvacuous.certification.recipe import Recipe
from nonvacuous.certification.run_folder import RunFolder, in_own_folder, to_toml
from nonvacuous.certification.saving import save_candidate, save_network
from nonvacuous.certification.sparsity_run import sparse_examples, sparse_run, sparse_settings
from nonvacuous.certification.sparsity_settings import SparsitySettings, prior_kind
from nonvacuous.certification.twin import prior_twin, trained_twin
from nonvacuous.data import Examples, Split, check_examples, split_examples
from nonvacuous.distributions.attributes import attribute_tensors
from nonvacuous.distributions.grids import ScaleGrid
from nonvacuous.distributions.priors import Prior
from nonvacuous.errors import BadInput
from nonvacuous.records import TwinRecord
from nonvacuous.risk import Loss, zero_one
from nonvacuous.seeds import derived_seed
from nonvacuous.training import EventLog, Progress
from nonvacuous.verification.run_folder import check_before_sealing

Mode = Literal["posterior", "post-hoc", "sparsity", "holdout"]
Quotient = Literal["translation", "permutation"]


@in_own_folder
def certify(
    model: nn.Module,
    train: Any,
    *,
    mode: Mode | None = None,
    prior: Prior | None = None,
    predictor: Literal["stochastic", "drawn"] = "stochastic",
    confidence: float = 0.95,
    seed: int = 0,
    test: Any = None,
    loss: Loss = zero_one,
    trials: int = 100_000,
    prior_fraction: float = 0.5,
    prior_scales: ScaleGrid | float | None = None,
    posterior_scales: ScaleGrid = POSTERIOR_SCALES,
    rescaling: bool = True,
    quotients: Sequence[Quotient] | None = None,
    sparsity: SparsitySettings | None = None,
    recipe: Recipe | None = None,
    split: Split | None = None,
    attempts: int = 1,
    ledger: str | Path | None = None,
    different_data: str | None = None,
    pretrained: bool = False,
    unseen: bool = False,
    twin: bool = True,
    architecture: str | None = None,
    source: str | None = None,
    device: torch.device | str | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    tensorboard: str | Path | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """How wrong can this network be on data it has not seen? A number, and its evidence.

    model            the network. In mode "posterior", and in "sparsity" without a prior, its
                     present weights are the starting point and must not have seen ``train``;
                     otherwise it is the trained network to be certified. It is not changed.
    train            the examples: :class:`~nonvacuous.data.Examples`, a pair (inputs, labels), or
                     a torch dataset
    mode             "posterior": train a randomized network for the best certificate (default
                     when no prior is given); "post-hoc": certify noise around the given weights
                     (default when a prior is given); "sparsity": certify one fixed network of
                     linear layers or convolutions with ReLU, not a randomized one, by the
                     theorems of docs/theory/sparsity.md; without a prior the network is trained
                     here; "holdout": ``train`` holds examples that the model never saw, and they
                     are used as a plain test
    prior            for "post-hoc" and "sparsity": ``nv.priors.zero_mean(...)``,
                     ``at_initialization(...)`` or ``learned(...)`` (the latter with the ``split``
                     it belongs to); "sparsity" uses its center alone
    predictor        "stochastic": weights drawn afresh for each prediction; "drawn": one network
                     drawn once, certified by a disintegrated bound
    confidence       1 minus the probability, over the draw of the data, that the claim is false
    test             examples that are only looked at once, at the very end, beside the promise
    trials           independent (weights, example) pairs that estimate the posterior's risk
    prior_fraction   for "posterior": the part of the data that trains the prior; 0 puts the prior
                     at the starting weights and spends all data on the bound
    prior_scales     the prior's standard deviation (0.01 by default), or a grid of them that is
                     paid for; a ``prior`` that is given brings its own
    rescaling        for "post-hoc": move the posterior along the network's rescaling symmetries to
                     where it is cheapest; the certificate is never worse for it
    quotients        symmetries to forget in the KL, for the randomized network: "translation" (a
                     common shift of all scores) and "permutation" (the order of a layer's units,
                     where the prior does not tell them apart). They leave every prediction as it
                     is, cost nothing and are checked, so both are used by default in "post-hoc"
                     mode; a posterior that was trained on a bound has next to nothing to gain
    sparsity         for "sparsity": theorem, prior and training, see
                     :class:`~nonvacuous.certification.sparsity_settings.SparsitySettings`
    attempts         how many certificates will be computed on these examples, with whatever
                     settings, seeds and splits: reporting the best of them is honest only if the
                     confidence is shared among them
    ledger           the file that remembers them; attempts.jsonl beside ``folder`` by default, and
                     none without either
    different_data   where the ledger has examples with the same labels, why these are other data:
                     a sentence that the certificate quotes
    pretrained       declare that the starting weights were trained on other, independent data
    unseen           for "holdout": declare that nobody looked at ``train`` in making the network
    twin             also compute what a plain held-out test would promise on the same data
    folder           a run folder: everything needed to check, resume and report the certificate
    tensorboard      a folder for TensorBoard, where that package is installed
    """
    settings = _Settings(
        mode or ("posterior" if prior is None else "post-hoc"), predictor, confidence, attempts
    )
    if unseen and settings.mode != "holdout":
        raise BadInput(f"unseen speaks of a plain test (mode holdout), not of mode {settings.mode}")
    forgotten = _quotients(quotients, settings)
    examples = Examples.of(train)
    check_examples(examples)
    given = examples  # before any preprocessing here: the same data in all modes
    tested = None if test is None else Examples.of(test)
    sparse = sparse_settings(sparsity, settings.mode, loss)
    if sparse is not None:
        examples, tested = sparse_examples(sparse, prior, examples, tested)
    if (loss.lower, loss.upper) != (0.0, 1.0):
        raise BadInput(
            f"the loss {loss.name!r} ranges over [{loss.lower}, {loss.upper}]; bounds hold for "
            "losses in [0, 1]: scale it"
        )
    _check_outputs(model, examples)
    if prior is not None and prior_scales is not None:
        raise BadInput(
            "prior_scales would be ignored: the prior that is given has scales of its own. Leave "
            "prior_scales out, or make the prior with them, as in "
            "nv.priors.at_initialization(initial, grid=...)"
        )
    scales = 0.01 if prior_scales is None else prior_scales
    grid = scales if isinstance(scales, ScaleGrid) else ScaleGrid((scales,))
    place = _device(device, model)
    recipe = recipe or Recipe()
    if sparse is not None and prior is None:
        prior_fraction = prior_kind(sparse.prior)[1]
    split = split or _split(examples, settings.mode, prior, prior_fraction, seed)
    split.check_fits(examples)
    run = RunFolder(folder)
    configuration: dict[str, Any] = {
        "mode": settings.mode,
        "predictor": settings.predictor,
        "confidence": confidence,
        "seed": checks.count("seed", seed),
        "trials": checks.count("trials", trials, minimum=1),
        "attempts": attempts,
        "loss": loss.name,
        "architecture": architecture or type(model).__qualname__,
        "source": source or examples.name,
        "weights": tensors_digest(dict(model.state_dict())),
        "examples": examples.content_hash(),
        "split": split.digest(),
        "prior_kind": _prior_kind(settings.mode, prior, split),
        "prior_scales": list((prior.grid if prior is not None else grid).scales),
        "posterior_scales": list(posterior_scales.scales),
        "rescaling": rescaling,
        "quotients": list(forgotten),
        "prior_per_tensor": prior is not None and prior.per_tensor,
        "prior_means": None
        if prior is None or prior.means is None
        else tensors_digest(dict(prior.means)),
        "pretrained": pretrained,
        **({"unseen": unseen} if settings.mode == "holdout" else {}),
        "twin": twin,
        "recipe": recipe.to_dict(),
    }
    if sparse is not None:
        configuration["sparsity"] = sparse.to_dict()
    if different_data is not None:
        configuration["different_data"] = different_data.strip()
    attributes = attribute_tensors(model)
    if attributes:  # what no list of weights has
        configuration["attributes"] = tensors_digest(attributes)
    run.open(configuration, resume=resume, force=force)
    finished = run.existing("certificate.json")
    if finished is not None:
        run.drop_checkpoints()
        return Certificate.load(finished)
    events_file = run.file("events.jsonl")
    events = None if events_file is None else EventLog(events_file)
    attempt = charging(ledger, run.path, model, given, examples, split, configuration)
    if attempt is not None:
        progress = attempt.watching(progress)
    job = Job(
        mode=settings.mode,
        predictor="deterministic" if settings.mode in ("holdout", "sparsity") else predictor,
        architecture=configuration["architecture"],
        examples=examples,
        test=tested,
        loss=loss,
        failure=settings.failure,
        attempts=attempts,
        trials=trials,
        seed=seed,
        device=place,
        folder=run,
        progress=progress,
        pretrained=pretrained,
        unseen=unseen,
        quotients=forgotten,
        charging=attempt,
    )
    split_file = run.file("split.npz")
    if split_file is not None:
        split.save(split_file)
    if settings.mode == "holdout":
        module = frozen_copy(model, place)
        save_network(run, module)
        certificate = holdout_certificate(job, module, split)
    elif sparse is not None:
        certificate = sparse_run(job, model, split, prior, sparse, recipe if twin else None)
    else:
        if settings.mode == "posterior":
            candidate = posterior_candidate(
                model,
                examples,
                split,
                prior_scales=grid,
                recipe=recipe,
                failure=settings.failure,
                seed=seed,
                device=place,
                folder=run,
                events=events,
                progress=progress,
                tensorboard=tensorboard,
            )
        else:
            assert prior is not None
            candidate = post_hoc_candidate(
                job,
                model,
                split,
                prior=prior,
                posterior_scales=posterior_scales,
                rescaling=rescaling,
            )
        save_candidate(run, candidate)
        beside = _twin(job, model, prior, candidate, recipe) if twin else None
        certificate = random_certificate(job, candidate, beside)
    if run.path is not None:
        check_before_sealing(certificate, run.path, to_toml(configuration))
    certificate_file = run.file("certificate.json")
    if certificate_file is not None:
        certificate.save(certificate_file)
        run.drop_checkpoints()
    return certificate


class _Settings:
    """The few arguments that must be right before anything is computed."""

    def __init__(self, mode: str, predictor: str, confidence: float, attempts: int) -> None:
        if mode not in ("posterior", "post-hoc", "sparsity", "holdout"):
            raise BadInput(f"mode must be posterior, post-hoc, sparsity or holdout, not {mode!r}")
        if predictor not in ("stochastic", "drawn"):
            raise BadInput(f"predictor must be stochastic or drawn, not {predictor!r}")
        checks.failure_probability(confidence, "confidence")
        checks.count("attempts", attempts, minimum=1)
        self.mode: Mode = mode  # type: ignore[assignment]
        self.predictor = predictor
        self.failure = failure_of(confidence)


def _quotients(quotients: Sequence[Quotient] | None, settings: _Settings) -> tuple[str, ...]:
    """The symmetries to forget, in a fixed order."""
    fixed = settings.mode in ("holdout", "sparsity")
    randomized = not fixed and settings.predictor == "stochastic"
    if quotients is None:
        return SYMMETRIES if randomized and settings.mode == "post-hoc" else ()
    if isinstance(quotients, str):
        raise BadInput(f"quotients must be a list of names, not one text: ({quotients!r},)")
    for name in quotients:
        if name not in SYMMETRIES:
            raise BadInput(
                f"there is no quotient {name!r}; there are {', '.join(SYMMETRIES)}, and () for none"
            )
    if quotients and not randomized:
        raise BadInput(
            "quotients lower the KL of a randomized network; a bound for one network does not use "
            "it. Leave quotients out, or certify the predictor stochastic"
        )
    return tuple(name for name in SYMMETRIES if name in quotients)


def _split(
    examples: Examples, mode: Mode, prior: Prior | None, prior_fraction: float, seed: int
) -> Split:
    if mode == "sparsity" and prior is None and prior_fraction > 0.0:
        split_seed = derived_seed(seed, "split")
        return split_examples(examples, prior_fraction=prior_fraction, seed=split_seed)
    if mode == "post-hoc" or (mode == "sparsity" and prior is not None):
        if prior is None:
            raise BadInput(
                "mode post-hoc needs a prior: nv.priors.zero_mean(...), or "
                "nv.priors.at_initialization(initial) with the network as it was before training"
            )
        if prior.kind == "learned":
            raise BadInput(
                "a learned prior comes with the split it was learned on: pass split= so that the "
                "bound counts none of the examples that the prior saw"
            )
    if mode != "posterior":
        everything = np.arange(len(examples))
        return Split(everything[:0], everything, everything[:0], content=examples.content_hash())
    return split_examples(examples, prior_fraction=prior_fraction, seed=derived_seed(seed, "split"))


def _check_outputs(model: nn.Module, examples: Examples) -> None:
    """One row of scores per example, one score per class: anything else is another task."""
    network = frozen_copy(model)
    parameter = next(network.parameters(), None)
    inputs = examples.inputs[:2]
    try:
        with torch.no_grad():
            outputs = network(inputs if parameter is None else inputs.to(parameter.device))
    except Exception as error:  # the user's code may raise anything
        if parameter is not None and parameter.dtype != inputs.dtype:
            raise BadInput(
                f"the network has {parameter.dtype} weights; certify model.float(), for examples "
                f"are {inputs.dtype}: the promise is about it then"
            ) from error
        raise BadInput(
            f"the network cannot read inputs of shape {examples.example_shape} from "
            f"{examples.name} ({type(error).__name__}: {error}); give it the inputs it was made for"
        ) from error
    shape = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
    if shape != (len(inputs), examples.classes):
        raise BadInput(
            f"the network returned {shape} for {len(inputs)} examples of {examples.classes} "
            f"classes; it must return one row of {examples.classes} scores for each example"
        )


def _prior_kind(mode: Mode, prior: Prior | None, split: Split) -> str:
    if mode == "holdout":
        return "none"
    if prior is not None:
        return prior.kind
    return "learned" if len(split.prior) else "initialization"


def _device(device: torch.device | str | None, model: nn.Module) -> torch.device:
    if device is None:
        parameter = next(model.parameters(), None)
        return torch.device("cpu") if parameter is None else parameter.device
    place = torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise BadInput("device cuda was asked for, but torch sees no CUDA device; use device cpu")
    return place


def _twin(
    job: Job, model: nn.Module, prior: Prior | None, candidate: Candidate, recipe: Recipe
) -> TwinRecord | None:
    if candidate.saw is not None:
        own = with_weights(candidate.module, candidate.prior.means)
        return prior_twin(own, job.examples, candidate.split, failure=job.failure)
    if prior is None:
        start = frozen_copy(model)
    elif prior.means is not None:
        start = with_weights(model, prior.means)
    else:
        return None  # a zero-mean prior says nothing about where training starts
    return trained_twin(
        start.requires_grad_(True),
        job.examples,
        recipe=recipe,
        failure=job.failure,
        seed=job.seed,
        device=job.device,
        folder=job.folder,
        progress=job.progress,
    )
