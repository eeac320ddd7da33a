"""Trains the networks of a study part by part, keeps what is finished, tells the time left."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from nonvacuous.claims import SETTINGS, claim_folder
from nonvacuous.files import write_atomically
from nonvacuous.progress import Progress, Reporter
from nonvacuous.randomization.learners import Learner, Outcome, Task
from nonvacuous.randomization.settings import StudySettings

#: A certificate takes about as long as this many networks.
_CERTIFICATE = 3
_OUTCOMES = TypeAdapter(list[Outcome])
_PARTS = "parts"
_RECORD = replace(SETTINGS, kind="study")


class Workshop:
    """One study's training: asks for tasks only where their results are not on disk already.

    Every finished part is one JSON file of the folder; without a folder nothing is kept.
    """

    def __init__(
        self,
        learner: Learner,
        settings: StudySettings,
        folder: str | Path | None,
        progress: Progress | None,
    ) -> None:
        self._learner, self._progress = learner, progress
        self.folder = None if folder is None else Path(folder)
        self.networks = self._done = 0
        self._total = planned_networks(settings)
        if settings.certificates:
            self._total += _CERTIFICATE * len(settings.conditions)
        self._reporter: Reporter | None = None

    def open(self, record: Mapping[str, Any], *, resume: bool, force: bool) -> None:
        """Claim the folder for a study with these settings, or find it claimed by the same one."""
        if self.folder is not None:
            results = (f"{_PARTS}/*.json", f"{_PARTS}/*.checkpoint*")
            claim_folder(
                self.folder, record, results=results, resume=resume, force=force, record=_RECORD
            )

    def close(self) -> None:
        """A finished study needs no checkpoints."""
        if self.folder is not None:
            for path in (self.folder / _PARTS).glob("*.checkpoint*"):
                path.unlink(missing_ok=True)

    def train(
        self,
        name: str,
        tasks: Callable[[], list[Task]],
        *,
        count: int,
        learner: Learner | None = None,
    ) -> list[Outcome]:
        """The outcomes of ``count`` tasks: trained together, or one by one by a user's function."""
        chosen = learner or self._learner
        size = chosen.at_once
        made = cache(tasks)
        outcomes: list[Outcome] = []
        for start in range(0, count, size):
            part = name if count <= size else f"{name}-{start // size + 1}"
            units = min(size, count - start)
            title, message = part, f"{units} network{'s' if units > 1 else ''}"
            if size == 1:
                title, message = name, f"network {start + 1} of {count}"
            title = f"training ({title.replace('-', ' ')})"
            some = slice(start, start + size)
            compute = partial(self._compute, made, some, part, title, chosen)
            record = self.part(part, compute, title=title, message=message, units=units)
            outcomes += _OUTCOMES.validate_python(record["outcomes"])
        self.networks += count
        return outcomes

    def part(
        self,
        name: str,
        compute: Callable[[], dict[str, Any]],
        *,
        title: str,
        message: str,
        units: int = _CERTIFICATE,
    ) -> dict[str, Any]:
        """A part of the study from disk, or computed and kept."""
        path = self._path(f"{name}.json")
        if path is not None and path.is_file():
            text = path.read_text(encoding="utf-8")
            self._done += units
        else:
            self._tell(f"{title}: {message}")
            text = json.dumps(compute(), allow_nan=False)
            if path is not None:
                write_atomically(path, text)
            self._done += units
            self._tell(f"{title}: done")
        plain: dict[str, Any] = json.loads(text)
        return plain

    def _compute(
        self, made: Callable[[], list[Task]], some: slice, part: str, title: str, learner: Learner
    ) -> dict[str, Any]:
        tasks, before = made()[some], self._done

        def progress(phase: str, done: int, total: int, message: str) -> None:
            share = len(tasks) * done / max(total, 1)
            # The time left of this part alone is of no interest.
            own, _, _ = message.partition(", about ")
            self._tell(f"{title}: {own}", at=before + share)

        outcomes = learner.learn(
            tasks,
            progress=None if self._progress is None else progress,
            checkpoint=self._path(f"{part}.checkpoint"),
        )
        return {"outcomes": [asdict(outcome) for outcome in outcomes]}

    def _path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / _PARTS / name

    def _tell(self, message: str, *, at: float | None = None) -> None:
        if self._reporter is None:
            # From the first part that is not on disk: the others took no time now.
            self._reporter = Reporter(self._progress, "the whole study", done=_units(self._done))
        done = self._done if at is None else at
        self._reporter.report(_units(done), _units(self._total), message, always=at is None)


def _units(networks: float) -> int:
    """Hundredths of a network, so that a bar moves while many train at once."""
    return round(100 * networks)


def planned_networks(settings: StudySettings) -> int:
    """How many networks a study trains, its regularization matrix included."""
    paired = settings.seeds * len(settings.conditions)
    matrix = 8 * settings.seeds if settings.regularization else 0
    return paired + settings.permutations + settings.sign_vectors + matrix
