"""``nonvacuous interpolate``: the function of smallest norm through every training example."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from nonvacuous.cli.exits import DONE, UsageError, again
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber, WholeNumber
from nonvacuous.cli.output import result_console, write_json, write_next
from nonvacuous.errors import BadInput

if TYPE_CHECKING:
    from nonvacuous.interpolation.plan import Plan
    from nonvacuous.studies.interpolation import InterpolationStudy, Task

RESULT = "interpolation.json"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command is told.

    Parameters
    ----------
    data
        digits, mnist, fashion-mnist, cifar10; a file .npz, .parquet, .csv or .pt; a folder of
        images; or package.module:function.
    data_dir
        Folder that contains mnist/, fashion-mnist/ and cifar10/; else the variable NONVACUOUS_DATA.
    examples
        Only the first so many training examples.
    kernel
        gaussian: exp(-gamma d²), laplace: exp(-gamma d), d the distance of two points;
        polynomial: (product + 1) to --degree; linear.
    gamma
        A number; median: 2 over the median of d² (laplace: 1 over its root); median:FACTOR.
    degree
        Of the polynomial kernel.
    features
        raw; gabor (stripes in eight directions and two widths); patches:NUMBER (a convolutional
        network that nobody trained, with so many random patches as filters).
    labels
        Separated by commas: true, random, partial:P (each label redrawn with probability P). All
        are solved for together.
    method
        cholesky; conjugate-gradient, which keeps no matrix and says if it did not converge; auto:
        cholesky in memory, else on disk.
    precision
        Of the factor; the answer is refined to float64 in any case.
    memory
        The most to use, such as 8GB; nine tenths of what is free by default.
    drop_duplicates
        Leave out training inputs that equal an earlier one. Without it, equal inputs with different
        labels are an error: no function passes through both.
    estimate
        Only say what it would take.
    out
        The run folder; runs/interpolate-DATA-FEATURES-KERNEL-seedN by default. It also keeps the
        factor while a long run goes on.
    seed
        Everything random follows from it.
    device
        Where to compute; cuda keeps the whole matrix in float64 on the GPU.
    threads
        Processor threads; the libraries' own choice by default.
    resume
        Go on with a run that was stopped, or show a finished one again.
    force
        Overwrite the run in the folder.
    """

    data: str
    data_dir: Path | None = None
    examples: OptionalWholeNumber = None
    kernel: Literal["gaussian", "laplace", "polynomial", "linear"] = "gaussian"
    gamma: str = "median"
    degree: WholeNumber = 3
    features: str = "raw"
    labels: str = "true"
    method: Literal["auto", "cholesky", "conjugate-gradient"] = "auto"
    precision: Literal["auto", "float32", "float64"] = "auto"
    memory: str | None = None
    drop_duplicates: Annotated[bool, SWITCH] = False
    estimate: Annotated[bool, SWITCH] = False
    out: Path | None = None
    seed: WholeNumber = 0
    device: Literal["cpu", "cuda"] = "cpu"
    threads: OptionalWholeNumber = None
    resume: Annotated[bool, SWITCH] = False
    force: Annotated[bool, SWITCH] = False
    json: Json = False


def interpolate(*, flags: Flags) -> int:
    """Fit every training example exactly with a kernel, and say what that is worth on new ones."""
    if flags.resume and flags.force:
        raise UsageError("--resume goes on with a run and --force overwrites it: give one of them.")
    if flags.examples is not None and flags.examples < 1:
        raise UsageError(f"--examples must be at least 1, got {flags.examples}.")
    budget = _bytes(flags.memory)
    about = (Path(flags.data).stem or flags.data, flags.features, flags.kernel)
    name = f"interpolate-{'-'.join(about)}-seed{flags.seed}"
    folder = flags.out or Path("runs") / re.sub(r"[^A-Za-z0-9.]+", "-", name)
    if (folder / RESULT).is_file() and not (flags.resume or flags.force or flags.estimate):
        raise UsageError(
            f"{folder} holds an interpolation already. Add --resume to see it again, --force to "
            "overwrite it, or --out to name another folder.",
            next_command=again("--resume"),
        )
    from nonvacuous.cli.interpolate_run import Request, run
    from nonvacuous.interpolation.plan import Plan
    from nonvacuous.studies.interpolation import Task

    try:
        task = Task(
            features=flags.features,
            kernel=flags.kernel,
            gamma=flags.gamma,
            degree=flags.degree,
            labels=tuple(part.strip() for part in flags.labels.split(",") if part.strip()),
            seed=flags.seed,
        )
    except BadInput as error:
        raise UsageError(f"--labels: {error}.") from error
    _check_specifications(task)
    outcome = run(Request(**vars(flags) | {"memory": budget}, task=task, folder=folder))
    if isinstance(outcome, int):
        return outcome
    if isinstance(outcome, Plan):
        _write_plan(outcome, as_json=flags.json)
        return DONE
    if flags.json:
        write_json(outcome.to_dict() | {"folder": str(folder)})
        return DONE
    _write_text(outcome)
    if outcome.labelings[-1].labels == "true":
        write_next(again(replacing={"--labels": "true,random"}, without=["--force", "--resume"]))
    else:
        write_next("nonvacuous reproduce zhang-kernels --quick")
    return DONE


def _check_specifications(task: Task) -> None:
    """Refuse what cannot be meant before the plan is announced."""
    from nonvacuous.interpolation.features import parse_features
    from nonvacuous.studies.interpolation import chosen_kernel

    try:
        parse_features(task.features)
    except BadInput as error:
        remedy = again(replacing={"--features": "raw"})
        raise UsageError(f"--features: {error}.", next_command=remedy) from error
    flag, usual = ("--degree", "3") if task.kernel == "polynomial" else ("--gamma", "median")
    try:
        # Any median does: only the words and numbers of the flags are looked at.
        chosen_kernel(task, 1.0)
    except BadInput as error:
        remedy = again(replacing={flag: usual})
        raise UsageError(f"{flag}: {error}.", next_command=remedy) from error


def _write_plan(plan: Plan, *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        write_json(asdict(plan) | {"folder": None if plan.folder is None else str(plan.folder)})
        return
    result_console().print(f"{plan}.", soft_wrap=True)
    write_next(again(without=["--estimate"]))


def _bytes(text: str | None) -> int | None:
    """A size such as 8GB or 500MB; a number alone counts bytes."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)i?[bB]?", text.strip())
    if found is None:
        raise UsageError(f"--memory: {text!r} is not a size; write something like 8GB.")
    return int(float(found[1]) * 1000 ** " kmgt".index(found[2].lower() or " "))


def _write_text(study: InterpolationStudy) -> None:
    from rich.table import Table

    from nonvacuous.studies.interpolation_page import labelings_table, lead

    console = result_console()
    console.print(lead(study), soft_wrap=True)
    shown = labelings_table(study)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column, heading in enumerate(shown.headings):
        table.add_column(heading, justify="right" if column else "left", no_wrap=True)
    for row in shown.rows:
        table.add_row(*row)
    console.print(table)
    console.print(f"{shown.caption}, seed {study.seed}.", soft_wrap=True)
    steps = " > ".join(f"{value:.1e}" for value in study.refinements)
    method = f"{study.method} in {study.precision}"
    if study.iterations:
        method += f", {study.iterations:,} iterations of conjugate gradients"
    console.print(f"{method}, residual {steps}; no ridge.", soft_wrap=True)
    for warning in study.warnings:
        console.print(f"Note: {warning}.", soft_wrap=True)
