"""The work behind ``nonvacuous randomize``: everything that needs torch."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from nonvacuous.cli.exits import (
    DONE,
    FAILED,
    CommandError,
    UsageError,
    again,
    exit_code_of,
    stoppable,
)
from nonvacuous.cli.folders import default_folder
from nonvacuous.cli.narration import Narration
from nonvacuous.cli.output import (
    narration_console,
    result_console,
    write_error,
    write_json,
    write_next,
)
from nonvacuous.cli.randomize import Flags
from nonvacuous.data import import_function
from nonvacuous.errors import BadInput
from nonvacuous.progress import Progress
from nonvacuous.randomization.results import Study
from nonvacuous.randomization.settings import DEFAULT_CONDITIONS, StudySettings
from nonvacuous.randomization.study import study
from nonvacuous.randomization.workshop import SETTINGS, planned_networks
from nonvacuous.report.terminal import printable
from nonvacuous.rules.outcomes import Shown, ledger_of
from nonvacuous.studies.networks import build_network, check_fits, is_built_in
from nonvacuous.studies.randomization_page import write_files, write_text
from nonvacuous.study.study import named_data

#: The flags that are settings of the study under the same names.
_OWN = (
    "seeds", "permutations", "sign_vectors", "certificates", "regularization", "confidence",
    "epochs", "learning_rate", "rate_decay", "momentum", "weight_decay", "batch_size",
    "standardize", "seed",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Request(Flags):
    """The flags of a study of its own, with data and a model."""

    data: str
    model: str


def run_study(flags: Flags) -> int:
    """Load, train, write the page, print."""
    request = Request(**vars(flags) | {"model": flags.model or "mlp:256,256"})
    try:
        settings = StudySettings(
            conditions=request.conditions or DEFAULT_CONDITIONS,
            **{name: getattr(request, name) for name in _OWN},
        )
    except BadInput as error:
        raise UsageError(str(error)) from error
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    device = device_of(request.device)
    folder = request.out or _default_folder(request)
    _check_folder(folder, resume=request.resume, force=request.force)
    dataset = named_data(request.data, request.data_dir)
    network = build_network(request.model, dataset.train, seed=settings.seed)
    check_fits(network, dataset.train, spec=request.model)
    model = request.model if is_built_in(request.model) else import_function(request.model)
    train = None if request.train is None else import_function(request.train)
    if settings.certificates:
        shown = Shown(ledger_of(request.ledger, folder), dataset.train, command="randomize")
        shown.record({"model": request.model, "train": request.train, **settings.to_dict()})
    try:
        with stoppable(), Narration() as narration:
            narration.say(
                f"{request.model} on {dataset.name} ({len(dataset.train):,} examples, "
                f"{dataset.train.classes} classes), trained by "
                f"{request.train or 'stochastic gradient descent'}"
            )
            narration.say(
                f"{planned_networks(settings)} networks, {len(settings.conditions)} conditions, "
                f"seed {settings.seed}, device {device.type}, folder {folder}"
            )
            found = study(
                model,
                dataset,
                train=train,
                settings=settings,
                architecture=request.model,
                trained_by=request.train,
                device=device,
                folder=folder,
                resume=request.resume,
                force=request.force,
                progress=_progress(narration),
            )
            paths = write_files(found, folder, command=again(without=["--resume", "--force"]))
    except KeyboardInterrupt as stop:
        write_error(
            f"stopped. {folder} keeps every part of the study that is finished.",
            next_command=again("--resume", without=["--force"]),
        )
        return exit_code_of(stop)
    return _tell(found, folder, paths, request)


def device_of(name: str) -> torch.device:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise CommandError(
            "--device cuda: torch sees no CUDA device here.",
            next_command=again(replacing={"--device": "cpu"}),
        )
    return torch.device("cuda")


def _default_folder(request: Request) -> Path:
    usual = default_folder(request.data, request.model, request.seed)
    return usual.with_name(f"randomize-{usual.name}")


def _check_folder(folder: Path, *, resume: bool, force: bool) -> None:
    if (folder / SETTINGS).is_file():
        if resume or force:
            return
        raise UsageError(
            f"{folder} holds a study already. Add --resume to go on with it (or to see its result "
            "again), --force to overwrite it, or --out to name another folder.",
            next_command=again("--resume"),
        )
    if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise UsageError(
            f"{folder} is not empty and holds no study: files there could be overwritten. Name "
            "another folder with --out.",
            next_command=again(replacing={"--out": str(folder / "study")}),
        )


def _progress(narration: Narration) -> Progress:
    """One bar on a terminal; elsewhere a line whenever another part begins."""
    lines = not narration_console().is_terminal
    told: set[str] = set()

    def progress(phase: str, done: int, total: int, message: str) -> None:
        narration(phase, done, total, message)
        part, _, rest = message.partition(": ")
        if lines and part not in told:
            told.add(part)
            narration.say(f"{part}: {rest}")

    return progress


def _tell(found: Study, folder: Path, paths: dict[str, Path], request: Request) -> int:
    if request.json:
        write_json(found.to_dict())
    else:
        write_text(found, result_console())
    sys.stdout.flush()
    console = narration_console()
    console.print(f"Folder:  {printable(str(folder))}", soft_wrap=True)
    console.print(f"Page:    {printable(str(paths['page']))}", soft_wrap=True)
    if found.problems:
        names = "; ".join(finding.name for finding in found.problems)
        write_error(
            f"the study found a problem: {names}.",
            next_command=shlex.join(["python", "-m", "webbrowser", str(paths["page"])]),
        )
        return FAILED
    words = ["nonvacuous", "certify", "--data", request.data, "--model", request.model]
    if request.data_dir is not None:
        words += ["--data-dir", str(request.data_dir)]
    write_next(shlex.join(words))
    return DONE
