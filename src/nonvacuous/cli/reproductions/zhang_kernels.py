"""``nonvacuous reproduce zhang-kernels``: exact interpolation beside the published errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from nonvacuous.cli.exits import DONE, CommandError, UsageError
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.invocation import again
from nonvacuous.cli.output import narration_console, write_error, write_json, write_next
from nonvacuous.errors import BadInput

if TYPE_CHECKING:
    from nonvacuous.experiments.zhang_kernels import KernelsSettings

NAME = "zhang-kernels"


def zhang_kernels(
    *,
    out: Path | None = None,
    only: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)
    ] = (),
    examples: OptionalWholeNumber = None,
    quick: Annotated[bool, SWITCH] = False,
    config: Path | None = None,
    data_dir: Path | None = None,
    seed: OptionalWholeNumber = None,
    device: Literal["cpu", "cuda"] = "cpu",
    threads: OptionalWholeNumber = None,
    resume: Annotated[bool, SWITCH] = False,
    force: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """Interpolate MNIST and CIFAR-10 exactly and put the published errors beside ours.

    On a large GPU about three minutes. On a processor each case takes an hour or more, and 32,000
    random patches many: take --only, or --examples.

    Parameters
    ----------
    out
        The folder for results.json and report.html; runs/zhang-kernels by default.
    only
        Some of the cases: mnist-raw mnist-gabor cifar10-raw cifar10-patches.
    examples
        Only the first so many training examples of every data set.
    quick
        The same steps on the small embedded digits, in seconds.
    config
        TOML file with other settings; experiments/zhang-kernels.toml holds the default ones.
    data_dir
        Folder that contains mnist/ and cifar10/; else the variable NONVACUOUS_DATA.
    seed
        Everything random follows from it; 0 by default.
    device
        Where to compute.
    threads
        Processor threads for torch; its own choice by default.
    resume
        Go on with a run that was stopped: finished cases are not computed again.
    force
        Overwrite the results in the folder.
    """
    if resume and force:
        raise UsageError("--resume goes on with a run and --force overwrites it: give one of them.")
    if quick and config is not None:
        raise UsageError("--quick has settings of its own: leave out --config or --quick.")
    settings = _settings(quick=quick, config=config, only=only, examples=examples, seed=seed)
    folder = out or Path("runs") / (f"{NAME}-quick" if quick else NAME)
    if (folder / "settings.json").is_file() and not (resume or force):
        raise UsageError(
            f"{folder} holds a reproduction already. Add --resume to go on with it, --force to "
            "overwrite it, or --out to name another folder.",
            next_command=again("--resume"),
        )
    return _run(
        settings,
        folder,
        as_json=json,
        data_dir=data_dir,
        device=device,
        threads=threads,
        resume=resume,
        force=force,
    )


def _settings(
    *,
    quick: bool,
    config: Path | None,
    only: tuple[str, ...],
    examples: int | None,
    seed: int | None,
) -> KernelsSettings:
    from nonvacuous.experiments.zhang_kernels import KernelsSettings

    settings = KernelsSettings.quick() if quick else KernelsSettings()
    try:
        if config is not None:
            settings = KernelsSettings.from_toml(config)
        if only:
            settings = settings.only(only)
    except BadInput as error:
        raise UsageError(f"{'--only' if only else '--config'}: {error}.") from error
    if examples is not None:
        if examples < 1:
            raise UsageError(f"--examples must be at least 1, got {examples}.")
        settings = replace(settings, examples=examples)
    return settings if seed is None else replace(settings, seed=seed)


def _run(
    settings: KernelsSettings,
    folder: Path,
    *,
    as_json: bool,
    device: str,
    threads: int | None,
    **options: Any,
) -> int:
    import torch

    from nonvacuous.cli.narration import Narration
    from nonvacuous.cli.reproductions.study_text import write_table
    from nonvacuous.cli.stopping import exit_code_of, stoppable
    from nonvacuous.experiments.zhang_kernels import run
    from nonvacuous.experiments.zhang_kernels_pages import bad_table, cases_table, page, verdict
    from nonvacuous.report.study import write_study

    if device == "cuda" and not torch.cuda.is_available():
        raise CommandError(
            "--device cuda: torch sees no CUDA device here.",
            next_command=again(replacing={"--device": "cpu"}),
        )
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        with stoppable(), Narration() as narration:
            names = ", ".join(case.name for case in settings.cases)
            narration.say(f"{names}; seed {settings.seed}, device {device}, folder {folder}")

            def progress(phase: str, done: int, total: int, message: str) -> None:
                narration(phase, done, total, message)
                if phase == "cases":
                    narration.say(message)

            result = run(settings, folder, device=device, progress=progress, **options)
    except KeyboardInterrupt as stop:
        write_error(
            f"stopped. {folder} keeps every case that is finished.",
            next_command=again("--resume", without=["--force"]),
        )
        return exit_code_of(stop)
    written = write_study(page(result, command=again()), folder / "report.html")
    if as_json:
        write_json(result.to_dict())
    else:
        write_table(cases_table(result))
        write_table(bad_table(result.bad), note=verdict(result))
    console = narration_console()
    for path in (folder / "results.json", written):
        console.print(f"Written: {path}", soft_wrap=True)
    write_next("nonvacuous reproduce zhang-linear --quick")
    return DONE
