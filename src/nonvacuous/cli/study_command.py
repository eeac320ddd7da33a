"""The command of any study: its flags are its settings, and running and showing it is one thing."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import Parameter
from joblib import cpu_count

from nonvacuous.cli.exits import DONE, CommandError, UsageError, again, exit_code_of, stoppable
from nonvacuous.cli.flags import SWITCH, Json, Ledger, OptionalWholeNumber, whole_number
from nonvacuous.cli.narration import Narration
from nonvacuous.cli.output import (
    narration_console,
    result_console,
    write_error,
    write_json,
    write_next,
)
from nonvacuous.cli.sweep import Where
from nonvacuous.errors import BadInput
from nonvacuous.papers import REPRODUCTIONS, study_of
from nonvacuous.report.study import Table
from nonvacuous.study.running import SETTINGS, Surroundings, run_study, write_pages
from nonvacuous.study.settings import StudySettings
from nonvacuous.study.study import Study

if TYPE_CHECKING:
    from nonvacuous.progress import Progress


def __getattr__(name: str) -> Callable[..., int]:
    """The command of a reproduction by its name, with underscores."""
    known = name.replace("_", "-")
    if known not in REPRODUCTIONS:
        raise AttributeError(name)
    return command_of(study_of(known))


_PLAIN = (bool, int, float, str, Path)


def command_of(study: Study[Any, Any]) -> Callable[..., int]:
    """A function whose parameters are the study's settings and what every study takes besides."""

    known = _flags(study)

    def command(**given: Any) -> int:
        return _run(study, {name: default for name, (_, default) in known.items()} | given)

    kind = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, kind, annotation=what, default=default)
            for name, (what, default) in known.items()
        ]
    )
    command.__doc__ = study.__doc__
    return command


def _flags(study: Study[Any, Any]) -> dict[str, tuple[Any, Any]]:
    def flag(kind: Any, text: str, *more: Any) -> Any:
        return Annotated[(kind, *more, Parameter(help=text))]

    found: dict[str, tuple[Any, Any]] = {
        "out": (
            flag(Path | None, f"The folder for what is written; runs/{study.name} by default."),
            None,
        )
    }
    for name, text in study.settings.presets.items():
        found[name] = (flag(bool, text, SWITCH), False)
    found["config"] = (
        flag(
            Path | None,
            "TOML file with other settings. The files in experiments/ hold the default ones.",
        ),
        None,
    )
    for name, field in study.settings.model_fields.items():
        kind = _kind(field.annotation)
        if kind is not None:
            text = field.description or ""
            found[name] = (Annotated[kind, _parameter(kind, text, field.default)], None)
    devices: Any = Literal[study.devices]  # type: ignore[name-defined]
    shared = {
        "data_dir": (Path | None, "Folder of the data sets; else the variable NONVACUOUS_DATA."),
        "device": (devices, "Where to compute."),
        "threads": (
            OptionalWholeNumber,
            "Processor threads for torch: its own choice by default, 1 for cells in processes of "
            "their own.",
        ),
        "engine": (
            Literal["local", "ray"],
            "Where cells are computed. local: on this machine. ray: on a Ray cluster.",
        ),
        "address": (str | None, "With --engine ray: the cluster to use, such as 10.0.0.1:6379."),
        "jobs": (OptionalWholeNumber, "Cells at the same time; one process for each."),
    }
    defaults = {"device": study.devices[0], "engine": "local"}
    for name, (kind, text) in shared.items():
        found[name] = (flag(kind, text), defaults.get(name))
    again_ = f"Go on with a run that was stopped: a {study.keeps} that is finished is kept."
    found["resume"] = (flag(bool, again_, SWITCH), False)
    found["force"] = (flag(bool, "Overwrite the results in the folder.", SWITCH), False)
    found["ledger"] = (Ledger, None)
    found["json"] = (Json, False)
    return found


def _kind(annotation: Any) -> Any:
    """The type of the flag, or None where a setting can only stand in a file."""
    if get_origin(annotation) in (Union, UnionType):
        kinds = [_kind(part) for part in get_args(annotation) if part is not type(None)]
        return kinds[0] if len(kinds) == 1 else None
    if annotation in _PLAIN or get_origin(annotation) is Literal:
        return annotation | None
    parts = get_args(annotation)
    if get_origin(annotation) is tuple and parts[-1] is Ellipsis and parts[0] in _PLAIN:
        return annotation | None
    return None


def _parameter(kind: Any, text: str, default: Any) -> Parameter:
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    options: dict[str, Any] = {"help": text, "negative": None if kind == bool | None else ()}
    if get_origin(get_args(kind)[0]) is tuple:
        options["consume_multiple"] = True
    if kind == int | None:
        options["converter"] = whole_number
    has_default = shown is not None and shown is not False and shown != ""
    return Parameter(show_default=(lambda _value: str(shown)) if has_default else False, **options)


def _settings(kind: type[StudySettings], flags: dict[str, Any]) -> tuple[StudySettings, str]:
    """The settings that the flags ask for, and the name of the preset among them."""
    chosen = [name for name in kind.presets if flags[name]]
    if flags["config"] is not None:
        chosen.append("config")
    if len(chosen) > 1:
        raise UsageError(
            f"--{chosen[0]} has settings of its own: leave out --{chosen[1]} or --{chosen[0]}."
        )
    with _named("--config: " if flags["config"] is not None else ""):
        if flags["config"] is not None:
            settings = kind.from_toml(flags["config"])
        else:
            settings = getattr(kind, chosen[0])() if chosen else kind()
    given = {name: flags.get(name) for name in kind.model_fields}
    with _named("--"):
        settings = settings.changed(**{n: value for n, value in given.items() if value is not None})
    return settings, chosen[0] if chosen and chosen[0] != "config" else ""


@contextmanager
def _named(prefix: str) -> Iterator[None]:
    """What is wrong with a setting is wrong with its flag."""
    try:
        yield
    except BadInput as error:
        raise UsageError(f"{prefix}{str(error).removesuffix('.')}.") from error


def _run(study: Study[Any, Any], flags: dict[str, Any]) -> int:
    settings, preset = _settings(study.settings, flags)
    with _named("--"):
        title = study.title(settings)
        study.cells(settings, ())
    folder = _folder(study, preset, flags)
    around = _surroundings(study, flags)
    try:
        with stoppable(), Narration() as narration:
            narration.say(f"{title}, device {around.device}, folder {folder}")
            result = run_study(
                study,
                settings,
                folder,
                surroundings=around,
                progress=_progress(narration),
            )
    except KeyboardInterrupt as stop:
        write_error(
            f"stopped. {folder} keeps every {study.keeps} that is finished.",
            next_command=again("--resume", without=["--force"]),
        )
        return exit_code_of(stop)
    command = again(without=["--force", "--resume", "--json"])
    paths = write_pages(study, result, folder, command=command)
    if flags["json"]:
        write_json(dict(study.record(result)))
    else:
        for table in study.tables(result):
            print_table(table)
    sys.stdout.flush()
    for path in paths.values():
        narration_console().print(f"Written: {path}", soft_wrap=True)
    write_next(study.next_command(result, folder))
    return DONE


def _folder(study: Study[Any, Any], preset: str, flags: Mapping[str, Any]) -> Path:
    if flags["resume"] and flags["force"]:
        raise UsageError("--resume goes on with a run and --force overwrites it: give one of them.")
    folder: Path = flags["out"] or Path("runs") / "-".join(filter(None, (study.name, preset)))
    if (folder / SETTINGS).is_file() and not (flags["resume"] or flags["force"]):
        raise UsageError(
            f"{folder} holds a reproduction already. Add --resume to go on with it, --force to "
            "overwrite it, or --out to name another folder.",
            next_command=again("--resume"),
        )
    return folder


def _surroundings(study: Study[Any, Any], flags: Mapping[str, Any]) -> Surroundings:
    import torch

    device, threads, jobs = flags["device"], flags["threads"], flags["jobs"]
    where = Where(
        engine=flags["engine"],
        address=flags["address"],
        jobs=jobs,
        threads=1 if threads is None else threads,
    )
    where.check()
    if device == "cuda" and flags["engine"] == "local" and not torch.cuda.is_available():
        raise CommandError(
            "--device cuda: torch sees no CUDA device here.",
            next_command=again(replacing={"--device": "cpu"}),
        )
    if jobs is None and flags["engine"] == "local":
        jobs = study.jobs or (1 if device == "cuda" else cpu_count())
    engine = None
    if flags["engine"] == "ray" or jobs > 1:
        # Processes share each GPU of this machine; a cell on a cluster has one to itself.
        share = 0.0 if device == "cpu" else 1.0 if flags["engine"] == "ray" else 1.0 / jobs
        engine = replace(where, jobs=jobs, gpus_per_task=share).made
    elif threads is not None:
        torch.set_num_threads(threads)
    return Surroundings(
        flags["data_dir"],
        device,
        engine,
        jobs or 1,
        flags["resume"],
        flags["force"],
        flags["ledger"],
    )


def print_table(shown: Table) -> None:
    """A table on stdout, its caption below."""
    from rich.table import Table as Grid

    console = result_console()
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column, heading in enumerate(shown.headings):
        if not shown.is_numeric(column):
            grid.add_column(heading)
            continue
        # A heading may be broken into lines, a number may not.
        longest = max((len(row[column]) for row in shown.rows), default=0)
        grid.add_column(heading, justify="right", min_width=longest)
    for row in shown.rows:
        grid.add_row(*row)
    console.print(grid)
    if shown.caption:
        console.print(shown.caption, soft_wrap=True)


def _progress(narration: Narration) -> Progress:
    """Bars as usual, and a line that stays for each cell that is finished."""

    def progress(phase: str, done: int, total: int, message: str) -> None:
        narration(phase, done, total, message)
        if phase == "cells":
            narration.say(message)

    return progress
