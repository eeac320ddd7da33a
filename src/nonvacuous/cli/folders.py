"""Run folders as the commands find them: whose is this folder, and may it be written to?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nonvacuous.cli.exits import UsageError
from nonvacuous.foreign import run_settings


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


def check_free(file: Path, flag: str, *, force: bool) -> None:
    """Raise a usage error where the file that a flag names would be overwritten."""
    if file.exists() and not force:
        raise UsageError(
            f"{flag}: {file} exists already. Name another file, or add --force to overwrite it.",
            instead=instead_of(file, flag),
        )


def instead_of(path: Path, flag: str = "--out") -> dict[str, str | None]:
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
    from nonvacuous.certification.run_folder import flat, to_toml

    stored = flat(run_settings(folder))
    now = flat(tomllib.loads(to_toml(asked)))
    return [name for name in flat(asked) if stored.get(name) != now.get(name)]
