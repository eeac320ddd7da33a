"""Running a study: its folder is claimed, its cells computed, its result and pages written."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from nonvacuous import errors
from nonvacuous.claims import SETTINGS as RECORD
from nonvacuous.claims import Record, claim_folder, own_folder, write_record
from nonvacuous.errors import BadInput, FolderTaken, NonvacuousError
from nonvacuous.files import write_atomically
from nonvacuous.progress import Progress
from nonvacuous.report.study import write_study
from nonvacuous.study.engine import Driver, Engine
from nonvacuous.study.folder import CELLS, ERROR, RESULT, SWEEP, SweepFolder, ending, read_record
from nonvacuous.study.local import LocalEngine, end_processes
from nonvacuous.study.study import Context, FinishedCell, Study
from nonvacuous.study.sweep import Cell, Sweep

SETTINGS, RESULTS, PAGE = "settings.json", "results.json", "report.html"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Surroundings:
    """Where and with what a study is computed; no result depends on it.

    engine     makes the engine that computes cells; None: one after another in this process
    """

    data_dir: Path | None = None
    device: str = "cpu"
    engine: Callable[[], Engine] | None = None
    jobs: int = 1
    resume: bool = False
    force: bool = False
    ledger: Path | None = None


def run_study(
    study: Study[Any, Result],
    settings: Any,
    folder: str | Path,
    *,
    surroundings: Surroundings | None = None,
    progress: Progress | None = None,
) -> Result:
    """Compute what the folder does not hold yet, and return what all of it amounts to.

    The first cell that fails ends the study with its error; what has ended well is kept.

    progress   the phase "cells" counts them and says what each gave; other phases are those of the
               cells themselves, where they are computed in this process
    """
    study.cells(settings, ())  # what cannot be meant is refused before anything is touched
    around = surroundings or Surroundings()
    run = _Run(study, settings, Path(folder), around, progress)
    try:
        with own_folder(run.folder, run.record):
            result: Result = run.result()
            return result
    finally:
        if around.jobs > 1:
            end_processes()


def finished_cells(study: Study[Any, Any], folder: str | Path) -> tuple[FinishedCell, ...]:
    """The cells of a folder that have ended well, in the order in which they were first named."""
    target = Path(folder)
    record = read_record(target / SWEEP) or {"cells": []}
    cells = []
    for entry in record["cells"]:
        run = target / CELLS / entry["name"]
        ended = read_record(run / RESULT)
        if ended is not None:
            try:
                cell = study.cell_of(entry["settings"], entry["seed"])
                cells.append(FinishedCell(cell, study.read(ended["result"]), run))
            except ValidationError as error:
                raise BadInput(
                    f"{run} holds no result of {study.name}; name another folder"
                ) from error
    return tuple(cells)


def write_pages(
    study: Study[Any, Result], result: Result, folder: str | Path, *, command: str
) -> dict[str, Path]:
    """Write results.json, report.html and what else the study has; their paths by name."""
    target = Path(folder)
    write_record(target / RESULTS, study.record(result))
    page = study.page(result, command)
    paths = {RESULTS: target / RESULTS}
    for name, text in study.files(result, page).items():
        paths[name] = target / name
        write_atomically(paths[name], text)
    paths[PAGE] = write_study(page, target / PAGE)
    return paths


@dataclass(frozen=True)
class _Run:
    study: Study[Any, Any]
    settings: Any
    folder: Path
    around: Surroundings
    progress: Progress | None

    @property
    def record(self) -> Record:
        return replace(RECORD, kind=self.study.kind)

    def result(self) -> Any:
        self._claim()
        try:
            self._compute()
        except NonvacuousError:
            if not finished_cells(self.study, self.folder):
                # Nothing is lost: the corrected call shall find the folder free.
                self._clear()
            raise
        around, finished = self.around, finished_cells(self.study, self.folder)
        for entry in finished:
            for name in self.study.kept:
                with contextlib.suppress(FileNotFoundError):
                    os.replace(entry.folder / name, self.folder / name)
        at = Context(self.folder, around.data_dir, around.device, self.progress, around.jobs)
        return self.study.result(self.settings, finished, at)

    def _claim(self) -> None:
        folder, around = self.folder, self.around
        known, begun = ((folder / name).is_file() for name in (SETTINGS, SWEEP))
        if known and around.resume and not begun and any(folder.glob("*/*")):
            raise FolderTaken(
                f"{folder} holds a {self.study.kind} of an earlier version of nonvacuous, which "
                "this one cannot go on with; overwrite it (force), or name another folder"
            )
        claim_folder(
            folder,
            self.study.claimed(self.settings),
            results=(RESULTS, PAGE, *self.study.kept),
            may_change=self.study.may_change,
            resume=around.resume,
            force=around.force,
            record=self.record,
        )
        if around.force and begun:
            self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self.folder / CELLS, ignore_errors=True)
        (self.folder / SWEEP).unlink(missing_ok=True)

    def _compute(self) -> None:
        study = self.study
        done = finished_cells(study, self.folder)
        plans = {plan.digest: plan for plan in (study.plan(entry.cell) for entry in done)}
        while True:
            asked = map(study.plan, study.cells(self.settings, done))
            new = {plan.digest: plan for plan in asked if plan.digest not in plans}
            if not new:
                return
            plans |= new
            self._sweep(tuple(plans.values()))
            done = finished_cells(study, self.folder)

    def _sweep(self, cells: Sequence[Cell]) -> None:
        store, around = SweepFolder(self.folder, claimed=True), self.around
        ended = 0

        def note(cell: Cell) -> None:
            nonlocal ended
            ended += 1
            record = ending(store.of(cell)) or {}
            if record.get("state") == "failed":
                raise _trouble(record["error"], store.of(cell))
            if self.progress is not None and record:
                own = self.study.cell_of(cell.settings, cell.seed)
                for line in self.study.cell_lines(own, self.study.read(record["result"])):
                    self.progress("cells", ended, len(cells), line)

        Driver(
            Sweep(self.study.name, self.study.spec, 0, tuple(cells)),
            store,
            around.engine() if around.engine else LocalEngine(jobs=1, hides_gpus=False),
            given={
                "data_dir": around.data_dir,
                "device": around.device,
                "ledger": None if around.ledger is None else around.ledger.absolute(),
            },
            cell_progress=self.progress,
            retry_failed=True,
            ended=note,
        ).run()


def _trouble(error: Mapping[str, Any], folder: Path) -> NonvacuousError:
    """What a cell raised: as the error that it was, if it was one of ours."""
    kind = getattr(errors, error["type"], None)
    if isinstance(kind, type) and issubclass(kind, BadInput):
        return kind(error["message"], instead=error.get("instead"))
    if isinstance(kind, type) and issubclass(kind, NonvacuousError):
        return kind(error["message"])
    return BadInput(f"{error['type']}: {error['message']} The whole story is in {folder / ERROR}.")
