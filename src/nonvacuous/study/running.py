"""Running a study: its folder is claimed, its cells computed, its result and pages written."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nonvacuous import errors
from nonvacuous.claims import claim_folder, own_folder, write_record
from nonvacuous.errors import BadInput, FolderTaken, NonvacuousError
from nonvacuous.files import write_atomically
from nonvacuous.progress import Progress
from nonvacuous.report.study import write_study
from nonvacuous.study.cell import Cell
from nonvacuous.study.engine import Engine, Summary, run_sweep
from nonvacuous.study.folder import SweepFolder
from nonvacuous.study.local import LocalEngine
from nonvacuous.study.records import CELLS, ERROR, SWEEP, read_record
from nonvacuous.study.study import Finished, Study
from nonvacuous.study.sweep import Sweep

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


def run_study(
    study: Study[Any, Result],
    settings: Any,
    folder: str | Path,
    *,
    surroundings: Surroundings | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Result:
    """Compute what the folder does not hold yet, and return what all of it amounts to.

    progress   the phase "cells" counts them and says what each gave; other phases are those of the
               cells themselves, where they are computed in this process
    say        receives a line for each cell that fails
    """
    place, around = Path(folder), surroundings or Surroundings()
    study.cells(settings, ())  # what cannot be meant is refused before anything is touched
    parent_was_there = place.parent.is_dir()
    try:
        return _run_claimed(study, settings, place, around, progress, say)
    except NonvacuousError:
        if not parent_was_there:
            with contextlib.suppress(OSError):  # not empty: something was kept
                place.parent.rmdir()
        raise


def _run_claimed(
    study: Study[Any, Result],
    settings: Any,
    place: Path,
    around: Surroundings,
    progress: Progress | None,
    say: Callable[[str], None] | None,
) -> Result:
    with own_folder(place):
        _claim(study, settings, place, around)
        try:
            _compute(study, settings, place, around, progress, say)
        except NonvacuousError:
            if not finished_cells(study, place):
                # Nothing is lost: the corrected call shall find the folder free.
                _clear(place)
            raise
        return study.result(settings, finished_cells(study, place), jobs=around.jobs)


def finished_cells(study: Study[Any, Any], folder: str | Path) -> tuple[Finished, ...]:
    """The cells of a folder that have ended well, in the order in which they were first named."""
    place = Path(folder)
    record = read_record(place / SWEEP) or {"cells": []}
    found = []
    for entry in record["cells"]:
        run = place / CELLS / entry["name"]
        ended = read_record(run / "result.json")
        if ended is not None:
            known = {**entry["settings"], "seed": entry["seed"]}
            fields = study.cell.model_fields
            cell = study.cell.model_validate({k: v for k, v in known.items() if k in fields})
            found.append(Finished(cell, ended["result"], run))
    return tuple(found)


def write_pages(
    study: Study[Any, Result], result: Result, folder: str | Path, *, command: str
) -> dict[str, Path]:
    """Write results.json, report.html and what else the study has; their paths by name."""
    place = Path(folder)
    write_record(place / RESULTS, study.record(result))
    page = study.page(result, command)
    paths = {RESULTS: place / RESULTS}
    for name, text in study.files(result, page).items():
        paths[name] = place / name
        _write(paths[name], text)
    if page is not None:
        paths[PAGE] = write_study(page, place / PAGE)
    return paths


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda stream: stream.write(text.encode()))


def _claim(study: Study[Any, Any], settings: Any, folder: Path, around: Surroundings) -> None:
    known = (folder / SETTINGS).is_file()
    begun = (folder / SWEEP).is_file()
    if known and around.resume and not begun and any((folder / RESULTS).parent.glob("*/*")):
        raise FolderTaken(
            f"{folder} holds a reproduction of an earlier version of nonvacuous, which this one "
            "cannot go on with; overwrite it (force), or name another folder"
        )
    claim_folder(
        folder,
        study.claimed(settings),
        results=(RESULTS,),
        may_change=study.may_change,
        resume=around.resume,
        force=around.force,
    )
    if around.force and begun:
        _clear(folder)


def _clear(folder: Path) -> None:
    shutil.rmtree(folder / CELLS, ignore_errors=True)
    (folder / SWEEP).unlink(missing_ok=True)


def _compute(
    study: Study[Any, Any],
    settings: Any,
    folder: Path,
    around: Surroundings,
    progress: Progress | None,
    say: Callable[[str], None] | None,
) -> None:
    done = finished_cells(study, folder)
    plans = {plan.digest: plan for plan in map(study.plan, (entry.cell for entry in done))}
    while True:
        asked = {plan.digest: plan for plan in map(study.plan, study.cells(settings, done))}
        if asked.keys() <= plans.keys():
            return
        plans |= asked
        _run(study, tuple(plans.values()), folder, around, progress, say)
        done = finished_cells(study, folder)


def _run(
    study: Study[Any, Any],
    cells: Sequence[Cell],
    folder: Path,
    around: Surroundings,
    progress: Progress | None,
    say: Callable[[str], None] | None,
) -> None:
    store = SweepFolder(folder, claimed=True)
    ended = 0

    def told(cell: Cell) -> None:
        nonlocal ended
        ended += 1
        record = read_record(store.of(cell) / "result.json")
        if progress is not None and record is not None:
            own = study.cell.model_validate(
                {k: v for k, v in {**cell.settings, "seed": cell.seed}.items()
                 if k in study.cell.model_fields}
            )  # fmt: skip
            for line in study.told(own, record["result"]) or (cell.name,):
                progress("cells", ended, len(cells), line)

    given: dict[str, Any] = {"data_dir": around.data_dir, "device": around.device}
    summary = run_sweep(
        Sweep(study.name, study.spec, 0, tuple(cells)),
        store,
        engine=LocalEngine(jobs=1, hides_gpus=False) if around.engine is None else around.engine(),
        given=given,
        cell_progress=progress,
        retry_failed=True,
        ended=told,
        say=say,
    )
    if summary.failed:
        raise _trouble(summary)


def _trouble(summary: Summary) -> NonvacuousError:
    """The first failure as the error that it was, if it was one of ours."""
    failure = summary.failures[0]
    record: Mapping[str, Any] = json.loads((Path(failure.folder) / ERROR).read_text())["error"]
    kind = getattr(errors, record["type"], None)
    if isinstance(kind, type) and issubclass(kind, NonvacuousError):
        return kind(failure.message)
    return BadInput(
        f"{record['type']}: {failure.message} The whole story is in {failure.folder}/{ERROR}."
    )
