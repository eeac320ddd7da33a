"""``nonvacuous reproduce sparsity-mnist``: certificates for deterministic networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.invocation import again
from nonvacuous.cli.reproductions.running import (
    chosen_settings,
    folder_of,
    naming,
    print_tables,
    run_and_show,
)

if TYPE_CHECKING:
    from nonvacuous.experiments.sparsity_results import SparsityResult
    from nonvacuous.training import Progress

NAME = "sparsity-mnist"


def sparsity_mnist(
    *,
    out: Path | None = None,
    only: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)
    ] = (),
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
    """Certify deterministic networks by every sparsity theorem, dense and sparse side by side.

    Needs MNIST. The part called goals takes some minutes on one processor core, everything about
    an hour; a GPU needs some minutes for everything.

    Parameters
    ----------
    out
        The folder for results.json, table.md, report.html and the networks; runs/sparsity-mnist by
        default.
    only
        Some of the parts (goals, priors, width, size, sparsity, depth) or names of networks, such
        as h1-w100-*; those finished earlier are shown as well.
    quick
        The same steps on the small embedded digits, in seconds: nothing to compare, but everything
        can be seen to work.
    config
        TOML file with other settings; experiments/sparsity-mnist.toml holds the default ones.
    data_dir
        Folder that contains mnist/; else the variable NONVACUOUS_DATA.
    seed
        Everything random follows from it; 0 by default.
    device
        Where to train and to certify; random numbers differ between the two, validity does not.
    threads
        Processor threads for torch; its own choice by default.
    resume
        Go on with a run that was stopped: networks that are finished are not trained again.
    force
        Overwrite the results in the folder.
    """
    from nonvacuous.experiments.sparsity_mnist import run
    from nonvacuous.experiments.sparsity_pages import tables, write_pages
    from nonvacuous.experiments.sparsity_settings import SparsitySettings

    settings = chosen_settings(SparsitySettings, quick=quick, config=config, seed=seed)
    with naming("--only"):
        networks = len(settings.only(only))
    folder = folder_of(NAME, out, quick=quick, resume=resume, force=force)

    def compute(progress: Progress) -> SparsityResult:
        return run(
            settings,
            folder,
            only=only,
            data_dir=data_dir,
            resume=resume,
            force=force,
            device=device,
            progress=progress,
        )

    command = again(without=["--force", "--resume"])
    return run_and_show(
        compute,
        lambda result, folder: write_pages(result, folder, command=command),
        lambda result: print_tables(*tables(result)),
        title=f"{settings.data}, {networks} networks, seed {settings.seed}",
        folder=folder,
        threads=threads,
        device=device,
        as_json=json,
        next_command=f"nonvacuous sparsity --data {settings.data}",
    )
