"""What the three commands around the randomization paper share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from nonvacuous.cli.exits import DONE, CommandError, UsageError
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
    from nonvacuous.experiments.zhang_settings import ZhangSettings
    from nonvacuous.report.study import Table
    from nonvacuous.training import Progress

    AnySettings = TypeVar("AnySettings", bound=ZhangSettings)


class Result(Protocol):
    """What every reproduction gives."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""


def chosen_settings(
    kind: type[AnySettings],
    *,
    quick: bool,
    config: Path | None,
    epochs: int | None,
    seed: int | None,
) -> AnySettings:
    """The settings that the flags ask for."""
    if quick and config is not None:
        raise UsageError("--quick has settings of its own: leave out --config or --quick.")
    settings = kind.quick() if quick else kind()
    try:
        if config is not None:
            settings = kind.from_toml(config)
        if epochs is not None:
            settings = settings.with_epochs(epochs)
    except BadInput as error:
        flag = "--config" if epochs is None else "--epochs"
        raise UsageError(f"{flag}: {error}.") from error
    return settings if seed is None else replace(settings, seed=seed)


def folder_of(name: str, out: Path | None, *, quick: bool, resume: bool, force: bool) -> Path:
    """Where the results go; a folder that holds some is neither taken nor overwritten unasked."""
    if resume and force:
        raise UsageError("--resume goes on with a run and --force overwrites it: give one of them.")
    folder = out or Path("runs") / (f"{name}-quick" if quick else name)
    if (folder / "settings.json").is_file() and not (resume or force):
        raise UsageError(
            f"{folder} holds a reproduction already. Add --resume to go on with it, --force to "
            "overwrite it, or --out to name another folder.",
            next_command=again("--resume"),
        )
    return folder


def reused(table: Path | None) -> Path | None:
    """The folder of a table whose networks are taken over, checked."""
    if table is not None and not (table / "settings.json").is_file():
        raise UsageError(
            f"--table: {table} holds no table.",
            next_command=f"nonvacuous reproduce zhang-table-1 --out {table}",
        )
    return table


def run_and_show(
    compute: Callable[[Progress], Result],
    write_pages: Callable[[Any, Path], Mapping[str, Path]],
    tables: Callable[[Any], Sequence[Table]],
    *,
    title: str,
    folder: Path,
    device: str,
    threads: int | None,
    as_json: bool,
    next_command: str,
) -> int:
    """Run, write the files, print the tables (or one JSON object)."""
    import torch

    from nonvacuous.cli.narration import Narration
    from nonvacuous.cli.stopping import exit_code_of, stoppable

    if device == "cuda" and not torch.cuda.is_available():
        raise CommandError(
            "--device cuda: torch sees no CUDA device here.",
            next_command=again(replacing={"--device": "cpu"}),
        )
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        with stoppable(), Narration() as narration:
            narration.say(f"{title}, device {device}, folder {folder}")
            result = compute(_progress(narration))
    except KeyboardInterrupt as stop:
        write_error(
            f"stopped. {folder} keeps every network that is finished, and the last minutes of "
            "those in training.",
            next_command=again("--resume", without=["--force"]),
        )
        return exit_code_of(stop)
    paths = write_pages(result, folder)
    if as_json:
        write_json(result.to_dict())
    else:
        for table in tables(result):
            print_table(table)
    sys.stdout.flush()
    console = narration_console()
    for path in paths.values():
        console.print(f"Written: {path}", soft_wrap=True)
    write_next(next_command)
    return DONE


def print_table(shown: Table) -> None:
    """A table on stdout, its caption below."""
    from rich.table import Table as Grid

    console = result_console()
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column, heading in enumerate(shown.headings):
        if not shown.is_numeric(column):
            grid.add_column(heading)
            continue
        # A heading may be broken into lines, a number may not.
        longest = max((len(row[column]) for row in shown.rows), default=0)
        grid.add_column(heading, justify="right", min_width=longest)
    for row in shown.rows:
        grid.add_row(*row)
    console.print(grid)
    if shown.caption:
        console.print(shown.caption, soft_wrap=True)


def _progress(narration: Narration) -> Progress:
    """Bars as usual, and a line that stays for each finished network."""

    def progress(phase: str, done: int, total: int, message: str) -> None:
        narration(phase, done, total, message)
        if phase == "networks":
            narration.say(message)

    return progress
