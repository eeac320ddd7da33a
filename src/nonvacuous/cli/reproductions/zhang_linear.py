"""``nonvacuous reproduce zhang-linear``: which of infinitely many perfect fits does SGD find?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.invocation import again
from nonvacuous.cli.reproductions.running import (
    chosen_settings,
    folder_of,
    print_table,
    run_and_show,
)

if TYPE_CHECKING:
    from nonvacuous.experiments.zhang_linear import LinearResult
    from nonvacuous.training import Progress

NAME = "zhang-linear"


def zhang_linear(
    *,
    out: Path | None = None,
    quick: Annotated[bool, SWITCH] = False,
    config: Path | None = None,
    data_dir: Path | None = None,
    seed: OptionalWholeNumber = None,
    device: Literal["cpu"] = "cpu",
    threads: OptionalWholeNumber = None,
    resume: Annotated[bool, SWITCH] = False,
    force: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """Fit a linear model with more weights than examples by several methods, and compare.

    Takes seconds; without --quick it needs MNIST for the interpolants that fit and fail.

    Parameters
    ----------
    out
        The folder for results.json and report.html; runs/zhang-linear by default.
    quick
        A smaller problem, and the small embedded digits instead of MNIST.
    config
        TOML file with other settings; experiments/zhang-linear.toml holds the default ones.
    data_dir
        Folder that contains mnist/; else the variable NONVACUOUS_DATA.
    seed
        Everything random follows from it; 0 by default.
    device
        Always the processor: these are small problems in float64.
    threads
        Processor threads for torch; its own choice by default.
    resume
        Compute again with the same settings; nothing here takes long.
    force
        Overwrite the results in the folder.
    """
    from nonvacuous.experiments import zhang_linear_pictures as pages
    from nonvacuous.experiments.zhang_kernels_pages import bad_table
    from nonvacuous.experiments.zhang_linear import LinearSettings, run
    from nonvacuous.report.study import write_study

    settings = chosen_settings(LinearSettings, quick=quick, config=config, seed=seed)
    folder = folder_of(
        NAME, out, quick=quick, resume=resume, force=force, holds="results.json", way="--force"
    )

    def compute(progress: Progress) -> LinearResult:
        return run(settings, folder, data_dir=data_dir, progress=progress)

    def write_pages(result: LinearResult, folder: Path) -> dict[str, Path]:
        written = write_study(pages.page(result, command=again()), folder / "report.html")
        return {"results.json": folder / "results.json", "report.html": written}

    def show(result: LinearResult) -> None:
        print_table(pages.fits_table(result), note=pages.lead(result))
        print_table(bad_table(result.bad))

    return run_and_show(
        compute,
        write_pages,
        show,
        title=(f"{settings.examples} examples, {settings.weights} weights, seed {settings.seed}"),
        folder=folder,
        device=device,
        threads=threads,
        as_json=json,
        next_command="nonvacuous interpolate --data digits --labels true,random",
        keeps="part",
    )
