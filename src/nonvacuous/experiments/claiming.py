"""One folder, one experiment: whoever computes into a folder first finds out what is in it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically

SETTINGS = "settings.json"


def claim_folder(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    results: Sequence[str],
    resume: bool,
    force: bool,
    may_change: Collection[str] = (),
) -> None:
    """Write the settings into the folder, or find the same ones there.

    results      patterns of the files that were computed with the settings; with ``force`` they go
    may_change   settings that may differ from one call to the next
    """
    # As they will be read back: lists, not tuples.
    wanted = json.loads(json.dumps(settings))
    path = folder / SETTINGS
    known = path.is_file()
    if known and not force:
        if not resume:
            raise BadInput(
                f"{folder} holds a reproduction already: go on with it (resume), overwrite it "
                "(force), or name another folder"
            )
        stored = json.loads(path.read_text(encoding="utf-8"))
        changed = sorted(
            name
            for name in (wanted.keys() | stored.keys()) - set(may_change)
            if wanted.get(name) != stored.get(name)
        )
        if changed:
            raise BadInput(
                f"{folder} holds a reproduction with other settings ({', '.join(changed)}); name "
                "another folder, or overwrite it (force)"
            )
    old = [file for pattern in results for file in folder.glob(pattern)]
    if old and not known and not force:
        raise BadInput(
            f"{folder} holds results, such as {old[0].name}, but not the settings they were "
            "computed with; overwrite them (force), or name another folder"
        )
    if force:
        for file in old:
            file.unlink()
    write_record(path, wanted)


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """A record as JSON, whole or not at all."""
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda stream: stream.write(text.encode()))
