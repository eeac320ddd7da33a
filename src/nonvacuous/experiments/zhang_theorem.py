"""Theorem 1 of Zhang et al. (2017): 2n + d weights memorize any labels, at every depth.

For each number of examples: random labels at every depth, with an exact certificate, the float64
network evaluated unit by unit, and the test error after memorizing the true labels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nonvacuous.claims import claim_folder, write_record
from nonvacuous.data import Dataset, Examples, load
from nonvacuous.errors import BadInput
from nonvacuous.experiments.zhang_theorem_results import DepthResult, SizeResult, TheoremResult
from nonvacuous.experiments.zhang_theorem_settings import TheoremSettings
from nonvacuous.memorization import Memorizer, check_lemma, memorize, random_labels
from nonvacuous.training import Progress

#: Points on which the lemma's matrix is written out.
_LEMMA_POINTS = 40


def run(
    settings: TheoremSettings,
    folder: str | Path,
    *,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> TheoremResult:
    """Compute the table; every entry is kept in ``folder/entries`` as soon as it exists.

    device     where the networks are evaluated; the construction is Python's own arithmetic
    progress   the phase "entries" tells what each entry gave
    """
    place = Path(folder)
    dataset = load(settings.data, data_dir=data_dir)
    sizes = settings.sizes or (len(dataset.train),)
    if max(sizes) > len(dataset.train):
        raise BadInput(
            f"sizes: {max(sizes):,} examples are asked for, but {settings.data} has "
            f"{len(dataset.train):,}; change sizes"
        )
    claim_folder(
        place, settings.to_dict(), results=("entries/n*.json",), resume=resume, force=force
    )
    depths: list[DepthResult] = []
    plain: list[SizeResult] = []
    total = len(sizes) * (len(settings.depths) + 1)
    for size in sizes:
        train = dataset.train.subset(np.arange(size))
        for depth in settings.depths:
            path = place / "entries" / f"n{size}-depth{depth}.json"
            entry = _stored(path)
            if entry is None:
                entry = _at_depth(train, depth, settings, size == max(sizes), device, progress)
                write_record(path, entry)
            depths.append(DepthResult(**entry))
            _tell(progress, len(depths) + len(plain), total, depths[-1].told())
        path = place / "entries" / f"n{size}-labels.json"
        entry = _stored(path)
        if entry is None:
            entry = _labels(train, dataset, settings)
            write_record(path, entry)
        plain.append(SizeResult(**entry))
        _tell(progress, len(depths) + len(plain), total, plain[-1].told())
    return TheoremResult(settings, tuple(depths), tuple(plain))


def _at_depth(
    train: Examples,
    depth: int,
    settings: TheoremSettings,
    is_largest: bool,
    device: torch.device | str,
    progress: Progress | None,
) -> dict[str, Any]:
    """Random labels at one depth: construction, certificate, and the network in float64."""
    labels = random_labels(train, seed=settings.seed)
    found = memorize(
        train,
        labels,
        depth=depth,
        seed=settings.seed,
        conflicts="majority",
        progress=progress,
    )
    kept = found.predict(train).astype(np.int64)
    residual = found.residual(train, kept, device=device, progress=progress)
    narrow = None
    if depth == 2 and is_largest:
        narrow = found.residual_in(torch.float32).wrong
    return {
        "points": found.points,
        "dimensions": found.dimensions,
        "distinct": found.duplicates.distinct,
        "depth": depth,
        "width": found.width,
        "parameters": found.parameters,
        "theorem_parameters": found.theorem_parameters,
        "mismatches": found.certificate.mismatches,
        "unreachable": found.certificate.unreachable,
        "seconds": found.seconds,
        "certificate_seconds": found.certificate.seconds,
        "exact_error": found.weights.largest_error,
        "forward_error": residual.largest,
        "forward_wrong": residual.wrong,
        "forward_seconds": residual.seconds,
        "float32_wrong": narrow,
    }


def _labels(train: Examples, dataset: Dataset, settings: TheoremSettings) -> dict[str, Any]:
    """What memorizing says about the test set, with true labels and with random ones."""
    truth = memorize(train, seed=settings.seed, conflicts="majority")
    chance = memorize(
        train, random_labels(train, seed=settings.seed), seed=settings.seed, conflicts="majority"
    )
    rows = chance.construction
    some = slice(0, min(_LEMMA_POINTS, len(rows)))
    lemma = check_lemma(rows.places[some], rows.knots[some])
    test = dataset.test
    return {
        "points": len(train),
        "true_train_wrong": _wrong(truth, train),
        "test_examples": 0 if test is None else len(test),
        "true_test_right": 0 if test is None else len(test) - _wrong(truth, test),
        "random_test_right": 0 if test is None else len(test) - _wrong(chance, test),
        "smallest_eigenvalue": chance.smallest_eigenvalue,
        "lemma_points": lemma.size,
        "lemma_holds": lemma.holds,
    }


def _wrong(found: Memorizer, examples: Examples) -> int:
    return int((found.classify(examples) != examples.labels.numpy()).sum())


def _tell(progress: Progress | None, done: int, total: int, message: str) -> None:
    if progress is not None:
        progress("entries", done, total, message)


def _stored(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return entry
