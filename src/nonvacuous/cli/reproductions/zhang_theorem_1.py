"""``nonvacuous reproduce zhang-theorem-1``: any labels, 2n + d weights, every depth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from nonvacuous.cli.exits import DONE, CommandError, UsageError
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber
from nonvacuous.cli.invocation import again
from nonvacuous.cli.output import (
    narration_console,
    result_console,
    write_error,
    write_json,
    write_next,
)
from nonvacuous.errors import BadInput

if TYPE_CHECKING:
    from nonvacuous.cli.narration import Narration
    from nonvacuous.experiments.zhang_theorem_results import TheoremResult
    from nonvacuous.experiments.zhang_theorem_settings import TheoremSettings

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
    if resume and force:
        raise UsageError("--resume goes on with a run and --force overwrites it: give one of them.")
    if quick and config is not None:
        raise UsageError("--quick has settings of its own: leave out --config or --quick.")
    settings = _settings(quick=quick, config=config, seed=seed)
    folder = out or Path("runs") / (f"{NAME}-quick" if quick else NAME)
    if (folder / "settings.json").is_file() and not (resume or force):
        raise UsageError(
            f"{folder} holds a reproduction already. Add --resume to go on with it, --force to "
            "overwrite it, or --out to name another folder.",
            next_command=again("--resume"),
        )
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise CommandError(
            "--device cuda: torch sees no CUDA device here.",
            next_command=again(replacing={"--device": "cpu"}),
        )
    if threads is not None:
        torch.set_num_threads(threads)
    options = {"data_dir": data_dir, "device": device, "resume": resume, "force": force}
    return _run(settings, folder, options, as_json=json)


def _settings(*, quick: bool, config: Path | None, seed: int | None) -> TheoremSettings:
    from nonvacuous.experiments.zhang_theorem_settings import TheoremSettings

    settings = TheoremSettings.quick() if quick else TheoremSettings()
    if config is not None:
        try:
            settings = TheoremSettings.from_toml(config)
        except BadInput as error:
            raise UsageError(f"--config: {error}.") from error
    return settings if seed is None else replace(settings, seed=seed)


def _run(settings: TheoremSettings, folder: Path, options: dict[str, Any], *, as_json: bool) -> int:
    from nonvacuous.cli.narration import Narration
    from nonvacuous.cli.stopping import exit_code_of, stoppable
    from nonvacuous.experiments.zhang_theorem import run
    from nonvacuous.experiments.zhang_theorem_pages import write_pages

    try:
        with stoppable(), Narration() as narration:
            narration.say(
                f"{settings.data}, depths {', '.join(map(str, settings.depths))}, seed "
                f"{settings.seed}, folder {folder}"
            )
            result = run(settings, folder, **options, progress=_progress(narration))
    except KeyboardInterrupt as stop:
        write_error(
            f"stopped. {folder} keeps every entry that is finished.",
            next_command=again("--resume", without=["--force"]),
        )
        return exit_code_of(stop)
    paths = write_pages(result, folder, command=again(without=["--force", "--resume"]))
    if as_json:
        write_json(result.to_dict())
    else:
        _write_text(result)
    for path in paths.values():
        narration_console().print(f"Written: {path}", soft_wrap=True)
    write_next(f"nonvacuous memorize --data {settings.data} --labels true")
    return DONE


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


def _progress(narration: Narration) -> Any:
    """Bars as usual, and a line that stays for each finished entry."""

    def progress(phase: str, done: int, total: int, message: str) -> None:
        narration(phase, done, total, message)
        if phase == "entries":
            narration.say(message)

    return progress
