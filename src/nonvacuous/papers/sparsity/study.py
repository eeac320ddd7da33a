"""The sparsity paper: certificates for the network you would deploy, with no noise in it.

Depths 2 and 3 with widths 100, 500 and 1000 and priors that saw nothing or 5 % of the data, as in
Muthukumar and Sulam (2023), then deeper. Every theorem in its dense and in its sparse variant, and
always beside them what a plain test of the prior promises.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nonvacuous.claims import write_record
from nonvacuous.data import Examples, make_split
from nonvacuous.distributions.storage import load_tensors, save_tensors
from nonvacuous.papers.sparsity.results import CaseResult, CasesResult, SparsityResult
from nonvacuous.papers.sparsity.settings import VARIANTS, Case, SparsityCell, SparsitySettings
from nonvacuous.progress import Progress
from nonvacuous.risk.losses import class_margins
from nonvacuous.rules.outcomes import Shown
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity import priors, training
from nonvacuous.sparsity.certify import certify_sparse
from nonvacuous.sparsity.measuring import measure
from nonvacuous.sparsity.radii import LEVEL, forward
from nonvacuous.sparsity.setting import THEOREMS, SparseSettings
from nonvacuous.sparsity.study import norm_bounds
from nonvacuous.sparsity.weights import Layers
from nonvacuous.study.study import Context, Finished, Study

#: The terms of a certificate that a table or a reader needs; the charges are summed in grid_nats.
_KEPT = (
    "risk_upper", "examples", "failure", "sampling_failure", "kl_nats", "grid_nats", "escape",
    "errors", "trials", "loss_upper", "scales", "threshold", "margin",
)  # fmt: skip


def certificates(
    weights: Sequence[Tensor],
    prior: Sequence[Tensor],
    examples: Examples,
    *,
    settings: SparsityCell,
    seed: int,
    progress: Progress | None = None,
) -> dict[str, dict[str, Any]]:
    """Every theorem in both variants, all of them true at once.

    All of them are paid for, for as many networks as the settings say, so that the smallest number
    may be taken. They are computed where the examples lie.
    """
    layers, center = Layers.of(weights), Layers.of(prior)
    asked = [one for one in product(THEOREMS, VARIANTS) if one[0] in settings.theorems]
    sums, _ = forward(tuple(weights), examples.inputs.to(weights[0].dtype))
    if not all(bool((values > 0).any()) for values in sums):
        # Penalties can silence a whole layer; then all scores are ties, and every answer an error.
        return {" ".join(one): dict.fromkeys(_KEPT) | {"risk_upper": 1.0} for one in asked}
    # A search on few examples may miss the best setting; what it finds is certified on all. Deep
    # networks have more settings to compare.
    subset = 3_000 if layers.hidden <= 2 else max(600, 6_000 // layers.hidden)
    promised = {}
    for theorem, variant in asked:
        # Their cost grows with the square of the depth, and beyond ten layers F is far ahead.
        if theorem in ("D", "E") and layers.hidden > _DEEP:
            continue
        chosen = SparseSettings(
            theorem=theorem,
            variant=variant,
            confidence=1.0 - settings.failure,
            sampling_failure=settings.sampling_failure,
            choices=len(asked) * settings.attempts,
            subset=subset,
            gauge=settings.gauge,
        )
        own = derived_seed(seed, theorem, variant)
        certificate = certify_sparse(layers, center, examples, chosen, seed=own, progress=progress)
        # None for a threshold that no margin can exceed: JSON has no infinity.
        record = json.loads(json.dumps(certificate.to_dict()), parse_constant=lambda _: None)
        promised[f"{theorem} {variant}"] = {name: record[name] for name in _KEPT}
    return promised


def activity(
    weights: Sequence[Tensor], examples: Examples, *, settings: SparsityCell
) -> tuple[tuple[float, ...], dict[str, float]]:
    """Mean share of active units by layer, and the effective activity ratio by perturbation."""
    some = examples.subset(np.arange(min(settings.activity_examples, len(examples))))
    inputs, labels = some.inputs, some.labels.cpu()
    seen = measure(Layers.of(weights), inputs, labels, epsilons=settings.epsilons, level=LEVEL)
    active = tuple(int(lit.sum()) / (len(lit) * len(some)) for lit in seen.lit)
    known = ((choice.epsilon, choice.ratio) for choice in seen.choices)
    return active, {f"{e:g}": float(ratio.mean()) for e, ratio in known if ratio is not None}


_KIND = "chain"
#: Hidden layers up to which Theorems D and E are tried.
_DEEP = 10


class SparsityMnist(Study[SparsitySettings, SparsityResult]):
    """Certify deterministic networks by every sparsity theorem, dense and sparse side by side.

    Needs MNIST. The part called goals takes some minutes on one processor core, everything about
    an hour; a GPU needs some minutes for everything. Random numbers differ between kinds of
    devices, and so do the networks; every certificate is as valid.
    """

    name = "sparsity-mnist"
    settings = SparsitySettings
    cell = SparsityCell
    gives = CasesResult
    pages = "nonvacuous.papers.sparsity.page"

    def cells(self, settings: SparsitySettings, finished: Finished) -> Sequence[SparsityCell]:
        known = self._known(settings, finished)
        shared: dict[str, list[Case]] = {}
        for case in settings.asked():
            if case.key not in known:
                shared.setdefault(case.prior_key, []).append(case)
        return [SparsityCell.of(cases, settings) for cases in shared.values()]

    def compute(self, cell: SparsityCell, at: Context) -> CasesResult:
        work: _Networks | None = None
        results = []
        for case in cell.cases:
            # Kept one by one: a cell that was stopped does not begin anew.
            path = at.folder / f"{case.key}.json"
            if not path.is_file():
                work = work or _Networks(cell, at)
                write_record(path, work.compute(case).model_dump(mode="json"))
            results.append(CaseResult.model_validate_json(path.read_bytes()))
        return CasesResult(cases=tuple(results))

    def result(self, settings: SparsitySettings, finished: Finished, at: Context) -> SparsityResult:
        known = self._known(settings, finished)
        shown = (known[case.key] for case in settings.cases() if case.key in known)
        return SparsityResult(settings, tuple(shown), at.dataset(settings.data).train.classes)

    def _known(self, settings: SparsitySettings, finished: Finished) -> dict[str, CaseResult]:
        return {
            result.case.key: result
            for entry in finished
            if entry.cell.cases[0].recipe in settings.recipes
            and entry.cell.alike(SparsityCell.of(entry.cell.cases, settings))
            for result in entry.result.cases
        }

    def title(self, settings: SparsitySettings) -> str:
        return f"{settings.data}, {len(settings.asked())} networks, seed {settings.seed}"

    def next_command(self, result: SparsityResult, folder: Path | None) -> str:
        return f"nonvacuous sparsity --data {result.settings.data}"


STUDY = SparsityMnist()


class _Networks:
    """Trains and certifies networks that share a prior."""

    def __init__(self, cell: SparsityCell, at: Context) -> None:
        self._cell, self._at = cell, at
        dataset = at.dataset(cell.data)
        self._shown = Shown(at.ledger_file, dataset.train, command="reproduce sparsity-mnist")
        self._device = torch.device(at.device)
        self._test = None
        if dataset.test is not None:
            self._test = training.unit_norm(dataset.test, centered=cell.centered).to(self._device)
        case, train = cell.cases[0], training.unit_norm(dataset.train, centered=cell.centered)
        if case.share != 1.0:
            seed = derived_seed(cell.seed, "share")
            split = make_split(len(train), prior_fraction=case.share, seed=seed)
            train = train.subset(np.sort(split.prior))
        pixels, mirrored = cell.recipe.shifts, cell.recipe.mirrored
        self._prior = priors.make_prior(
            case.prior,
            train,
            (case.width,) * case.hidden,
            settings=cell.recipe.prior,
            start=cell.recipe.start,
            copied=partial(priors.shifted_copies, pixels=pixels, mirrored=mirrored),
            seed=cell.seed,
            device=self._device,
            progress=at.progress,
            learned=self._stored("prior"),
        )
        self._keep("prior", self._prior.center)

    def compute(self, case: Case) -> CaseResult:
        """One network; its weights are kept before they are certified."""
        settings, prior = self._cell, self._prior
        started = time.perf_counter()
        seed = derived_seed(settings.seed, case.key)
        shared: dict[str, Any] = {"seed": seed, "progress": self._at.progress}
        weights = self._stored(case.key)
        if weights is None:
            weights = training.train_chain(
                prior.start,
                prior.bound,
                settings=replace(settings.recipe.network, pull=case.pull),
                toward=prior.center,
                phase="network",
                device=self._device,
                **shared,
            )
            self._keep(case.key, weights)
        self._shown.record({"case": case.key, "seed": seed}, paid=settings.attempts)
        between = time.perf_counter()
        promised = certificates(weights, prior.center, prior.bound, settings=settings, **shared)
        ended = time.perf_counter()
        test = self._test
        shown = prior.bound if test is None else test
        active, ratios = activity(weights, shown, settings=settings)
        return CaseResult(
            case=case,
            examples=len(prior.bound),
            train_errors=training.chain_errors(weights, prior.bound),
            test_errors=0 if test is None else training.chain_errors(weights, test),
            test_examples=0 if test is None else len(test),
            prior_errors=prior.errors,
            twin=prior.held_out_twin(
                failure=(settings.failure + settings.sampling_failure) / settings.attempts
            ),
            moved=training.squared_distances(weights, prior.center),
            spectral=training.spectral_norms(weights),
            active=active,
            activity=ratios,
            certificates=promised,
            norm_bounds=self._norm_bounds(weights),
            training_seconds=between - started,
            certificate_seconds=ended - between,
        )

    def _norm_bounds(self, weights: training.Chain) -> dict[str, float]:
        """What bounds from norms alone give on the same examples: margin errors and gap, uncut."""
        mine, theirs = (Layers.of(chain) for chain in (weights, self._prior.center))
        bound = self._prior.bound
        _, scores = forward(mine.to(self._device).weights, bound.inputs.double())
        bounds = norm_bounds(
            mine,
            theirs,
            margins=class_margins(scores, bound.labels).cpu(),
            input_norms=bound.inputs.double().norm(dim=1).cpu(),
            input_norm=1.0,
            failure=self._cell.failure / self._cell.attempts,
        )
        return {entry.name: entry.margin_errors / len(bound) + entry.gap for entry in bounds}

    def _stored(self, name: str) -> training.Chain | None:
        path = self._at.folder / f"{name}.safetensors"
        if not path.is_file():
            return None
        stored = load_tensors(path, kind=_KIND, device="cpu").values()
        return tuple(matrix.to(self._device) for matrix in stored)

    def _keep(self, name: str, weights: training.Chain) -> None:
        named = {f"{index}.weight": matrix.cpu() for index, matrix in enumerate(weights)}
        save_tensors(self._at.folder / f"{name}.safetensors", named, kind=_KIND)
