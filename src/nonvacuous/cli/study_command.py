"""The command of any study: its flags are its settings, and running and showing it is one thing."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import Group, Parameter
from joblib import cpu_count

from nonvacuous.cli import exits, output, sweep
from nonvacuous.cli import flags as shared
from nonvacuous.cli.narration import working
from nonvacuous.errors import FolderBusy, FolderTaken
from nonvacuous.papers import REPRODUCTIONS
from nonvacuous.rules.attempts import FILE_NAME
from nonvacuous.studies import STUDIES
from nonvacuous.study.running import PAGE, SETTINGS, Surroundings, run_study, write_pages
from nonvacuous.study.settings import StudySettings
from nonvacuous.study.study import Context, Study


def __getattr__(name: str) -> Callable[..., int]:
    """The command of a study or a reproduction by its name, with underscores."""
    known = name.replace("_", "-")
    if known in STUDIES:
        return command_of(import_module(f"nonvacuous.studies.{STUDIES[known][0]}").STUDY)
    if known in REPRODUCTIONS:
        return command_of(import_module(f"nonvacuous.papers.{REPRODUCTIONS[known].module}").STUDY)
    raise AttributeError(name)


#: The groups of one command's flags, in the order in which they are first named.
Groups = Callable[[str], Group]
_PLAIN = (bool, int, float, str, Path)


def command_of(study: Study[Any, Any]) -> Callable[..., int]:
    """A function whose parameters are the study's settings and what every study takes besides."""
    flags = _flags(study)

    def command(**given: Any) -> int:
        defaults = {flag.name: flag.default for flag in flags}
        return _run(study, {"device": study.devices[0], **defaults, **given})

    command.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    command.__doc__ = study.__doc__
    return command


def _flags(study: Study[Any, Any]) -> list[inspect.Parameter]:
    """The settings first, as their model groups them, then what every study takes."""
    flags: list[inspect.Parameter] = []
    groups: Groups = cache(Group.create_ordered)

    def flag(name: str, kind: Any, default: Any = None) -> None:
        only = inspect.Parameter.KEYWORD_ONLY
        flags.append(inspect.Parameter(name, only, annotation=kind, default=default))

    fields = study.settings.model_fields
    for name, field in sorted(fields.items(), key=lambda item: item[0] == "seed"):
        if _is_flag(field.annotation):
            default = None if field.is_required() else field.default
            shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
            words: dict[str, Any] = {"help": " ".join((field.description or "").split())}
            if isinstance(field.json_schema_extra, dict):
                words["group"] = groups(str(field.json_schema_extra["group"]))
            flag(name, shared.left_open(field.annotation, shown, **words))
    group = groups("The run")

    def add(name: str, kind: Any, text: str, default: Any = None) -> None:
        switch = [shared.SWITCH] if kind is bool else []
        flag(name, Annotated[(kind, *switch, Parameter(help=text, group=group))], default)

    usual = study.usual_folder or f"runs/{study.name}"
    add("out", Path | None, f"The folder for what is written; {usual} by default.")
    for name, text in study.settings.presets.items():
        add(name, bool, text, False)
    known = " The files in experiments/ hold the default ones." if study.settings.presets else ""
    add("config", Path | None, f"TOML file with settings.{known}")
    add("data_dir", Path | None, "Folder of the data sets; else the variable NONVACUOUS_DATA.")
    if len(study.devices) > 1:
        devices: Any = Literal[study.devices]
        add("device", devices, "Where to compute.", study.devices[0])
    add(
        "threads",
        shared.OptionalWholeNumber,
        "Processor threads for torch: its own choice by default, 1 for cells in processes of "
        "their own.",
    )
    engines: Any = Literal["local", "ray"]
    on = "Where cells are computed. local: on this machine. ray: on a Ray cluster."
    add("engine", engines, on, "local")
    add("address", str | None, "With --engine ray: the cluster to use, such as 10.0.0.1:6379.")
    add("jobs", shared.OptionalWholeNumber, "Cells at the same time; one process for each.")
    kept = f"Go on with a run that was stopped: a {study.keeps} that is finished is kept."
    add("resume", bool, kept, False)
    add("force", bool, "Overwrite the results in the folder.", False)
    flag("ledger", Annotated[shared.Ledger, Parameter(group=group)])
    flag("json", Annotated[shared.Json, Parameter(group=group)], False)
    return flags


def _is_flag(annotation: Any) -> bool:
    """Whether a setting can be a flag; others can only stand in a file."""
    kind = shared.typed(annotation)
    parts = get_args(kind) if get_origin(kind) is tuple else (kind, Ellipsis)
    listed = get_origin(parts[0]) is tuple and _is_flag(parts[0])
    plain = listed or parts[0] in _PLAIN or get_origin(parts[0]) is Literal
    return plain and annotation in (kind, kind | None) and parts[1:] == (Ellipsis,)


def _settings(kind: type[StudySettings], flags: dict[str, Any]) -> tuple[StudySettings, str]:
    """The settings that the flags ask for, and the name of the preset among them."""
    chosen = [name for name in (*kind.presets, "config") if flags[name]]
    if len(chosen) > 1:
        raise exits.UsageError(
            f"--{chosen[0]} has settings of its own: leave out --{chosen[1]} or --{chosen[0]}."
        )
    given = {name: flags[name] for name in kind.model_fields if flags.get(name) is not None}
    needed = {name: given[name] for name in given if kind.model_fields[name].is_required()}
    preset = "" if flags["config"] else "".join(chosen)
    with exits.as_usage("--config: " if flags["config"] else "--"):
        if flags["config"]:
            settings = kind.from_toml(flags["config"], **needed)
        else:
            settings = getattr(kind, preset)() if preset else kind.of(needed)
    with exits.as_usage("--"):
        return settings.changed(**given), preset


def _run(study: Study[Any, Any], flags: dict[str, Any]) -> int:
    settings, preset = _settings(study.settings, flags)
    with exits.as_usage("--"):
        title = study.title(settings)
        study.cells(settings, ())
    folder: Path | None = flags["out"] or study.folder(settings, preset)
    here = Context(folder or Path(), flags["data_dir"], flags["device"])
    answer = study.answer(settings, here)
    if answer is not None:
        if flags["json"]:
            output.write_json(dict(answer.record))
        else:
            answer.show(output.result_console())
        output.write_next(exits.again(answer.next, without=shared.DECIDED_ANEW))
        return exits.DONE
    _check_folder(study, folder, flags)
    if folder is None and flags["ledger"] is None:
        flags["ledger"] = Path("runs") / FILE_NAME  # not in a folder that goes
    around = _surroundings(study, flags)

    def stopped() -> tuple[str, str]:
        if folder is None:
            return "stopped.", exits.again()
        kept = f"{folder} keeps every {study.keeps} that is finished."
        return f"stopped. {kept}", exits.again({"--resume": None, "--force": ""})

    try:
        with ExitStack() as stack:
            narration = stack.enter_context(working(stopped))
            where = f", folder {folder}" if folder else ""
            narration.say(f"{title}, device {around.device}{where}")
            used = folder or Path(stack.enter_context(TemporaryDirectory()))
            result = run_study(study, settings, used, surroundings=around, progress=narration)
            paths = {}
            if folder is not None:
                command = exits.again(without=[*shared.DECIDED_ANEW, "--json"])
                paths = write_pages(study, result, folder, command=command)
    except FolderTaken as error:
        if flags["resume"] and folder is not None and not isinstance(error, FolderBusy):
            error.instead = shared.instead_of(folder)
        raise
    if flags["json"]:
        output.write_json(dict(study.record(result)))
    else:
        study.show(result, output.result_console())
    sys.stdout.flush()
    output.say(*(f"Written: {path}" for path in paths.values()))
    if problem := study.problem(result):
        output.write_error(problem, next_command=exits.shown_page(paths.get(PAGE, folder)))
        return exits.FAILED
    following = study.next_command(result, folder)
    own = {} if folder is None else shared.instead_of(folder)  # its folder holds this study
    changes = following if isinstance(following, str) else {**own, **following}
    output.write_next(exits.again(changes, without=shared.DECIDED_ANEW))
    return exits.DONE


def _check_folder(study: Study[Any, Any], folder: Path | None, flags: Mapping[str, Any]) -> None:
    resume, force = flags["resume"], flags["force"]
    shared.check_one_of(study.kind, resume=resume, force=force)
    if folder is None:
        if resume:
            raise exits.UsageError(
                f"--resume needs --out: the folder of the {study.kind} that was stopped."
            )
        return
    begun = (folder / SETTINGS).is_file()
    if begun or study.kind == "study":
        shared.check_writable(folder, study.kind, begun=begun, resume=resume, force=force)


def _surroundings(study: Study[Any, Any], flags: Mapping[str, Any]) -> Surroundings:
    import torch

    device, threads, jobs = flags["device"], flags["threads"], flags["jobs"]
    asked = {name: flags[name] for name in ("engine", "address", "jobs")}
    where = sweep.Where(**asked, threads=1 if threads is None else threads)
    where.check()
    if device == "auto" or flags["engine"] == "local":
        device = shared.device_of(device)
    if jobs is None and flags["engine"] == "local":
        jobs = study.jobs or (1 if device == "cuda" else cpu_count())
    engine = None
    if flags["engine"] == "ray" or jobs > 1:
        # Processes share each GPU of this machine; a cell on a cluster has one to itself.
        share = 0.0 if device == "cpu" else 1.0 if flags["engine"] == "ray" else 1.0 / jobs
        engine = replace(where, jobs=jobs, gpus_per_task=share).made
    elif threads is not None:
        torch.set_num_threads(threads)
    same = {name: flags[name] for name in ("data_dir", "resume", "force", "ledger")}
    return Surroundings(device=device, engine=engine, jobs=jobs or 1, **same)
