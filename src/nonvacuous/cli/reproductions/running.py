"""What all reproductions share: their settings, their folder, running them, showing the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

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
    from nonvacuous.progress import Progress
    from nonvacuous.report.study import Table

#: Phases of which each step is worth a line that stays.
_KEPT = ("networks", "entries", "cases")


class Settings(Protocol):
    """What the settings of every reproduction are: frozen dataclasses with a seed."""

    @property
    def seed(self) -> int:
        """Everything random follows from it."""

    @classmethod
    def quick(cls) -> Self:
        """Small ones, on the embedded digits."""

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Those of a file."""


AnySettings = TypeVar("AnySettings", bound=Settings)


class Result(Protocol):
    """What every reproduction gives."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""


AnyResult = TypeVar("AnyResult", bound=Result)


def chosen_settings(
    kind: type[AnySettings], *, quick: bool, config: Path | None, seed: int | None
) -> AnySettings:
    """The settings that the flags ask for."""
    if quick and config is not None:
        raise UsageError("--quick has settings of its own: leave out --config or --quick.")
    settings = kind.quick() if quick else kind()
    if config is not None:
        with naming("--config"):
            settings = kind.from_toml(config)
    return settings if seed is None else replace(settings, seed=seed)  # type: ignore[type-var]


@contextmanager
def naming(flag: str) -> Iterator[None]:
    """What is wrong with a flag's value is said with the flag's name."""
    try:
        yield
    except BadInput as error:
        raise UsageError(f"{flag}: {error}.") from error


def folder_of(
    name: str,
    out: Path | None,
    *,
    quick: bool,
    resume: bool,
    force: bool,
    holds: str = "settings.json",
    way: str = "--resume",
) -> Path:
    """Where the results go; a folder that ``holds`` some is not touched unasked.

    ``way`` is the flag to try there first.
    """
    if resume and force:
        raise UsageError("--resume goes on with a run and --force overwrites it: give one of them.")
    folder = out or Path("runs") / (f"{name}-quick" if quick else name)
    if (folder / holds).is_file() and not (resume or force):
        raise UsageError(
            f"{folder} holds a reproduction already. Add --resume to go on with it, --force to "
            "overwrite it, or --out to name another folder.",
            next_command=again(way),
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
    compute: Callable[[Progress], AnyResult],
    write_pages: Callable[[AnyResult, Path], Mapping[str, Path]],
    show: Callable[[AnyResult], None],
    *,
    title: str,
    folder: Path,
    threads: int | None,
    as_json: bool,
    next_command: str,
    device: str = "cpu",
    keeps: str = "network",
) -> int:
    """Run, write the files, show the result (or print it as one JSON object).

    ``keeps`` names what is not computed again after a stop.
    """
    import torch

    from nonvacuous.claims import own_folder
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
        with own_folder(folder), stoppable(), Narration() as narration:
            narration.say(f"{title}, device {device}, folder {folder}")
            result = compute(_progress(narration))
    except KeyboardInterrupt as stop:
        write_error(
            f"stopped. {folder} keeps every {keeps} that is finished.",
            next_command=again("--resume", without=["--force"]),
        )
        return exit_code_of(stop)
    paths = write_pages(result, folder)
    if as_json:
        write_json(result.to_dict())
    else:
        show(result)
    sys.stdout.flush()
    console = narration_console()
    for path in paths.values():
        console.print(f"Written: {path}", soft_wrap=True)
    write_next(next_command)
    return DONE


def print_tables(*tables: Table) -> None:
    """Several tables, one below the other."""
    for table in tables:
        print_table(table)


def print_table(shown: Table, *, note: str = "") -> None:
    """A table on stdout, its caption and a note below."""
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
    for text in filter(None, (shown.caption, note)):
        console.print(text, soft_wrap=True)


def _progress(narration: Narration) -> Progress:
    """Bars as usual, and a line that stays for each part that is finished."""

    def progress(phase: str, done: int, total: int, message: str) -> None:
        narration(phase, done, total, message)
        if phase in _KEPT:
            narration.say(message)

    return progress
