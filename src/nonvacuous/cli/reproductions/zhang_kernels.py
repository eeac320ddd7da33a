"""``nonvacuous reproduce zhang-kernels``: exact interpolation beside the published errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from nonvacuous.cli.exits import UsageError
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.invocation import again
from nonvacuous.cli.reproductions.running import (
    chosen_settings,
    folder_of,
    naming,
    print_table,
    run_and_show,
)

if TYPE_CHECKING:
    from nonvacuous.experiments.zhang_kernels import KernelsResult
    from nonvacuous.training import Progress

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
    from nonvacuous.experiments import zhang_kernels_pages as pages
    from nonvacuous.experiments.zhang_kernels import KernelsSettings, run
    from nonvacuous.report.study import write_study

    settings = chosen_settings(KernelsSettings, quick=quick, config=config, seed=seed)
    if only:
        with naming("--only"):
            settings = settings.only(only)
    if examples is not None:
        if examples < 1:
            raise UsageError(f"--examples must be at least 1, got {examples}.")
        settings = replace(settings, examples=examples)
    folder = folder_of(NAME, out, quick=quick, resume=resume, force=force)

    def compute(progress: Progress) -> KernelsResult:
        return run(
            settings,
            folder,
            data_dir=data_dir,
            device=device,
            resume=resume,
            force=force,
            progress=progress,
        )

    def write_pages(result: KernelsResult, folder: Path) -> dict[str, Path]:
        written = write_study(pages.page(result, command=again()), folder / "report.html")
        return {"results.json": folder / "results.json", "report.html": written}

    def show(result: KernelsResult) -> None:
        print_table(pages.cases_table(result))
        print_table(pages.bad_table(result.bad), note=pages.verdict(result))

    return run_and_show(
        compute,
        write_pages,
        show,
        title=f"{', '.join(case.name for case in settings.cases)}; seed {settings.seed}",
        folder=folder,
        device=device,
        threads=threads,
        as_json=json,
        next_command="nonvacuous reproduce zhang-linear --quick",
        keeps="case",
    )
