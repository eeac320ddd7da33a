"""``nonvacuous memorize``: a network with 2n + d weights that gets every label right, certified."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from nonvacuous.cli.exits import DONE, UsageError, again
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber, WholeNumber
from nonvacuous.cli.output import narration_console, result_console, write_json, write_next

FILES = ("network.safetensors", "record.json", "memorize.html")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command is told.

    Parameters
    ----------
    data
        digits, mnist, fashion-mnist, cifar10; a file.npz, file.parquet or folder of images; or
        package.module:function.
    data_dir
        Folder that contains mnist/, fashion-mnist/ and cifar10/; else the variable NONVACUOUS_DATA.
    labels
        What to memorize: labels drawn at random, or the true ones.
    examples
        Only so many, the first ones.
    depth
        Layers of weights. From 3 on the points are dealt to the hidden layers in blocks.
    conflicts
        Copies of one example with different labels: refuse, or keep the most frequent label.
    seed
        Decides the random labels and the direction along which the points are told apart.
    out
        Folder for network.safetensors, record.json and memorize.html.
    skip_forward
        Leave out the test that evaluates every hidden unit at every point: its time grows with
        the square of their number.
    force
        Overwrite these files in --out.
    """

    data: str
    data_dir: Path | None = None
    labels: Literal["random", "true"] = "random"
    examples: OptionalWholeNumber = None
    depth: WholeNumber = 2
    conflicts: Literal["refuse", "majority"] = "refuse"
    seed: WholeNumber = 0
    out: Path | None = None
    skip_forward: Annotated[bool, SWITCH] = False
    force: Annotated[bool, SWITCH] = False
    json: Json = False


def memorize(*, flags: Flags) -> int:
    """Construct a network that gets every label right, and prove it in exact arithmetic."""
    if flags.depth < 2:
        raise UsageError(f"--depth must be at least 2, got {flags.depth}.")
    if flags.examples is not None and flags.examples < 1:
        raise UsageError(f"--examples must be at least 1, got {flags.examples}.")
    from nonvacuous.cli.memorize_run import run

    out = flags.out
    taken = [name for name in FILES if out is not None and (out / name).exists()]
    if taken and not flags.force:
        raise UsageError(
            f"--out: {out} holds {taken[0]} already. Add --force to overwrite it, or name another "
            "folder.",
            next_command=again("--force"),
        )
    record, paths = run(flags)
    if flags.json:
        write_json(record)
    else:
        _write_text(record)
    for path in paths:
        narration_console().print(f"Written: {path}", soft_wrap=True)
    if out is None:
        write_next(again("--out", "memorized"))
    elif flags.labels == "random":
        other = {"--labels": "true", "--out": str(out.with_name(out.name + "-true"))}
        write_next(again(without=["--force"], replacing=other))
    else:
        write_next(shlex.join(["nonvacuous", "reproduce", "zhang-theorem-1", "--quick"]))
    return DONE


def _write_text(record: dict[str, Any]) -> None:
    from rich.table import Table

    from nonvacuous.report.terminal import printable

    console = result_console()
    console.print(printable(record["answer"]), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, text in record["facts"].items():
        table.add_row(printable(name), printable(text))
    console.print(table)
    console.print("What this does not say:", style="bold")
    for line in record["does_not_say"]:
        console.print(printable(f"- {line}"), soft_wrap=True)
