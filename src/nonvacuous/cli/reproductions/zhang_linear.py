"""``nonvacuous reproduce zhang-linear``: which of infinitely many perfect fits does SGD find?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from nonvacuous.cli.exits import DONE, UsageError
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.invocation import again
from nonvacuous.cli.output import narration_console, write_json, write_next
from nonvacuous.errors import BadInput

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
    if resume and force:
        raise UsageError("--resume goes on with a run and --force overwrites it: give one of them.")
    if quick and config is not None:
        raise UsageError("--quick has settings of its own: leave out --config or --quick.")
    folder = out or Path("runs") / (f"{NAME}-quick" if quick else NAME)
    if (folder / "results.json").is_file() and not (resume or force):
        raise UsageError(
            f"{folder} holds a reproduction already. Add --force to overwrite it, or --out to name "
            "another folder.",
            next_command=again("--force"),
        )
    import torch

    from nonvacuous.cli.narration import Narration
    from nonvacuous.cli.reproductions.study_text import write_table
    from nonvacuous.cli.stopping import stoppable
    from nonvacuous.experiments.zhang_kernels_pages import bad_table
    from nonvacuous.experiments.zhang_linear import LinearSettings, run
    from nonvacuous.experiments.zhang_linear_pictures import fits_table, lead, page
    from nonvacuous.report.study import write_study

    settings = LinearSettings.quick() if quick else LinearSettings()
    if config is not None:
        try:
            settings = LinearSettings.from_toml(config)
        except BadInput as error:
            raise UsageError(f"--config: {error}.") from error
    if seed is not None:
        settings = replace(settings, seed=seed)
    if threads is not None:
        torch.set_num_threads(threads)
    with stoppable(), Narration() as narration:
        narration.say(
            f"{settings.examples} examples, {settings.weights} weights, seed {settings.seed}, "
            f"device {device}, folder {folder}"
        )
        result = run(settings, folder, data_dir=data_dir, progress=narration)
    written = write_study(page(result, command=again()), folder / "report.html")
    if json:
        write_json(result.to_dict())
    else:
        write_table(fits_table(result), note=lead(result))
        write_table(bad_table(result.bad))
    console = narration_console()
    for path in (folder / "results.json", written):
        console.print(f"Written: {path}", soft_wrap=True)
    write_next("nonvacuous interpolate --data digits --labels true,random")
    return DONE
