"""Run folders as the commands find them: whose is this folder, and may it be written to?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nonvacuous.cli.exits import UsageError, again
from nonvacuous.foreign import holds_run, run_settings


def check_writable(
    folder: Path, *, resume: bool, force: bool, asked: Mapping[str, Any] | None = None
) -> None:
    """Raise a usage error unless a run may begin or go on in this folder.

    asked   settings of the new run by their names in config.toml: where one differs, going on with
            the run in the folder is no way out
    """
    if holds_run(folder):
        if resume or force:
            return
        other = _other_settings(folder, asked or {})
        if other:
            raise UsageError(
                f"{folder} holds a run with other settings already ({', '.join(other)}). Add "
                "--force to overwrite it, or --out to name another folder.",
                next_command=instead_of(folder),
            )
        raise UsageError(
            f"{folder} holds a run already. Add --resume to go on with it (or to see its "
            "certificate again), --force to overwrite it, or --out to name another folder.",
            next_command=again("--resume"),
        )
    if resume and not in_use(folder):
        raise UsageError(
            f"--resume: there is no run to go on with in {folder}. Check --out, or leave --resume "
            "out to begin one there.",
            next_command=again(without=["--resume"]),
        )
    if in_use(folder):
        raise UsageError(
            f"{folder} is not empty and holds no run: files there could be overwritten, and "
            "--force overwrites runs only. Name another folder with --out.",
            next_command=again(replacing={"--out": str(folder / "run")}),
        )


def instead_of(path: Path, flag: str = "--out") -> str:
    """The same command with an output of its own where one is in the way: nothing is lost."""
    stem, suffix = (path.stem, path.suffix) if path.is_file() else (path.name, "")
    names = (path.with_name(f"{stem}-{number}{suffix}") for number in range(2, 1_000))
    free = next(name for name in names if not name.exists())
    return again(without=["--resume"], replacing={flag: str(free)})


def in_use(folder: Path) -> bool:
    """Whether files of any kind are there.

    Not those with a dot in front: what a kill left half written, and the system's own.
    """
    return folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir())


def _other_settings(folder: Path, asked: Mapping[str, Any]) -> list[str]:
    """The names of settings that the run in the folder has otherwise."""
    from nonvacuous.certification.run_folder import flat, to_toml

    stored = flat(run_settings(folder))
    now = flat(tomllib.loads(to_toml(asked)))
    return [name for name in flat(asked) if stored.get(name) != now.get(name)]
