"""``nonvacuous measures``: every complexity measure of one network, and which of them to trust."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from nonvacuous.bounds import checks
from nonvacuous.cli.exits import DONE, UsageError, again
from nonvacuous.cli.flags import SWITCH, Json, Ledger, WholeNumber
from nonvacuous.cli.output import narration_console, result_console, write_json, write_next
from nonvacuous.errors import BadInput

#: The files that --out receives; the weights only of networks that were trained here.
FILES = ("network.safetensors", "record.json", "measures.html", "other.safetensors")
#: The folder in --out that holds what is done so far; gone when all is done.
UNFINISHED = "unfinished"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command is told.

    Parameters
    ----------
    data
        digits, mnist, fashion-mnist, cifar10; a file.npz, file.parquet or folder of images; or
        package.module:function.
    model
        mlp:WIDTHS, cnn:CHANNELS and so on, which is trained here unless --weights is given; or
        package.module:function, called without arguments.
    weights
        Trained weights as safetensors.torch.save_file(model.state_dict(), path) writes them.
    initial
        The weights before training, for distances from them; known for a network trained here.
    data_dir
        Folder that contains mnist/, fashion-mnist/ and cifar10/; else the variable NONVACUOUS_DATA.
    examples
        At most so many training examples, the first ones: trained on (here) and measured on.
    only
        Names or families of measures, separated by commas; or cheap, or expensive.
    without
        The same: what to leave out.
    attack
        Measure the same function in random gauges: what moves depends on how it is written down.
    gauges
        How many, for --attack.
    spread
        Of the logarithms of the factors on hidden channels, for --attack.
    against
        A corruption, such as random-labels: the same network is trained on such data too, and both
        columns are shown. A measure that means anything should call that network more complex.
    against_weights
        The weights of such a network, instead of training it: other.safetensors of an earlier
        --out with the same data, seed and --against, which decide the corrupted data.
    epochs
        Of training here, at most: it ends at 0 errors and a loss of 0.05.
    learning_rate
        Of training here.
    seed
        Everything random follows from it.
    out
        Folder for network.safetensors (and other.safetensors), record.json and the page
        measures.html.
    resume
        Go on in --out with a run that was stopped, with the same flags; a finished one is shown
        again.
    force
        Overwrite these files in --out.
    listed
        Print formula and source of every measure (of --only and --without), and nothing else: it
        needs no data and no network.
    """

    data: str | None = None
    model: str = "mlp:100,100"
    weights: Path | None = None
    initial: Path | None = None
    data_dir: Path | None = None
    examples: WholeNumber = 2000
    only: str | None = None
    without: str | None = None
    attack: Annotated[bool, SWITCH] = False
    gauges: WholeNumber = 20
    spread: float = 1.0
    against: str | None = None
    against_weights: Path | None = None
    epochs: WholeNumber = 300
    learning_rate: float = 0.05
    seed: WholeNumber = 0
    out: Path | None = None
    resume: Annotated[bool, SWITCH] = False
    force: Annotated[bool, SWITCH] = False
    ledger: Ledger = None
    json: Json = False
    listed: Annotated[bool, SWITCH, Parameter(name="--formulas")] = False


def measures(*, flags: Flags | None = None) -> int:
    """Show all complexity measures of a network, and put them on trial."""
    flags = flags or Flags()
    if flags.listed:
        return _list(_words(flags.only), _words(flags.without), as_json=flags.json)
    if flags.data is None:
        raise UsageError(
            "give the data that the network is about: --data NAME, such as --data digits; or "
            "--formulas for a list of all measures.",
            next_command=again("--data", "digits"),
        )
    _check_numbers(flags)
    _check_folder(flags.out, resume=flags.resume, force=flags.force)
    if flags.initial is not None and flags.weights is None:
        raise UsageError(
            "--initial belongs to --weights: a network trained here knows how it began.",
            next_command=again(without=["--initial", str(flags.initial)]),
        )
    if flags.against_weights is not None and flags.against is None:
        raise UsageError(
            "--against-weights belongs to --against, which names the data of that network.",
            next_command=again("--against", "random-labels"),
        )
    from nonvacuous.cli.measures_request import Request
    from nonvacuous.cli.measures_run import run
    from nonvacuous.studies.measures_text import write_text

    words = {"only": _words(flags.only), "without": _words(flags.without)}
    done = run(Request(**vars(flags) | words))
    if isinstance(done, int):
        return done
    record, paths = done
    if flags.json:
        write_json(record)
    else:
        write_text(record, result_console())
    for path in paths:
        narration_console().print(f"Written: {path}", soft_wrap=True)
    write_next(_next(record, flags.out))
    return DONE


def _list(only: tuple[str, ...] | None, without: tuple[str, ...] | None, *, as_json: bool) -> int:
    """Every measure with its formula and source."""
    from nonvacuous.cli.measures_request import check_names
    from nonvacuous.studies.measures_text import formula_record, write_formulas

    records = [formula_record(measure) for measure in check_names(only, without)]
    if as_json:
        write_json({"measures": records})
    else:
        write_formulas(records, result_console())
    write_next("nonvacuous measures --data digits --attack --out measures")
    return DONE


def _words(listed: str | None) -> tuple[str, ...] | None:
    if listed is None:
        return None
    return tuple(word.strip() for word in listed.split(",") if word.strip())


def _check_folder(out: Path | None, *, resume: bool, force: bool) -> None:
    """Nothing is overwritten unasked."""
    if resume and force:
        raise UsageError("--resume goes on with a run and --force overwrites it: give one of them.")
    if out is None:
        if resume:
            raise UsageError("--resume needs --out: the folder of the run that was stopped.")
        return
    taken = [name for name in (*FILES, UNFINISHED) if (out / name).exists()]
    if taken and not (resume or force):
        raise UsageError(
            f"--out: {out} holds {taken[0]} already. Add --resume to go on with that run or to see "
            "it again, --force to overwrite it, or name another folder.",
            next_command=again("--resume"),
        )


def _check_numbers(flags: Flags) -> None:
    try:
        checks.count("--examples", flags.examples, minimum=2)
        checks.count("--gauges", flags.gauges, minimum=1)
        checks.count("--epochs", flags.epochs, minimum=1)
        for flag, value in (
            ("--spread", flags.spread),
            ("--learning-rate", flags.learning_rate),
        ):
            checks.positive(flag, value)
            if not math.isfinite(value):
                raise BadInput(f"{flag} must be finite.")
    except BadInput as error:
        raise UsageError(str(error)) from error


def _next(record: dict[str, Any], out: Path | None) -> str:
    """First the attack, then the comparison, then the page, then a bound that survives."""
    if record["attack"] is None:
        return again("--attack", without=["--force", "--resume"])
    if record["against"] is None:
        return again("--against", "random-labels", without=["--force", "--resume"])
    if out is None:
        return again(replacing={"--out": "runs/measures"}, without=["--force", "--resume"])
    return shlex.join(["nonvacuous", "certify", "--data", record["data_source"]])
