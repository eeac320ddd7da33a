"""Run folders as the commands find them: whose is this folder, and may it be written to?"""

from __future__ import annotations

import tomllib
from pathlib import Path

from nonvacuous.cli.exits import UsageError
from nonvacuous.cli.invocation import again

#: Keys that the record of a run has and hardly another config.toml.
_MARKS = {"mode", "predictor", "split", "examples", "recipe"}


def holds_run(folder: Path) -> bool:
    """Whether the folder's config.toml is the record of a run, finished or not."""
    try:
        record = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return record.keys() >= _MARKS


def check_writable(folder: Path, *, resume: bool, force: bool) -> None:
    """Raise a usage error unless a run may begin or go on in this folder."""
    if holds_run(folder):
        if resume or force:
            return
        raise UsageError(
            f"{folder} holds a run already. Add --resume to go on with it (or to see its "
            "certificate again), --force to overwrite it, or --out to name another folder.",
            next_command=again("--resume"),
        )
    # Names with a dot in front: files that a kill left half written, and the system's own.
    if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        raise UsageError(
            f"{folder} is not empty and holds no run: files there could be overwritten, and "
            "--force overwrites runs only. Name another folder with --out.",
            next_command=again(replacing={"--out": str(folder / "run")}),
        )
