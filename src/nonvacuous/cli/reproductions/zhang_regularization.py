"""``nonvacuous reproduce zhang-regularization``: regularizers switched on and off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.reproductions.running import (
    chosen_settings,
    folder_of,
    naming,
    print_tables,
    reused,
    run_and_show,
)

if TYPE_CHECKING:
    from nonvacuous.experiments.zhang_regularization import RegularizationResult
    from nonvacuous.training import Progress

NAME = "zhang-regularization"
_SOME = Parameter(consume_multiple=True, negative=(), show_default=False)


def zhang_regularization(
    *,
    out: Path | None = None,
    only: Annotated[tuple[str, ...], _SOME] = (),
    quick: Annotated[bool, SWITCH] = False,
    epochs: OptionalWholeNumber = None,
    table: Path | None = None,
    config: Path | None = None,
    data_dir: Path | None = None,
    seed: OptionalWholeNumber = None,
    device: Literal["cpu", "cuda"] = "cpu",
    threads: OptionalWholeNumber = None,
    resume: Annotated[bool, SWITCH] = False,
    force: Annotated[bool, SWITCH] = False,
    json: Json = False,
) -> int:
    """Switch weight decay, augmentation and batch normalization on and off, on both labelings.

    Needs CIFAR-10 and a GPU; the perceptrons (--only mlp) take about an hour on two processor
    cores, --quick takes seconds.

    Parameters
    ----------
    out
        The folder for results.json, table.md and report.html; runs/zhang-regularization by default.
    only
        Some kinds of networks: inception, inception-no-bn, alexnet, mlp-3x512, mlp-1x512, or mlp
        for both of the last.
    quick
        The same steps with small perceptrons on the embedded digits, in seconds.
    epochs
        Train every network for so many.
    table
        The folder of zhang-table-1: networks that are there are not trained again.
    config
        TOML file with other settings; experiments/zhang-regularization.toml holds the default ones.
    data_dir
        Folder that contains cifar10/; else the variable NONVACUOUS_DATA.
    seed
        Everything random follows from it; 0 by default.
    device
        Where to compute.
    threads
        Processor threads for torch; its own choice by default.
    resume
        Go on with a run that was stopped, or add other networks to it.
    force
        Overwrite the results in the folder.
    """
    from nonvacuous.experiments import zhang_regularization as study
    from nonvacuous.experiments import zhang_regularization_page as pages
    from nonvacuous.experiments.zhang_settings import ZhangSettings
    from nonvacuous.experiments.zhang_table import chosen_rows

    settings = chosen_settings(ZhangSettings, quick=quick, config=config, seed=seed)
    if epochs is not None:
        with naming("--epochs"):
            settings = settings.with_epochs(epochs)
    # The table is the place to compare times.
    settings = replace(settings, solo_epochs=0)
    with naming("--only"):
        rows = chosen_rows(settings, only=only)
    networks = tuple(dict.fromkeys(row.cell.network for row in rows))
    folder = folder_of(NAME, out, quick=quick, resume=resume, force=force)
    reuse = reused(table)

    def compute(progress: Progress) -> RegularizationResult:
        return study.run(
            settings,
            folder,
            networks=networks,
            reuse=reuse,
            data_dir=data_dir,
            device=device,
            resume=resume,
            force=force,
            progress=progress,
        )

    cells = [cell for cell in study.matrix_cells(settings) if cell.network in networks]
    return run_and_show(
        compute,
        pages.write_pages,
        lambda result: print_tables(pages.table(result), pages.early_stopping_table(result)),
        title=f"{len(cells)} networks on {settings.data}, seed {settings.seed}",
        folder=folder,
        device=device,
        threads=threads,
        as_json=json,
        next_command="nonvacuous reproduce zhang-figure-1 --quick",
    )
