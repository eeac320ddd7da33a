"""``nonvacuous reproduce zhang-theorem-1``: any labels, 2n + d weights, every depth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.invocation import again
from nonvacuous.cli.output import result_console
from nonvacuous.cli.reproductions.running import chosen_settings, folder_of, run_and_show

if TYPE_CHECKING:
    from nonvacuous.experiments.zhang_theorem_results import TheoremResult
    from nonvacuous.training import Progress

NAME = "zhang-theorem-1"


def zhang_theorem_1(
    *,
    out: Path | None = None,
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
    """Memorize random labels with 2n + d weights at every depth, certified in exact arithmetic.

    Needs MNIST and some five minutes on one processor core.

    Parameters
    ----------
    out
        The folder for results.json, table.md and report.html; runs/zhang-theorem-1 by default.
    quick
        The same steps on the small embedded digits, in seconds.
    config
        TOML file with other settings; experiments/zhang-theorem-1.toml holds the default ones.
    data_dir
        Folder that contains mnist/; else the variable NONVACUOUS_DATA.
    seed
        Decides random labels and directions; 0 by default.
    device
        Where the networks are evaluated unit by unit; the construction itself is exact arithmetic.
    threads
        Processor threads for torch; its own choice by default.
    resume
        Go on with a run that was stopped: entries that are finished are not computed again.
    force
        Overwrite the results in the folder.
    """
    from nonvacuous.experiments.zhang_theorem import run
    from nonvacuous.experiments.zhang_theorem_pages import write_pages
    from nonvacuous.experiments.zhang_theorem_settings import TheoremSettings

    settings = chosen_settings(TheoremSettings, quick=quick, config=config, seed=seed)
    folder = folder_of(NAME, out, quick=quick, resume=resume, force=force)

    def compute(progress: Progress) -> TheoremResult:
        return run(
            settings,
            folder,
            data_dir=data_dir,
            device=device,
            resume=resume,
            force=force,
            progress=progress,
        )

    command = again(without=["--force", "--resume"])
    return run_and_show(
        compute,
        lambda result, folder: write_pages(result, folder, command=command),
        _write_text,
        title=(
            f"{settings.data}, depths {', '.join(map(str, settings.depths))}, seed {settings.seed}"
        ),
        folder=folder,
        device=device,
        threads=threads,
        as_json=json,
        next_command=f"nonvacuous memorize --data {settings.data} --labels true",
        keeps="entry",
    )


def _write_text(result: TheoremResult) -> None:
    from rich.table import Table

    console = result_console()
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("n", "depth", "width", "weights", "mismatches", "float64 error", "wrong"):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in result.depths:
        table.add_row(
            f"{entry.points:,}",
            f"{entry.depth}",
            f"{entry.width:,}",
            f"{entry.parameters:,}",
            f"{entry.mismatches}",
            f"{entry.forward_error:.1e}",
            "-" if entry.forward_wrong is None else f"{entry.forward_wrong:,}",
        )
    console.print(table)
    console.print("mismatches: in exact arithmetic. wrong: labels in float64.", soft_wrap=True)
    for size in result.sizes:
        console.print(size.told(), soft_wrap=True)
    for claim in result.claims():
        verdict = "holds" if claim.holds else "FAILS"
        console.print(f"{claim.name} {verdict}: {claim.found}", soft_wrap=True)
