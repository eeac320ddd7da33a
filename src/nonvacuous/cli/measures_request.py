"""What ``nonvacuous measures`` was asked for, and what of it is done already."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nonvacuous.cli.exits import CommandError, UsageError, again
from nonvacuous.cli.folders import instead_of
from nonvacuous.cli.measures import FILES, UNFINISHED, Flags
from nonvacuous.errors import BadInput
from nonvacuous.measures.registry import Measure, chosen
from nonvacuous.randomization.registry import parse_corruption

#: Where things lie decides nothing.
_NOT_ASKED = frozenset({"data_dir", "out", "resume", "force", "ledger", "json", "listed"})


@dataclass(frozen=True, kw_only=True)
class Request(Flags):
    """The flags of the command, with data and with names one by one."""

    data: str
    only: tuple[str, ...] | None  # type: ignore[assignment]
    without: tuple[str, ...] | None  # type: ignore[assignment]

    @property
    def unfinished(self) -> Path | None:
        """Where what is done so far is kept."""
        return None if self.out is None else self.out / UNFINISHED

    @property
    def asked(self) -> dict[str, Any]:
        """What decides the result."""
        plain = asdict(self)
        for name in ("weights", "initial", "against_weights"):
            plain[name] = None if plain[name] is None else str(plain[name])
        for name in ("only", "without"):
            plain[name] = None if plain[name] is None else list(plain[name])
        return {name: value for name, value in plain.items() if name not in _NOT_ASKED}


def finished(request: Request) -> dict[str, Any] | None:
    """The record of a run that is done already; refused where other things were asked.

    None where a run is still unfinished, also one that is to overwrite an older record.
    """
    assert request.out is not None and request.unfinished is not None
    path = request.out / FILES[1]
    if not path.is_file() or request.unfinished.exists():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        before = record["asked"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"--resume: {path} is not a record of this command ({error}).",
            next_command=instead_of(request.out),
        ) from error
    other = sorted(name for name, value in request.asked.items() if before.get(name) != value)
    if other:
        raise CommandError(
            f"--resume: the run in {request.out} was made with other settings "
            f"({', '.join(other)}).",
            next_command=instead_of(request.out),
        )
    return record


def check_names(
    only: tuple[str, ...] | None, without: tuple[str, ...] | None
) -> tuple[Measure, ...]:
    """The measures that --only and --without leave."""
    for flag, words, remedy in (
        ("--only", only, "paths,norms"),
        ("--without", without, "expensive"),
    ):
        try:
            chosen(words)
        except BadInput as error:
            raise UsageError(
                f"{flag}: {error}.", next_command=again(replacing={flag: remedy})
            ) from error
    try:
        return chosen(only, without)
    except BadInput as error:
        raise UsageError(
            f"{error}.", next_command=again(without=["--without", ",".join(without or ())])
        ) from error


def check_corruption(spec: str) -> None:
    """Refuse a corruption that nobody knows, before any data is read."""
    try:
        parse_corruption(spec)
    except BadInput as error:
        raise UsageError(
            f"--against: {error}", next_command=again(replacing={"--against": "random-labels"})
        ) from error
