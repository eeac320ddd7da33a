"""What a cell leaves in its run folder when it has ended: result.json or error.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nonvacuous.errors import BadInput
from nonvacuous.files import inside
from nonvacuous.foreign import read_json

FORMAT = "nonvacuous-cell/1"
SWEEP_FORMAT = "nonvacuous-sweep/1"
RESULT, ERROR, SWEEP, CELLS = "result.json", "error.json", "sweep.json", "cells"
LOG = "log.txt"
#: Names with a dot in front: what a run finds in its folder when it begins or goes on.
HIDDEN_ERROR, HIDDEN_LOG = ".error.json", ".log"

State = Literal["done", "failed", "running", "unfinished", "waiting"]


def ending(folder: Path) -> dict[str, Any] | None:
    """How a cell has ended: its record, with ``state`` "done" or "failed"; None while it has not.

    A result counts before an error: an earlier attempt may have left one.
    """
    return read_record(folder / RESULT) or read_record(folder / ERROR)


def read_record(path: Path) -> dict[str, Any] | None:
    """The record of a cell, or None where the file is absent, broken or somebody else's."""
    try:
        record = read_json(inside(path.parent, path.name))
    except BadInput:
        return None
    return record if isinstance(record, dict) and _is_whole(record) else None


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether everything is there that those who read records rely on."""
    if record.get("format") == SWEEP_FORMAT:
        cells = record.get("cells")
        return isinstance(record.get("run"), str) and (
            isinstance(cells, list) and all(isinstance(c, dict) and _is_cell(c) for c in cells)
        )
    failed = record.get("state") == "failed" and isinstance(record.get("error"), dict)
    ended = failed or record.get("state") == "done"
    return record.get("format") == FORMAT and _is_cell(record) and ended


def _is_cell(record: dict[str, Any]) -> bool:
    # A name with a path in it would lead out of the folder.
    name = record.get("name", "cell")
    return (
        isinstance(name, str)
        and name == os.path.basename(name)
        and name not in ("", ".", "..")
        and isinstance(record.get("settings"), dict)
        and isinstance(record.get("seed"), int | None)
    )


def to_json(record: Mapping[str, Any]) -> bytes:
    """The bytes of a record."""
    return (json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()
