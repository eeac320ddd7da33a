"""A grid of networks is trained to the same loss, and each measure must predict their gaps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from nonvacuous.errors import BadInput
from nonvacuous.measures.correlation import Estimate, Numbers, Trials
from nonvacuous.measures.correlation_summary import Court, Standing
from nonvacuous.measures.registry import MEASURES, chosen
from nonvacuous.papers.measures.settings import (
    AXES,
    CHANCE,
    GroupResult,
    MeasuresCell,
    MeasuresSettings,
    NetworkRecord,
    Times,
)
from nonvacuous.papers.measures.training import Training
from nonvacuous.progress import Progress
from nonvacuous.report.study import StudyPage
from nonvacuous.rules.outcomes import Shown
from nonvacuous.seeds import derived_seed
from nonvacuous.study.settings import under
from nonvacuous.study.study import Context, Finished, Study

#: Fewer networks than this cannot be judged by.
FEWEST = 8
#: A measure in the given gauge, and the same where the norm or the divergence is smallest.
PAIRS = (
    ("frobenius-sum", "balanced-frobenius-sum"),
    ("frobenius-product", "balanced-frobenius-product"),
    ("spectral-sum", "balanced-spectral-sum"),
    ("spectral-product", "balanced-spectral-product"),
    ("sharpness-trace", "sharpness-balanced"),
    ("flatness-isotropic", "flatness-balanced"),
    ("kl", "rescaled-kl"),
    ("kl-certificate", "rescaled-kl-certificate"),
    ("description-length", "balanced-description-length"),
    ("occam-bound", "balanced-occam-bound"),
)


@dataclass(frozen=True)
class Judged(Standing):
    """A measure's standing by the gap of errors, and its rank correlation with that of losses.

    divided   whether it was divided by the square root of the number of examples
    """

    loss_tau: Estimate
    divided: bool


@dataclass(frozen=True)
class Rescaled:
    """How much better a measure orders networks where the norm is smallest over rescaling.

    tau, granulated   rank correlation of ``best`` minus that of ``given``
    """

    given: str
    best: str
    tau: Estimate
    granulated: Estimate

    @property
    def verdict(self) -> str:
        """What the intervals allow to say: "better", "worse", "mixed" or "no difference"."""
        both = (self.tau, self.granulated)
        better, worse = any(e.low > 0 for e in both), any(e.high < 0 for e in both)
        if better and worse:
            return "mixed"
        return "better" if better else "worse" if worse else "no difference"

    def to_dict(self) -> dict[str, Any]:
        named = {"given": self.given, "best": self.best, "verdict": self.verdict}
        return named | asdict(self)


@dataclass(frozen=True)
class StudyResult:
    """All networks and all verdicts.

    judged      measures, those that order best when one thing changes at a time first
    not_judged  measure -> why not
    rescaled    measures in the given gauge beside their versions in the best one
    """

    settings: MeasuresSettings
    records: tuple[NetworkRecord, ...]
    judged: tuple[Judged, ...]
    not_judged: Mapping[str, str]
    times: Times
    rescaled: tuple[Rescaled, ...] = ()

    @property
    def reached(self) -> tuple[NetworkRecord, ...]:
        """The networks that are judged by: those that reached the stopping loss."""
        return tuple(entry for entry in self.records if entry.judged)

    @property
    def left_out(self) -> int:
        """How many never reached it."""
        return len(self.records) - len(self.reached)

    def to_dict(self) -> dict[str, Any]:
        gaps = [entry.gap for entry in self.reached]
        return {
            "settings": self.settings.record(),
            "planned": len(self.settings.networks()),
            "networks": len(self.records),
            "reached": len(self.reached),
            "left_out": self.left_out,
            "left_out_by": left_out_by(self.records),
            "gap": {"least": min(gaps), "mean": float(np.mean(gaps)), "most": max(gaps)},
            "measures": [entry.to_dict() for entry in self.judged],
            "not_judged": dict(self.not_judged),
            "rescaled": [entry.to_dict() for entry in self.rescaled],
            "times": self.times.to_dict(),
        }


def judge(
    records: Sequence[NetworkRecord],
    settings: MeasuresSettings,
    *,
    jobs: int = 1,
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
            f"predict. Give two values or more of one of {', '.join(AXES)}"
        )
    loss_gaps = np.array([entry.loss_gap for entry in reached])
    work, refused = [], {}
    divisible = settings.per_root_n and "examples" in trials.axes
    for name in (*reached[0].measures, CHANCE):
        divided = divisible and not knows_examples(name)
        column = oriented(name, reached, per_root_n=divided, seed=settings.seed)
        some = ~np.isnan(column)
        if 2 * int(some.sum()) < len(reached) or int(some.sum()) < FEWEST:
            why = [m["undefined"] for m in (r.measures[name] for r in reached) if "undefined" in m]
            refused[name] = f"undefined for {len(why)} of {len(reached)} networks: {why[0]}"
            continue
        court = _court(trials.where(some), settings)
        work.append(delayed(_judged)(name, court, column[some], loss_gaps[some], divided))
    judged: list[Judged] = []
    for entry in Parallel(n_jobs=jobs, return_as="generator")(work):
        judged.append(entry)
        if progress is not None:
            progress("measures", len(judged), len(work), entry.name)
    judged.sort(key=lambda entry: -entry.granulated_mean.value)
    return tuple(judged), refused


def _court(trials: Trials, settings: MeasuresSettings) -> Court:
    own = settings.model_dump(include={"draws", "information_draws", "beyond"})
    seed = derived_seed(settings.seed, "measures study", "bootstrap") % 2**32
    return Court(trials, **own, seed=seed)


def compare_gauges(
    records: Sequence[NetworkRecord], settings: MeasuresSettings, *, jobs: int = 1
) -> tuple[Rescaled, ...]:
    """Each measure of PAIRS that both gauges have, by the networks for which both are defined."""
    reached = [entry for entry in records if entry.judged]
    trials = trials_of(reached)
    divisible = settings.per_root_n and "examples" in trials.axes
    work = {}
    for pair in PAIRS:
        if not set(pair) <= set(reached[0].measures):
            continue
        divided = divisible and not knows_examples(pair[0])
        given, best = (oriented(name, reached, per_root_n=divided) for name in pair)
        some = ~(np.isnan(given) | np.isnan(best))
        if 2 * int(some.sum()) >= len(reached):
            court = _court(trials.where(some), settings)
            work[pair] = delayed(court.difference)(given[some], best[some])
    differences = Parallel(n_jobs=jobs)(work.values())
    return tuple(Rescaled(*pair, *both) for pair, both in zip(work, differences, strict=True))


def _judged(name: str, court: Court, column: Numbers, loss_gaps: Numbers, divided: bool) -> Judged:
    standing, loss_tau = court.judge(name, column), court.tau(column, gaps=loss_gaps)
    return Judged(**vars(standing), loss_tau=loss_tau, divided=divided)


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
    examples = [record.hyperparameters["examples"] if per_root_n else 1 for record in records]
    root: Numbers = np.sqrt(np.array(examples, dtype=float))
    if any("undefined" not in entry and entry["number"] is None for entry in entries):
        # Only zero has a number and no logarithm here.
        return _column(entries, "log10", -np.inf) - np.log10(root)
    values = _column(entries, "number", np.nan)
    if name in MEASURES and MEASURES[name].higher == "better":
        # A bound has 1 / (margin sqrt(n)) where another has norm / sqrt(n).
        return -values * root
    return values / root


def knows_examples(name: str) -> bool:
    """Whether a measure's formula has the number of examples n in it."""
    if name not in MEASURES:
        return True
    return re.search(r"(?<![A-Za-z])n(?![A-Za-z])", MEASURES[name].formula) is not None


def left_out_by(records: Sequence[NetworkRecord]) -> dict[str, dict[str, int]]:
    """For each axis how many networks with each value never reached the stopping loss."""
    missing = [entry.hyperparameters for entry in records if not entry.judged]
    if not missing:
        return {}
    return {name: dict(Counter(f"{entry[name]:g}" for entry in missing)) for name in AXES}


def _column(entries: Sequence[Mapping[str, Any]], kind: str, missing: float) -> Numbers:
    known = (np.nan if "undefined" in entry else entry[kind] for entry in entries)
    return np.array([missing if value is None else float(value) for value in known])


class MeasuresStudy(Study[MeasuresSettings, StudyResult]):
    """Train a grid of networks to the same loss and ask every measure which of them generalize.

    Without flags: 256 perceptrons on the embedded digits, in some minutes on two processor cores.
    """

    name = "measures-study"
    settings = MeasuresSettings
    cell = MeasuresCell
    gives = GroupResult
    pages = "nonvacuous.papers.measures.page"
    #: How trained networks are judged, not they.
    may_change = frozenset({
        "draws", "information_draws", "beyond", "per_root_n", "alone", "alone_epochs", "together",
        "train",
    })  # fmt: skip
    jobs = None
    then = "nonvacuous measures --help"

    def cells(self, settings: MeasuresSettings, finished: Finished) -> Sequence[MeasuresCell]:
        with under("measures", "cheap"):
            chosen(settings.measures or None)
        if not settings.train:
            return ()
        known = {record.key for entry in finished for record in entry.result.records}
        groups = ([c for c in cells if c.key not in known] for cells in settings.groups())
        missing = [MeasuresCell.of(cells, settings) for cells in groups if cells]
        if missing or not settings.alone or any(entry.cell.alone for entry in finished):
            return missing
        # A few networks of the grid, evenly spread; last, so that nothing else takes time then.
        every, count = settings.networks(), min(settings.alone, len(settings.networks()))
        few = [every[(2 * number + 1) * len(every) // (2 * count)] for number in range(count)]
        return [MeasuresCell.of(few, settings, alone=True)]

    def compute(self, cell: MeasuresCell, at: Context) -> GroupResult:
        if any(measure.is_bound for measure in chosen(cell.measures or None)):
            examples = at.dataset(cell.data).train
            shown = Shown(at.ledger_file, examples, command="reproduce measures-study")
            shown.record(cell.model_dump(mode="json"))
        training = Training(cell, at)
        return training.alone() if cell.alone else training.together()

    def result(self, settings: MeasuresSettings, finished: Finished, at: Context) -> StudyResult:
        known = {record.key: record for entry in finished for record in entry.result.records}
        records = tuple(known[cell.key] for cell in settings.networks() if cell.key in known)
        judged, refused = judge(records, settings, jobs=at.jobs, progress=at.progress)
        rescaled = compare_gauges(records, settings, jobs=at.jobs)
        return StudyResult(settings, records, judged, refused, _added(finished), rescaled)

    def title(self, settings: MeasuresSettings) -> str:
        count = len(settings.networks())
        return f"{count:,} networks on {settings.data}, seed {settings.seed}"

    def files(self, result: StudyResult, page: StudyPage) -> Mapping[str, str]:
        lines = "".join(f"{entry.model_dump_json()}\n" for entry in result.records)
        return {**super().files(result, page), "networks.jsonl": lines}


STUDY = MeasuresStudy()


def _added(finished: Finished) -> Times:
    """The times of all cells together."""
    every = [entry.result.times for entry in finished]
    last = next((times for times in reversed(every) if times.method), Times())
    added = Times.model_fields.keys() - {"device", "method"}
    sums = {name: sum(getattr(times, name) for times in every) for name in added}
    return last.model_copy(update=sums)
