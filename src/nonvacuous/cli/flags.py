"""Flags that several commands share: types stricter than the parser's own, and their checks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from cyclopts import App, Parameter, Token
from cyclopts.argument import ArgumentCollection, update_argument_collection

from nonvacuous.bounds import checks
from nonvacuous.cli.exits import CommandError, UsageError, as_usage
from nonvacuous.foreign import read_toml, run_settings


def whole_number(_type: Any, tokens: Sequence[Token]) -> int:
    """Digits only, with optional underscores: 10000.7 examples is a mistake, not 10001 examples."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def dashed(name: str) -> str:
    return "--" + name.replace("_", "-")


def typed(annotation: Any) -> Any:
    """The type that the words of a flag are read as: that of its setting, without None or checks.

    >>> typed(Annotated[int, "positive"] | None)
    <class 'int'>
    """
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return str if annotation is Any else annotation


def left_open(setting: Any, default: Any, **words: Any) -> Any:
    """The flag of a setting of this type: None where it is not given, but its default is shown."""
    kind = typed(setting)
    parameter = Parameter(
        negative=None if kind is bool and default is not False else (),
        show_default=str(default) not in ("None", "False", "") and (lambda _not_given: default),
        consume_multiple=get_origin(kind) is tuple or None,
        converter=whole_number if kind is int else None,
        **words,
    )
    return Annotated[kind | None, parameter]


WholeNumber = Annotated[int, Parameter(converter=whole_number)]
OptionalWholeNumber = Annotated[int | None, Parameter(converter=whole_number)]
#: A flag that is off unless it is given; its help need not say so.
SWITCH = Parameter(negative=(), show_default=False)
#: A flag that may be given several times.
Repeated = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]
Ledger = Annotated[
    Path | None,
    Parameter(
        name="--ledger",
        help="The file that remembers all bounds on the same examples; attempts.jsonl beside the "
        "folder of the results, or in runs/, by default.",
    ),
]
DataDir = Annotated[
    Path | None,
    Parameter(
        help="Folder that contains mnist/, fashion-mnist/ and cifar10/; else the variable "
        "NONVACUOUS_DATA."
    ),
]
Json = Annotated[bool, SWITCH, Parameter(name="--json", help="Print one JSON object, not text.")]


def failure_of(confidence: float) -> float:
    """One minus the confidence, as a decimal."""
    with as_usage("--"):
        return checks.failure_of(confidence)


def check_counts(given: Mapping[str, tuple[int | None, int]]) -> None:
    """Whole numbers by flag, each with its least value; None where the flag was not given."""
    with as_usage():
        for flag, (value, least) in given.items():
            if value is not None:
                checks.count(flag, value, minimum=least)


def device_of(name: str) -> str:
    """Where --device says to compute; auto is what there is."""
    import torch

    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise CommandError(
            "--device cuda: torch sees no CUDA device here (is the driver installed, and a build "
            "of torch with CUDA?).",
            instead={"--device": "cpu"},
        )
    return "cuda" if there and name != "cpu" else "cpu"


def check_writable(
    folder: Path, kind: str, *, begun: bool, resume: bool, force: bool, other: Sequence[str] = ()
) -> None:
    """Raise a usage error unless a run, a study or a reproduction may begin or go on here.

    begun   whether the folder holds one; other   its settings that are not those asked for: going
    on with it is no way out then
    """
    if begun and not (resume or force):
        if other:
            raise UsageError(
                f"{folder} holds a {kind} with other settings already ({', '.join(other)}). Add "
                "--force to overwrite it, or --out to name another folder.",
                instead=instead_of(folder),
            )
        seen = "(or to see its certificate again)" if kind == "run" else "or to see it again"
        raise UsageError(
            f"{folder} holds a {kind} already. Add --resume to go on with it {seen}, --force to "
            "overwrite it, or --out to name another folder.",
            instead={"--resume": None},
        )
    if not begun and in_use(folder):
        raise UsageError(
            f"{folder} is not empty and holds no {kind}: files there could be overwritten, and "
            f"--force overwrites a {kind} only. Name another folder with --out.",
            instead={"--out": str(folder / kind)},
        )


def check_one_of(kind: str, *, resume: bool, force: bool) -> None:
    if resume and force:
        raise UsageError(
            f"--resume goes on with a {kind} and --force overwrites it: give one of them."
        )


def check_free(file: Path | None, flag: str, *, force: bool) -> None:
    """Raise a usage error where the file that a flag names would be overwritten."""
    if file is not None and file.exists() and not force:
        raise UsageError(
            f"{flag}: {file} exists already. Name another file, or add --force to overwrite it.",
            instead=instead_of(file, flag),
        )


def instead_of(path: Path, flag: str = "--out") -> dict[str, str | tuple[str, ...] | None]:
    """Flags that give the command an output of its own where one is in the way: nothing is lost."""
    stem, suffix = (path.stem, path.suffix) if path.is_file() else (path.name, "")
    names = (path.with_name(f"{stem}-{number}{suffix}") for number in range(2, 1_000))
    free = next(name for name in names if not name.exists())
    return {"--resume": "", flag: str(free)}


def in_use(folder: Path) -> bool:
    """Whether files of any kind are there.

    Not those with a dot in front: what a kill left half written, and the system's own.
    """
    return folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir())


def other_settings(folder: Path, asked: Mapping[str, Any]) -> list[str]:
    """The names of settings that the run in the folder has otherwise."""
    from nonvacuous.certification.run_folder import CONFIG, flat

    stored, now = flat(run_settings(folder)), CONFIG.read(CONFIG.write(asked))
    return [name for name in flat(asked) if stored.get(name) != now.get(name)]


PREFIX = "NONVACUOUS_"
#: Flags decided anew each time: a variable set long ago must not overwrite or resume a run.
DECIDED_ANEW = ("--force", "--resume")
#: NONVACUOUS_DATA names the folder of the data sets, as it does for the library; and a variable is
#: the wrong place for what the command is about.
_VARIABLES = {"--data-dir": "NONVACUOUS_DATA", "--data": None}


def variable_of(flag: str) -> str | None:
    """The environment variable behind a flag, or None if there is none.

    >>> variable_of("--prior-scale"), variable_of("--data-dir"), variable_of("--force")
    ('NONVACUOUS_PRIOR_SCALE', 'NONVACUOUS_DATA', None)
    """
    if flag in DECIDED_ANEW:
        return None
    return _VARIABLES.get(flag, PREFIX + flag.removeprefix("--").upper().replace("-", "_"))


def from_environment(_app: App, _commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill in what was not given as a flag from NONVACUOUS_... variables."""
    for argument in arguments:
        variable = variable_of(argument.name) or ""
        value = os.environ.get(variable)
        if argument.tokens or not value:
            continue
        several = argument.token_count()[1]
        for index, part in enumerate(value.replace(",", " ").split() if several else [value]):
            argument.append(Token(keyword=variable, value=part, source="environment", index=index))


def from_toml(_app: App, _commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill in what neither flags nor environment gave from the file named by --config."""
    named = [argument for argument in arguments if argument.name.startswith("--")]
    known = {argument.name.removeprefix("--"): argument for argument in named}
    if "config" not in known or not known["config"].tokens:
        return
    path = Path(known["config"].tokens[-1].value).expanduser()
    with as_usage("--config: "):
        record = read_toml(path)
    for key in record:
        flag = key.replace("_", "-")
        if f"--{flag}" in DECIDED_ANEW or flag == "config":
            raise UsageError(f"{path}: {key} can only be given on the command line; remove it.")
        if flag not in known:
            hint = ""
            if {"examples", "split", "weights"} <= record.keys():
                hint = " This is the record that a run keeps of itself, not a file for --config."
            raise UsageError(
                f"{path}: there is no setting {key!r}; the settings are the flags of the command "
                f"without the dashes: {', '.join(sorted(known))}.{hint}"
            )
    update_argument_collection(record, str(path), arguments, root_keys=(), allow_unknown=False)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NetworkFlags:
    """The network that a command looks at, by the inputs that it takes.

    Args:
        model: mlp:WIDTHS, cnn:CHANNELS or cnn:CHANNELS/WIDTHS; or package.module:function, called
            without arguments, returning a torch.nn.Module (the current folder is searched too).
        data: The data set whose inputs the network takes: digits, mnist, ... as for certify. With
            it, rescale shows bounds too.
        example: Instead of --data: the sizes of one input, such as 1,28,28 (int:20 for whole
            numbers).
        classes: With --example and a built-in model: its number of classes.
        seed: Everything random follows from it, initial weights included.
    """

    model: str
    data: str | None = None
    data_dir: DataDir = None
    example: str | None = None
    classes: WholeNumber = 10
    seed: WholeNumber = 0

    def named(self, weights: Path | None) -> dict[str, Any]:
        """The flags that name this network once more, with these weights."""
        asked = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        given = {name: value for name, (value, usual) in asked.items() if value != usual}
        return {**given, "weights": weights}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Noise:
    """The posterior and the prior that a gauge is chosen for.

    Args:
        sigma: Standard deviation of the noise (the posterior).
        tau: Standard deviation of the prior.
        trials: With --data: random pairs of an example and a draw of the weights for each bound.
    """

    sigma: float = 0.03
    tau: float = 1.0
    trials: WholeNumber = 10_000
