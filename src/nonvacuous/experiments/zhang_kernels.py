"""Exact kernel interpolation, section 5 of Zhang et al.: raw pixels, Gabor bank, random patches.

Each case is one study with several labelings; the published error stands beside ours. At the end,
functions that fit the same examples as perfectly and know nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nonvacuous.claims import claim_folder, write_record
from nonvacuous.data import Dataset, load
from nonvacuous.errors import BadInput
from nonvacuous.experiments.interpolation_study import (
    InterpolationStudy,
    Task,
    chosen_kernel,
    distinct_examples,
    run_study,
)
from nonvacuous.experiments.settings_files import SettingsFile
from nonvacuous.interpolation.bad import Judged, compare_interpolants
from nonvacuous.interpolation.kernels import median_squared_distance
from nonvacuous.training.progress import Progress

PAPER = "Zhang et al. (ICLR 2017), section 5"


@dataclass(frozen=True)
class Case:
    """One row: a data set, its features and the width of a Gaussian kernel.

    published   the paper's test error in per cent, if it has one
    """

    name: str
    data: str
    features: str
    gamma: str
    published: float | None = None


_CASES = (
    Case("mnist-raw", "mnist", "raw", "0.02", 1.2),
    Case("mnist-gabor", "mnist", "gabor", "median:1", 0.6),
    Case("cifar10-raw", "cifar10", "raw", "0.01", 46.0),
    Case("cifar10-patches", "cifar10", "patches:32000", "median:2", 17.0),
)
_QUICK = (
    Case("digits-raw", "digits", "raw", "median:2"),
    Case("digits-gabor", "digits", "gabor", "median:1"),
    Case("digits-patches", "digits", "patches:40", "median:2"),
)


@dataclass(frozen=True)
class KernelsSettings(SettingsFile):
    """What the reproduction computes.

    examples       train on the first so many of every data set (None: all)
    labels         labelings, all solved for at once
    bad_data, bad_examples, bad_test
                   where functions that fit and fail are shown, with how many examples
    """

    cases: tuple[Case, ...] = _CASES
    examples: int | None = None
    labels: tuple[str, ...] = ("true", "partial:0.5", "random")
    bad_data: str = "mnist"
    bad_examples: int = 3000
    bad_test: int = 3000
    bad_gamma: str = "0.02"
    seed: int = 0

    def __post_init__(self) -> None:
        cases = tuple(
            case if isinstance(case, Case) else _case(case, number)
            for number, case in enumerate(self.cases)
        )
        object.__setattr__(self, "cases", cases)
        object.__setattr__(self, "labels", tuple(self.labels))
        names = [case.name for case in cases]
        if not names or len(set(names)) != len(names):
            raise BadInput(f"cases: name at least one, each once; got {names}")

    @classmethod
    def quick(cls) -> KernelsSettings:
        """The same steps on the embedded digits, in seconds."""
        return cls(
            cases=_QUICK,
            bad_data="digits",
            bad_examples=600,
            bad_test=200,
            bad_gamma="median:2",
        )

    def only(self, names: tuple[str, ...]) -> KernelsSettings:
        """Some of the cases, by name."""
        listed = {case.name: case for case in self.cases}
        for name in names:
            if name not in listed:
                raise BadInput(f"there is no case {name!r} here; there are {', '.join(listed)}")
        return replace(self, cases=tuple(listed[name] for name in dict.fromkeys(names)))

    def to_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))


@dataclass(frozen=True)
class KernelsResult:
    """All cases, and the functions that fit and fail."""

    settings: KernelsSettings
    studies: tuple[tuple[Case, InterpolationStudy], ...]
    bad: tuple[Judged, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "paper": PAPER,
            "settings": self.settings.to_dict(),
            "cases": [
                {"name": case.name, "published_percent": case.published, **study.to_dict()}
                for case, study in self.studies
            ],
            "bad_interpolants": [asdict(entry) for entry in self.bad],
        }


def run(
    settings: KernelsSettings,
    folder: str | Path,
    *,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> KernelsResult:
    """Compute case by case; each one is kept as soon as it is done."""
    place = Path(folder)
    claim_folder(
        place,
        settings.to_dict(),
        results=("cases/*.json",),
        # Which cases are asked for; each says itself how it was computed.
        may_change={"cases"},
        resume=resume,
        force=force,
    )
    loaded: dict[str, Dataset] = {}

    def dataset(name: str) -> Dataset:
        if name not in loaded:
            loaded.clear()
            loaded[name], _ = distinct_examples(load(name, data_dir=data_dir))
        return loaded[name]

    studies = []
    for number, case in enumerate(settings.cases):
        path = place / "cases" / f"{case.name}.json"
        study = _stored(path, case)
        if study is None:
            chosen = _first(dataset(case.data), settings.examples)
            task = Task(
                features=case.features,
                gamma=case.gamma,
                labels=settings.labels,
                seed=settings.seed,
            )
            study, _ = run_study(
                chosen,
                task,
                device=device,
                folder=place / "factor" / case.name if len(chosen.train) > 20_000 else None,
                progress=progress,
            )
            write_record(path, {"case": asdict(case), "study": study.to_dict()})
        studies.append((case, study))
        if progress is not None:
            progress("cases", number + 1, len(settings.cases), told(case, study))
    bad = bad_interpolants(settings, dataset(settings.bad_data))
    result = KernelsResult(settings, tuple(studies), bad)
    write_record(place / "results.json", result.to_dict())
    return result


def bad_interpolants(settings: KernelsSettings, dataset: Dataset) -> tuple[Judged, ...]:
    """Functions that fit the first training examples perfectly, good and bad."""
    if dataset.test is None:
        raise BadInput(f"{dataset.train.name} has no test set, which this comparison needs")
    train = _first(dataset, settings.bad_examples).train
    test = dataset.test.subset(np.arange(min(settings.bad_test, len(dataset.test))))
    median = median_squared_distance(train.inputs)
    return compare_interpolants(
        train.inputs,
        train.labels.numpy(),
        test.inputs,
        test.labels.numpy(),
        kernel=chosen_kernel(Task(gamma=settings.bad_gamma), median),
        classes=train.classes,
        seed=settings.seed,
    )


def told(case: Case, study: InterpolationStudy) -> str:
    """One line about a case."""
    first = study.labelings[0]
    shown = "" if case.published is None else f" (published {case.published:g} %)"
    if first.test_errors is None:
        return f"{case.name}: norm {first.norm:,.1f}"
    error = 100 * first.test_errors / study.test_examples
    return f"{case.name}: test error {error:.2f} %{shown}, norm {first.norm:,.1f}"


def _stored(path: Path, case: Case) -> InterpolationStudy | None:
    """What was computed earlier for the same case."""
    if not path.is_file():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    if record.get("case") != asdict(case):
        raise BadInput(
            f"{path} holds the case {case.name!r} with other settings; remove it to compute it "
            "anew, or name another folder"
        )
    return InterpolationStudy.from_dict(record["study"])


def _first(dataset: Dataset, count: int | None) -> Dataset:
    if count is None or count >= len(dataset.train):
        return dataset
    return Dataset(dataset.train.subset(np.arange(count)), dataset.test)


def _case(record: Mapping[str, Any], number: int) -> Case:
    try:
        return Case(**record)
    except TypeError as error:
        raise BadInput(
            f"cases[{number}]: expected name, data, features, gamma and published; {error}"
        ) from error
