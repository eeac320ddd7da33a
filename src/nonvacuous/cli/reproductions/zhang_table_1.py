"""``nonvacuous reproduce zhang-table-1``: nineteen networks on true and on random labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from nonvacuous.cli.exits import UsageError
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.reproductions.running import (
    chosen_settings,
    folder_of,
    naming,
    print_tables,
    run_and_show,
)

if TYPE_CHECKING:
    from nonvacuous.experiments.zhang_table import TableResult
    from nonvacuous.training import Progress

NAME = "zhang-table-1"
_SOME = Parameter(consume_multiple=True, negative=(), show_default=False)


def zhang_table_1(
    *,
    out: Path | None = None,
    only: Annotated[tuple[str, ...], _SOME] = (),
    rows: Annotated[tuple[str, ...], _SOME] = (),
    quick: Annotated[bool, SWITCH] = False,
    epochs: OptionalWholeNumber = None,
    config: Path | None = None,
    data_dir: Path | None = None,
    seed: OptionalWholeNumber = None,
    device: Literal["cpu", "cuda"] = "cpu",
    threads: OptionalWholeNumber = None,
    resume: Annotated[bool, SWITCH] = False,
    force: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """Train the table's networks again, those of one kind at once, and compare with the paper.

    Needs CIFAR-10. All nineteen want a GPU; the perceptrons (--only mlp) take less than an hour on
    two processor cores.

    Parameters
    ----------
    out
        The folder for results.json, table.md, report.html and the networks' numbers;
        runs/zhang-table-1 by default.
    only
        Some kinds of networks: inception, inception-no-bn, alexnet, mlp-3x512, mlp-1x512, or mlp
        for both of the last.
    rows
        Some rows, counted from the table's top: 15 16 18-19 are the perceptrons without weight
        decay.
    quick
        The same steps with small perceptrons on the embedded digits, in seconds: nothing to
        compare, but everything can be seen to work.
    epochs
        Train every network for so many.
    config
        TOML file with other settings; experiments/zhang-table-1.toml holds the default ones.
    data_dir
        Folder that contains cifar10/; else the variable NONVACUOUS_DATA.
    seed
        Everything random follows from it; 0 by default.
    device
        Where to compute.
    threads
        Processor threads for torch; its own choice by default.
    resume
        Go on with a run that was stopped, or add other rows to it: networks that are finished are
        not trained again.
    force
        Overwrite the results in the folder.
    """
    from nonvacuous.experiments import zhang_table
    from nonvacuous.experiments.zhang_pages import time_table
    from nonvacuous.experiments.zhang_settings import ZhangSettings
    from nonvacuous.experiments.zhang_table_page import table, write_pages

    settings = chosen_settings(ZhangSettings, quick=quick, config=config, seed=seed)
    if epochs is not None:
        with naming("--epochs"):
            settings = settings.with_epochs(epochs)
    with naming("--only" if only else "--rows"):
        chosen = zhang_table.chosen_rows(settings, only=only, numbers=rows)
    if not chosen:
        raise UsageError("--only and --rows together leave no row: give one of them.")
    folder = folder_of(NAME, out, quick=quick, resume=resume, force=force)

    def compute(progress: Progress) -> TableResult:
        return zhang_table.run(
            settings,
            folder,
            rows=chosen,
            data_dir=data_dir,
            device=device,
            resume=resume,
            force=force,
            progress=progress,
        )

    return run_and_show(
        compute,
        write_pages,
        lambda result: print_tables(table(result), time_table(result.timings)),
        title=f"{len(chosen)} networks on {settings.data}, seed {settings.seed}",
        folder=folder,
        device=device,
        threads=threads,
        as_json=json,
        next_command=f"nonvacuous reproduce zhang-regularization --table {folder}"
        + (" --quick" if quick else ""),
    )
