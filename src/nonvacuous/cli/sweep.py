"""``nonvacuous sweep``: every cell of a grid once, on this machine or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import CycloptsError, Parameter

from nonvacuous.cli import exits
from nonvacuous.cli.flags import PREFIX, SWITCH, Json, Ledger, OptionalWholeNumber, WholeNumber
from nonvacuous.cli.narration import working
from nonvacuous.cli.output import answered, write_error, write_json, write_lines, write_next
from nonvacuous.errors import NonvacuousError
from nonvacuous.foreign import holds_run
from nonvacuous.methods import METHODS
from nonvacuous.rules.attempts import ledger_beside
from nonvacuous.settings import flags_of
from nonvacuous.study import functions, worker
from nonvacuous.study.engine import Driver, Engine, Summary
from nonvacuous.study.folder import ERROR, SweepFolder, read_record
from nonvacuous.study.sweep import Sweep, read_sweep

#: The commands that a sweep can run by name.
FUNCTIONS = {"certify": "nonvacuous.cli.sweep:certify_cell"}
#: What the sweep decides, or what makes no sense for many runs at once.
_NOT_HERE = ("out", "resume", "force", "config", "json", "tensorboard", "ledger")
#: Flags without a --no- form.
_SWITCHES = {
    "allow_conditional",
    *(n for kind in METHODS.values() for n, _, field in flags_of(kind) if field.default is False),
}
_KEPT = ("NONVACUOUS_DATA",)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """Where cells are computed.

    Args:
        engine: local: processes on this machine. ray: a Ray cluster.
        address: With --engine ray: the cluster to use, such as 10.0.0.1:6379 or auto. By default
            the one that RAY_ADDRESS names or that runs on this machine, else a new one on this
            machine.
        jobs: Cells at the same time. By default as many as there are processors (or parts of GPUs).
        threads: Processor threads for each cell.
        gpus_per_task: The part of a GPU that a cell takes: 0.25 puts four on each. 0: cells see no
            GPU.
    """

    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    jobs: OptionalWholeNumber = None
    threads: WholeNumber = 1
    gpus_per_task: float = 0.0

    def check(self) -> None:
        """Refuse flags that make no sense together."""
        if self.address is not None and self.engine != "ray":
            raise exits.UsageError("--address is that of a Ray cluster: add --engine ray.")
        if self.threads < 1 or (self.jobs is not None and self.jobs < 1):
            raise exits.UsageError("--jobs and --threads are at least 1.")
        if not 0.0 <= self.gpus_per_task < float("inf"):
            raise exits.UsageError(
                "--gpus-per-task is a part of a GPU, such as 0.25, or a number of them."
            )

    def made(self) -> Engine:
        """The engine that the flags ask for."""
        share: dict[str, Any] = asdict(self)
        engine, address = share.pop("engine"), share.pop("address")
        try:
            if engine == "ray":
                from nonvacuous.study.cluster import RayEngine

                return RayEngine(address=address, **share)
            from nonvacuous.study.local import LocalEngine

            return LocalEngine(**share)
        except NonvacuousError as error:
            raise exits.CommandError(str(error), instead="nonvacuous sweep --help") from error


def sweep(
    experiment: Path,
    /,
    *,
    out: Path | None = None,
    where: Where = Where(),  # noqa: B008
    retry_failed: Annotated[bool, SWITCH] = False,
    dry_run: Annotated[bool, SWITCH] = False,
    ledger: Ledger = None,
    json: Json = False,
) -> int:
    """Compute every cell of the grid in a TOML file, each in a run folder of its own.

    Args:
        experiment: TOML file: [command] run = "certify" or "package.module:function"; [fixed] for
            settings that all cells share; [grid] with lists of values, of which every combination
            is a cell; [[cells]] for more cells by themselves; seed = 0 for the seeds of cells that
            have none.
        out: The folder of the sweep; runs/NAME by default. A sweep that was stopped goes on there.
        retry_failed: Compute cells again that have failed before.
        dry_run: List the cells and which of them have ended, and compute nothing.
    """
    where.check()
    with exits.as_usage():
        plan = read_sweep(experiment)
    folder = out or Path("runs") / plan.name
    plan = _complete(plan)
    if dry_run:
        states = SweepFolder(folder).states(plan.cells)
        cells = [{**cell.to_dict(), "state": states[cell.digest]} for cell in plan.cells]
        record = {"name": plan.name, "run": plan.run, "folder": str(folder), "cells": cells}
        lines = [f"{states[cell.digest]:10} {cell.name}" for cell in plan.cells]
        following = exits.again({"--dry-run": ""})
        return answered(record, lambda _: write_lines(*lines), as_json=json, next_command=following)
    kept = f"{folder} keeps every cell that has ended; the same command goes on."
    with working(lambda: (f"stopped. {kept}", exits.again())) as narration:
        engine = where.made()
        narration.say(
            f"{len(plan.cells):,} cells of {plan.run}, seed {plan.seed}, "
            f"engine {where.engine}, folder {folder}"
        )
        summary = Driver(
            plan,
            SweepFolder(folder),
            engine,
            function=FUNCTIONS.get(plan.run, plan.run),
            retry_failed=retry_failed,
            given={"ledger": (ledger or ledger_beside(folder)).absolute()},
            progress=narration,
            say=narration.say,
        ).run()
    return _tell(summary, folder, as_json=json)


def _complete(plan: Sweep) -> Sweep:
    """The plan as it is computed; what cannot work is told at once.

    The table of a sweep invites choosing the best certificate in it, so its cells share the
    confidence. Then it does not matter either in which order they are computed.
    """
    if plan.run not in FUNCTIONS:
        if ":" not in plan.run:
            raise exits.UsageError(
                f"there is no command {plan.run!r} to sweep over: [command] run is "
                f"{', '.join(FUNCTIONS)} or package.module:function."
            )
        with exits.as_usage():
            function = functions.find_function(plan.run)
            for cell in plan.cells:
                functions.arguments_of(function, cell, Path("run"))
        return plan
    from nonvacuous.cli.app import app

    plan = plan.completed(attempts=len(plan.cells))
    for cell in plan.cells:
        attempts = cell.settings["attempts"]
        if not isinstance(attempts, int) or attempts < len(plan.cells):
            raise exits.UsageError(
                f"attempts is {attempts!r}, but the sweep computes {len(plan.cells)} certificates, "
                "and whoever reads their table will pick the best: leave attempts out, or plan "
                "for more."
            )
        words = words_of(cell.settings, seed=cell.seed, folder=Path("run"))
        try:
            app.parse_args(words, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            raise exits.UsageError(
                f"{plan.run} does not take the settings of {cell.name}: "
                f"{' '.join(str(error).split())}",
                instead=f"nonvacuous {plan.run} --help",
            ) from error
    return plan


def _tell(summary: Summary, folder: Path, *, as_json: bool) -> int:
    if as_json:
        write_json(asdict(summary))
    else:
        parts = [f"{summary.done:,} of {summary.cells:,} cells done"]
        counts = ("failed", summary.failed), ("had ended before", summary.cells - summary.computed)
        parts += [f"{number:,} {what}" for what, number in counts if number]
        write_lines(f"{', '.join(parts)}: {folder}")
    if summary.failed:
        first = summary.failures[0]
        error = (read_record(Path(first.folder) / ERROR) or {}).get("error", {})
        kind = f"{error['type']}: " if error.get("type") else ""
        write_error(
            f"{summary.failed:,} of {summary.cells:,} cells failed, the first with: "
            f"{kind}{first.message.removesuffix('.')}. Each has an error.json in its folder.",
            next_command=exits.again({"--retry-failed": None}),
        )
        return exits.FAILED
    write_next(exits.command("runs", folder))
    return exits.DONE


def certify_cell(
    *, seed: int, folder: Path, ledger: Path | None = None, **settings: Any
) -> dict[str, Any]:
    """Certify in a run folder, going on with what is there; the settings are the command's flags.

    A refused certificate is a result too: its status says so.
    """
    from nonvacuous.certificate import Certificate
    from nonvacuous.cli.app import app
    from nonvacuous.study.runs import figures_of

    words = words_of(settings, seed=seed, folder=folder)
    if ledger is not None:
        words += ["--ledger", str(ledger)]
    if holds_run(folder):
        words.append("--resume")
    # Without NONVACUOUS_... variables: a cell is the same on every machine of a cluster.
    hidden = {name: None for name in os.environ if name.startswith(PREFIX) and name not in _KEPT}
    with worker.environment(hidden), exits.started_with(words):
        code = app(words, exit_on_error=False, print_error=False)
    path = folder / "certificate.json"
    if not path.is_file():
        raise exits.CommandError(f"certify ended with code {code} and without a certificate.")
    return figures_of(Certificate.load(path))


def words_of(settings: Mapping[str, Any], *, seed: int, folder: Path) -> list[str]:
    """The words of the command for one cell.

    >>> words_of({"data": "digits", "twin": False, "prior_scale": [0.1, 1.0]}, seed=1,
    ...          folder=Path("x"))[1:8]
    ['--no-report', '--data=digits', '--no-twin', '--prior-scale', '0.1', '1.0', '--seed']
    """
    words = ["certify"]
    for name, value in {"report": False, **settings}.items():
        flag = name.replace("_", "-")
        if flag in _NOT_HERE:
            raise exits.UsageError(f"the setting {name} has no place in a sweep: remove it.")
        if isinstance(value, bool):
            if value or name not in _SWITCHES:
                words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list):
            words += [f"--{flag}", *map(str, value)]
        else:
            words.append(f"--{flag}={value}")
    return [*words, "--seed", str(seed), "--out", str(folder)]
