"""The study of measures: a grid of networks is trained, and each measure must foretell their gaps.

After Jiang, Neyshabur, Mobahi, Krishnan, Bengio: Fantastic generalization measures and where to
find them (ICLR 2020), and Dziugaite et al.: In search of robust measures of generalization (NeurIPS
2020).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nonvacuous.errors import BadInput
from nonvacuous.experiments.measures_study_material import StudyMaterial
from nonvacuous.experiments.measures_study_settings import AXES, StudySettings
from nonvacuous.experiments.measures_study_store import NetworkRecord, StudyStore, Times
from nonvacuous.experiments.measures_study_training import Trainer
from nonvacuous.experiments.measures_study_workers import Workers
from nonvacuous.measures.correlation import Estimate, Numbers, Trials
from nonvacuous.measures.correlation_summary import Court, Standing
from nonvacuous.measures.registry import MEASURES
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed

#: A column of random numbers is judged along: what it scores is what chance alone gives.
CHANCE = "random-numbers"
#: Fewer networks than this cannot be judged by.
FEWEST = 8


@dataclass(frozen=True)
class Judged:
    """A measure's standing by the gap of errors, and its rank correlation with that of losses.

    divided   whether it was divided by the square root of the number of examples
    """

    standing: Standing
    loss_tau: Estimate
    divided: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for a file."""
        return self.standing.to_dict() | {
            "loss_tau": self.loss_tau.to_dict(),
            "divided": self.divided,
        }


@dataclass(frozen=True)
class StudyResult:
    """All networks and all verdicts.

    judged      measures, those that order best when one thing changes at a time first
    not_judged  measure -> why not
    """

    settings: StudySettings
    records: tuple[NetworkRecord, ...]
    judged: tuple[Judged, ...]
    not_judged: Mapping[str, str]
    times: Times

    @property
    def reached(self) -> tuple[NetworkRecord, ...]:
        """The networks that are judged by: those that reached the stopping loss."""
        return tuple(entry for entry in self.records if entry.judged)

    @property
    def left_out(self) -> int:
        """How many never reached it."""
        return len(self.records) - len(self.reached)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers; the networks themselves are in networks.jsonl."""
        gaps = [entry.gap for entry in self.reached]
        return {
            "settings": self.settings.to_dict(),
            "networks": len(self.records),
            "reached": len(self.reached),
            "left_out": self.left_out,
            "left_out_by": left_out_by(self.records),
            "gap": {"least": min(gaps), "mean": float(np.mean(gaps)), "most": max(gaps)},
            "measures": [entry.to_dict() for entry in self.judged],
            "not_judged": dict(self.not_judged),
            "times": self.times.to_dict(),
        }


def run(
    settings: StudySettings,
    folder: str | Path,
    *,
    data_dir: str | Path | None = None,
    device: str = "cpu",
    processes: int = 1,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> StudyResult:
    """Train what the folder does not hold yet, measure it, and judge every measure.

    processes   for measures and statistics, beside the one that trains
    progress    phase "training" counts steps, "networks" networks, "measures" measures
    """
    store = StudyStore(folder)
    store.open(settings, resume=resume, force=force)
    with Workers(processes) as workers:
        have = {entry.key for entry in store.records()}
        if any(cell.key not in have for cell in settings.cells()):
            material = StudyMaterial.of(settings, data_dir=data_dir)
            Trainer(
                settings, material, store, workers, device=device, progress=progress
            ).run()  # fmt: skip
        wanted = {cell.key for cell in settings.cells()}
        records = tuple(entry for entry in store.records() if entry.key in wanted)
        judged, refused = judge(records, settings, workers=workers, progress=progress)
    return StudyResult(settings, records, judged, refused, store.times())


def usual_processes(device: str) -> int:
    """As many as there are cores, one of them left to the process that keeps a GPU busy."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, cores - 1 if device == "cuda" else cores)


def judge(
    records: Sequence[NetworkRecord],
    settings: StudySettings,
    *,
    workers: Workers,
    progress: Progress | None = None,
) -> tuple[tuple[Judged, ...], dict[str, str]]:
    """Every measure that is defined for most networks, and why the others are not judged."""
    reached = [entry for entry in records if entry.judged]
    if len(reached) < FEWEST:
        raise BadInput(
            f"only {len(reached)} of {len(records)} networks reached a training loss of "
            f"{settings.stop_loss:g}; {FEWEST} are needed. Raise stop_loss or epochs, or use fewer "
            "wrong labels"
        )
    trials = trials_of(reached)
    if not trials.axes:
        raise BadInput(
            "every network has the same hyper-parameters: there is no change that a measure could "
            f"foretell. Give two values or more of one of {', '.join(AXES)}"
        )
    loss_gaps = np.array([entry.loss_gap for entry in reached])
    waiting: dict[str, tuple[bool, Future[tuple[Standing, Estimate]]]] = {}
    refused = {}
    for name in (*reached[0].measures, CHANCE):
        divided = settings.per_root_n and "examples" in trials.axes and not knows_examples(name)
        column = oriented(name, reached, per_root_n=divided, seed=settings.seed)
        some = ~np.isnan(column)
        if 2 * int(some.sum()) < len(reached) or int(some.sum()) < FEWEST:
            refused[name] = _why_undefined(name, reached)
            continue
        court = Court(
            trials.where(some),
            draws=settings.draws,
            information_draws=settings.information_draws,
            beyond=settings.beyond,
            seed=derived_seed(settings.seed, "measures study", "bootstrap") % 2**32,
        )
        promise = workers.submit(_judged, name, court, column[some], loss_gaps[some])
        waiting[name] = (divided, promise)
        if progress is not None:
            progress("measures", len(waiting), len(reached[0].measures) + 1, name)
    found = [Judged(*promise.result(), divided) for divided, promise in waiting.values()]
    found.sort(key=lambda entry: -entry.standing.granulated_mean.value)
    return tuple(found), refused


def _judged(
    name: str, court: Court, column: Numbers, loss_gaps: Numbers
) -> tuple[Standing, Estimate]:
    return court.judge(name, column), court.tau(column, gaps=loss_gaps)


def trials_of(records: Sequence[NetworkRecord]) -> Trials:
    """The networks as plain arrays, with the standard error of each gap."""
    return Trials.of(
        [entry.gap for entry in records],
        {name: [entry.hyperparameters[name] for entry in records] for name in AXES},
        seeds=[entry.repetition for entry in records],
        noise=[
            (entry.test_error * (1 - entry.test_error) / entry.test_examples) ** 0.5
            for entry in records
        ],
    )


def oriented(
    name: str, records: Sequence[NetworkRecord], *, per_root_n: bool, seed: int = 0
) -> Numbers:
    """A measure of all networks, turned so that larger should mean a larger gap; nan: undefined.

    Only the order matters. Where a value leaves the range of floats, the logarithms of all stand
    for them.
    """
    if name == CHANCE:
        generator = np.random.default_rng(derived_seed(seed, "measures study", name))
        return generator.normal(size=len(records))
    entries = [record.measures.get(name, {"undefined": ""}) for record in records]
    root = np.sqrt([float(record.hyperparameters["examples"]) for record in records])
    if any("undefined" not in entry and entry["number"] is None for entry in entries):
        logs = np.array([_log(entry) for entry in entries])
        return logs - np.log10(root) if per_root_n else logs
    values = np.array(
        [np.nan if "undefined" in entry else float(entry["number"]) for entry in entries]
    )
    if name in MEASURES and MEASURES[name].higher == "better":
        # A bound has 1 / (margin sqrt(n)) where another has norm / sqrt(n).
        return -values * root if per_root_n else -values
    return values / root if per_root_n else values


def knows_examples(name: str) -> bool:
    """Whether a measure's formula has the number of examples n in it."""
    if name not in MEASURES:
        return True
    return re.search(r"(?<![A-Za-z])n(?![A-Za-z])", MEASURES[name].formula) is not None


def left_out_by(records: Sequence[NetworkRecord]) -> dict[str, dict[str, int]]:
    """For each axis how many networks with each value never reached the stopping loss."""
    missing = [entry for entry in records if not entry.judged]
    found: dict[str, dict[str, int]] = {}
    for name in AXES:
        for entry in missing:
            value = f"{entry.hyperparameters[name]:g}"
            by_value = found.setdefault(name, {})
            by_value[value] = by_value.get(value, 0) + 1
    return found


def _log(entry: Mapping[str, Any]) -> float:
    if "undefined" in entry:
        return float("nan")
    return -np.inf if entry["log10"] is None else float(entry["log10"])


def _why_undefined(name: str, records: Sequence[NetworkRecord]) -> str:
    reasons = [record.measures[name].get("undefined") for record in records]
    missing = [reason for reason in reasons if reason is not None]
    return f"undefined for {len(missing)} of {len(records)} networks: {missing[0]}"
