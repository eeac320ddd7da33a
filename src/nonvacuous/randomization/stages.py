"""The finished parts of a study on disk: a kill loses at most the part that was being computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically

SETTINGS = "settings.json"
_PARTS = "parts"


class Stages:
    """A folder of parts, each one JSON file. ``Stages(None)`` keeps nothing."""

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = None if folder is None else Path(folder)

    def open(self, record: Mapping[str, Any], *, resume: bool, force: bool) -> None:
        """Claim the folder for a study with these settings, or find it claimed by the same one."""
        if self.folder is None:
            return
        place = self.folder / SETTINGS
        text = json.dumps(record, indent=2, sort_keys=True, allow_nan=False) + "\n"
        if place.is_file() and not force:
            if not resume:
                raise BadInput(
                    f"{self.folder} holds a study already. Go on with it (resume), overwrite it "
                    "(force), or name another folder."
                )
            stored = json.loads(place.read_text(encoding="utf-8"))
            now = json.loads(text)
            changed = sorted(
                key for key in stored.keys() | now.keys() if stored.get(key) != now.get(key)
            )
            if changed:
                raise BadInput(
                    f"{self.folder} holds a study with other settings ({', '.join(changed)}). "
                    f"Resume it with those in its {SETTINGS}, or name another folder."
                )
            return
        if force:
            # The result goes first: what is left after a kill must not look finished.
            for old in (self.folder / "study.json", *self._parts(), *self._checkpoints()):
                old.unlink(missing_ok=True)
        write_atomically(place, lambda stream: stream.write(text.encode()))

    def part(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The stored part, or ``compute()`` once and store it."""
        path = None if self.folder is None else self.folder / _PARTS / f"{name}.json"
        if path is not None and path.is_file():
            stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return stored
        record = compute()
        text = json.dumps(record, allow_nan=False)
        if path is not None:
            write_atomically(path, lambda stream: stream.write(text.encode()))
        plain: dict[str, Any] = json.loads(text)
        return plain

    def has(self, name: str) -> bool:
        return self.folder is not None and (self.folder / _PARTS / f"{name}.json").is_file()

    def checkpoint(self, name: str) -> Path | None:
        """Where the training of a part may keep its state."""
        return None if self.folder is None else self.folder / _PARTS / f"{name}.checkpoint"

    def drop_checkpoints(self) -> None:
        """A finished study needs none."""
        for path in self._checkpoints():
            path.unlink(missing_ok=True)

    def _parts(self) -> list[Path]:
        return [] if self.folder is None else sorted((self.folder / _PARTS).glob("*.json"))

    def _checkpoints(self) -> list[Path]:
        return [] if self.folder is None else sorted((self.folder / _PARTS).glob("*.checkpoint*"))
