"""``nonvacuous reproduce zhang-figure-1``: from true labels to random ones."""

from __future__ import annotations

from dataclasses import replace
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
    reused,
    run_and_show,
)
from nonvacuous.errors import BadInput

if TYPE_CHECKING:
    from nonvacuous.experiments.zhang_figure import FigureResult
    from nonvacuous.experiments.zhang_settings import FigureSettings
    from nonvacuous.training import Progress

NAME = "zhang-figure-1"
_SOME = Parameter(consume_multiple=True, negative=(), show_default=False)


def zhang_figure_1(
    *,
    out: Path | None = None,
    only: Annotated[tuple[str, ...], _SOME] = (),
    levels: Annotated[tuple[float, ...], _SOME] = (),
    examples: OptionalWholeNumber = None,
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
    """Train networks with more and more labels redrawn, and draw the figure's three panels.

    Needs CIFAR-10 and a GPU. On two processor cores: --only mlp-1x512 --examples 5000, or --quick.

    Parameters
    ----------
    out
        The folder for results.json, table.md, report.html and the panels; runs/zhang-figure-1 by
        default.
    only
        Some kinds of networks: inception, alexnet, mlp-1x512. The first of them is the one whose
        learning curves are shown.
    levels
        Shares of labels that are redrawn, such as 0 0.5 1; 0 and 1 are always there.
    examples
        Train on the first so many; all by default.
    quick
        The same steps with small perceptrons on the embedded digits, in seconds.
    epochs
        Train every network for at most so many.
    table
        The folder of zhang-table-1: its networks on true and on random labels are taken over.
    config
        TOML file with other settings; experiments/zhang-figure-1.toml holds the default ones.
    data_dir
        Folder that contains cifar10/; else the variable NONVACUOUS_DATA.
    seed
        Everything random follows from it; 0 by default.
    device
        Where to compute.
    threads
        Processor threads for torch; its own choice by default.
    resume
        Go on with a run that was stopped: networks that are finished are not trained again.
    force
        Overwrite the results in the folder.
    """
    from nonvacuous.experiments import zhang_figure
    from nonvacuous.experiments.zhang_figure_page import curves_table, sweep_table, write_pages
    from nonvacuous.experiments.zhang_settings import FigureSettings

    settings = chosen_settings(FigureSettings, quick=quick, config=config, seed=seed)
    if epochs is not None:
        with naming("--epochs"):
            settings = settings.with_epochs(epochs)
    settings = _narrowed(settings, only=only, levels=levels, examples=examples)
    folder = folder_of(NAME, out, quick=quick, resume=resume, force=force)
    reuse = reused(table)

    def compute(progress: Progress) -> FigureResult:
        return zhang_figure.run(
            settings,
            folder,
            reuse=reuse,
            data_dir=data_dir,
            device=device,
            resume=resume,
            force=force,
            progress=progress,
        )

    cells = zhang_figure.figure_cells(settings)
    return run_and_show(
        compute,
        write_pages,
        lambda result: print_tables(sweep_table(result), curves_table(result)),
        title=f"{len(cells)} networks on {settings.data}, seed {settings.seed}",
        folder=folder,
        device=device,
        threads=threads,
        as_json=json,
        next_command="nonvacuous reproduce zhang-regularization --quick",
    )


def _narrowed(
    settings: FigureSettings,
    *,
    only: tuple[str, ...],
    levels: tuple[float, ...],
    examples: int | None,
) -> FigureSettings:
    if only:
        for name in only:
            if name not in settings.networks:
                raise UsageError(
                    f"--only: there is no network {name!r} here; there are "
                    f"{', '.join(settings.networks)}."
                )
        settings = replace(
            settings,
            networks={name: settings.networks[name] for name in dict.fromkeys(only)},
            curves_of=settings.curves_of if settings.curves_of in only else only[0],
        )
    if levels:
        try:
            settings = replace(settings, levels=levels)
        except BadInput as error:
            raise UsageError(f"--levels: {error}.") from error
    return settings if examples is None else replace(settings, examples=examples)
