"""The work behind ``nonvacuous interpolate``: everything that needs torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nonvacuous.cli.exits import CommandError, again, exit_code_of, stoppable
from nonvacuous.cli.folders import instead_of
from nonvacuous.cli.interpolate import RESULT, Flags
from nonvacuous.cli.narration import Narration
from nonvacuous.cli.networks import load_data
from nonvacuous.cli.output import narration_console, write_error
from nonvacuous.data import Dataset
from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically
from nonvacuous.interpolation.plan import Plan, make_plan
from nonvacuous.interpolation.solve import Interpolant
from nonvacuous.report.study import write_study
from nonvacuous.studies.interpolation import (
    MOST_FILTERS,
    InterpolationStudy,
    Task,
    distinct_examples,
    run_study,
)
from nonvacuous.studies.interpolation_page import page

SETTINGS = "settings.json"
#: Runs longer than this keep their factor in the run folder, so that they can be resumed.
_LONG = 120.0


@dataclass(frozen=True, kw_only=True)
class Request(Flags):
    """The flags of the command, checked one by one; ``memory`` in bytes."""

    task: Task
    memory: int | None  # type: ignore[assignment]
    folder: Path


def run(request: Request) -> InterpolationStudy | Plan | int:
    """Interpolate and write the run folder; the plan alone, or an exit code where stopped."""
    if request.device == "cuda" and not torch.cuda.is_available():
        raise CommandError(
            "--device cuda: torch sees no CUDA device here.",
            next_command=again(replacing={"--device": "cpu"}),
        )
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    _check_same(request)
    if request.resume and (request.folder / RESULT).is_file():
        return _finished(request)
    dataset, dropped = _data(request)
    try:
        plan = _plan(request, dataset)
        if request.estimate:
            return plan
        with stoppable(), Narration() as narration:
            narration.say(f"{plan}. Seed {request.task.seed}, folder {request.folder}")
            if dropped:
                narration.say(f"{dropped} training inputs repeat an earlier one and are left out")
            text = json.dumps(_asked(request), indent=2) + "\n"
            write_atomically(request.folder / SETTINGS, lambda s: s.write(text.encode()))
            keeps = plan.seconds > _LONG or plan.place == "disk"
            study, function = run_study(
                dataset,
                request.task,
                device=request.device,
                method=request.method,
                precision=request.precision,
                memory=request.memory,
                folder=request.folder if keeps else None,
                progress=narration,
            )
    except KeyboardInterrupt as stop:
        write_error(
            f"stopped. A long run's factor is kept in {request.folder} as far as it was done.",
            next_command=again("--resume", without=["--force"]),
        )
        return exit_code_of(stop)
    except CommandError:
        raise
    except BadInput as error:
        raise CommandError(f"{error}.".replace("..", "."), next_command=_remedy(error)) from error
    _write(request, study, function)
    return study


def _asked(request: Request) -> dict[str, Any]:
    """What decides the result, as it stands in settings.json."""
    asked = asdict(request.task) | {
        "data": request.data,
        "examples": request.examples,
        "drop_duplicates": request.drop_duplicates,
    }
    asked["labels"] = list(request.task.labels)
    return asked


def _check_same(request: Request) -> None:
    """Refuse to go on with a run that was asked for something else."""
    path = request.folder / SETTINGS
    if not (request.resume and path.is_file()):
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    other = sorted(name for name, value in _asked(request).items() if before.get(name) != value)
    if other:
        raise CommandError(
            f"the run in {request.folder} was made with other settings ({', '.join(other)}); it "
            "cannot be gone on with under these.",
            next_command=instead_of(request.folder),
        )


def _data(request: Request) -> tuple[Dataset, int]:
    dataset = load_data(request.data, request.data_dir)
    if request.examples is not None:
        if request.examples > len(dataset.train):
            raise CommandError(
                f"--examples: {dataset.train.name} has {len(dataset.train):,} training examples, "
                f"not {request.examples:,}.",
                next_command=again(replacing={"--examples": str(len(dataset.train))}),
            )
        dataset = Dataset(dataset.train.subset(np.arange(request.examples)), dataset.test)
    return distinct_examples(dataset) if request.drop_duplicates else (dataset, 0)


def _plan(request: Request, dataset: Dataset) -> Plan:
    """What it will take; features are judged by their number before they are made."""
    coordinates = dataset.train.inputs[0].numel()
    name, _, number = request.task.features.partition(":")
    if name == "patches":
        filters = int(number) if number.isdigit() else 1000
        coordinates = 8 * filters if filters <= MOST_FILTERS else len(dataset.train) // 3
    return make_plan(
        len(dataset.train),
        coordinates,
        dataset.train.classes * len(request.task.labels),
        device=torch.device(request.device),
        method=request.method,
        precision=request.precision,
        memory=request.memory,
        folder=request.folder,
    )


def _write(request: Request, study: InterpolationStudy, function: Interpolant) -> None:
    folder = request.folder
    coefficients = {
        f"labels {number}": function.coefficients[entry.labels]
        for number, entry in enumerate(study.labelings)
    }
    write_atomically(
        folder / "coefficients.npz",
        lambda stream: np.savez(stream, allow_pickle=False, **coefficients),
    )
    text = json.dumps(study.to_dict(), indent=2, allow_nan=False) + "\n"
    write_atomically(folder / RESULT, lambda stream: stream.write(text.encode()))
    written = write_study(page(study, command=again()), folder / "report.html")
    console = narration_console()
    for path in (folder / RESULT, folder / "coefficients.npz", written):
        console.print(f"Written: {path}", soft_wrap=True)


def _finished(request: Request) -> InterpolationStudy:
    path = request.folder / RESULT
    try:
        return InterpolationStudy.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CommandError(
            f"{path} is not the record of an interpolation ({error}); it was changed or damaged.",
            next_command=instead_of(request.folder),
        ) from error


def _remedy(error: BadInput) -> str | None:
    """The command that gets over this error, where there is one."""
    text = str(error)
    if "equal an earlier point" in text:
        return again("--drop-duplicates")
    if "too many here" in text:
        return again(replacing={"--method": "conjugate-gradient"})
    if "spans at most" in text:
        return again(replacing={"--kernel": "gaussian"})
    if "precision float64" in text:
        return again(replacing={"--precision": "float64"})
    if "singular" in text:
        return again(replacing={"--kernel": "laplace", "--gamma": "median"})
    return None
