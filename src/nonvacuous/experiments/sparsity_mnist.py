"""The sparsity paper on MNIST: certificates for the network you would deploy, with no noise in it.

Depths 2 and 3 with widths 100, 500 and 1000 and priors that saw nothing or 5 % of the data, as in
Muthukumar and Sulam (2023), then deeper. Every theorem in its dense and in its sparse variant, and
always beside them what a plain test of the prior promises.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from nonvacuous.claims import claim_folder, write_record
from nonvacuous.data import Dataset, Examples, load, make_split
from nonvacuous.distributions.storage import load_tensors, save_tensors
from nonvacuous.experiments.sparsity_certificates import activity, certificates
from nonvacuous.experiments.sparsity_results import CaseResult, SparsityResult
from nonvacuous.experiments.sparsity_settings import Case, SparsitySettings
from nonvacuous.seeds import derived_seed
from nonvacuous.sparsity.chains import (
    Chain,
    chain_errors,
    spectral_norms,
    squared_distances,
    unit_norm,
)
from nonvacuous.sparsity.priors import ChainPrior, make_prior
from nonvacuous.sparsity.training import train_chain
from nonvacuous.training import Progress

_KIND = "chain"


def run(
    settings: SparsitySettings,
    folder: str | Path,
    *,
    only: Sequence[str] = (),
    data_dir: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> SparsityResult:
    """Train and certify; every network is kept in ``folder/cases`` as soon as it is finished.

    only       parts or names of networks; those finished earlier are shown as well
    device     where to train and to certify. Random numbers differ between kinds of devices, and
               so do the networks; every certificate is as valid
    progress   the phase "networks" tells what each network gave
    """
    wanted = settings.only(only)
    place = Path(folder)
    dataset = load(settings.data, data_dir=data_dir)
    dataset = Dataset(
        unit_norm(dataset.train), None if dataset.test is None else unit_norm(dataset.test)
    )
    claim_folder(
        place,
        settings.to_dict(),
        results=("cases/*.json", "priors/*.safetensors", "networks/*.safetensors"),
        resume=resume,
        force=force,
    )
    study = _Study(settings, place, dataset, torch.device(device), progress)
    for done, case in enumerate(wanted, start=1):
        path = place / "cases" / f"{case.key}.json"
        if not path.is_file():
            write_record(path, study.compute(case).to_dict())
        if progress is not None:
            progress("networks", done, len(wanted), _stored(path).told())
    paths = (place / "cases" / f"{case.key}.json" for case in settings.cases())
    return SparsityResult(settings, tuple(_stored(path) for path in paths if path.is_file()))


class _Study:
    """Trains the networks of one study; a prior that several of them share is learned once."""

    def __init__(
        self,
        settings: SparsitySettings,
        folder: Path,
        dataset: Dataset,
        device: torch.device,
        progress: Progress | None,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._dataset = dataset
        self._device = device
        self._test = None if dataset.test is None else dataset.test.to(device)
        self._progress = progress
        self._prior: tuple[str, ChainPrior] | None = None

    def compute(self, case: Case) -> CaseResult:
        settings = self._settings
        started = time.perf_counter()
        prior = self._prior_of(case)
        recipe = settings.recipes[case.recipe]
        seed = derived_seed(settings.seed, case.key)
        weights = self._found("networks", case.key)
        if weights is None:
            weights = train_chain(
                prior.start,
                prior.bound,
                settings=replace(recipe.network, pull=case.pull),
                toward=prior.weights,
                seed=seed,
                phase="network",
                device=self._device,
                progress=self._progress,
            ).weights
            self._keep("networks", case.key, weights)
        between = time.perf_counter()
        found = certificates(
            weights,
            prior.weights,
            prior.bound,
            settings=settings,
            seed=seed,
            progress=self._progress,
        )
        ended = time.perf_counter()
        test = self._test
        shown = test if test is not None else prior.bound
        active, ratios = activity(weights, shown, settings=settings)
        return CaseResult(
            case=case,
            examples=len(prior.bound),
            train_errors=chain_errors(weights, prior.bound),
            test_errors=0 if test is None else chain_errors(weights, test),
            test_examples=0 if test is None else len(test),
            prior_errors=prior.errors,
            twin=prior.held_out_twin(
                failure=(settings.failure + settings.sampling_failure) / settings.attempts
            ),
            moved=squared_distances(weights, prior.weights),
            spectral=spectral_norms(weights),
            active=active,
            activity=ratios,
            certificates=found,
            training_seconds=between - started,
            certificate_seconds=ended - between,
        )

    def _prior_of(self, case: Case) -> ChainPrior:
        key = case.prior_key
        if self._prior is None or self._prior[0] != key:
            recipe = self._settings.recipes[case.recipe]
            prior = make_prior(
                case.prior,
                self._part(case.share),
                (case.width,) * case.hidden,
                settings=recipe.prior,
                start=recipe.start,
                shifts=recipe.shifts,
                seed=self._settings.seed,
                device=self._device,
                progress=self._progress,
                learned=self._found("priors", key),
            )
            self._keep("priors", key, prior.weights)
            self._prior = (key, prior)
        return self._prior[1]

    def _part(self, share: float) -> Examples:
        train = self._dataset.train
        if share == 1.0:
            return train
        split = make_split(
            len(train), prior_fraction=share, seed=derived_seed(self._settings.seed, "share")
        )
        return train.subset(np.sort(split.prior))

    def _found(self, where: str, key: str) -> Chain | None:
        path = self._folder / where / f"{key}.safetensors"
        if not path.is_file():
            return None
        stored = load_tensors(path, kind=_KIND, device="cpu").values()
        return tuple(matrix.to(self._device) for matrix in stored)

    def _keep(self, where: str, key: str, weights: Chain) -> None:
        named = {f"{index}.weight": matrix.cpu() for index, matrix in enumerate(weights)}
        save_tensors(self._folder / where / f"{key}.safetensors", named, kind=_KIND)


def _stored(path: Path) -> CaseResult:
    return CaseResult.from_dict(json.loads(path.read_text(encoding="utf-8")))
