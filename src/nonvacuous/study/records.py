"""What a cell leaves in its run folder when it has ended: result.json or error.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

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
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or record.get("format") not in (FORMAT, SWEEP_FORMAT):
        return None
    return record


def to_json(record: Mapping[str, Any]) -> bytes:
    """The bytes of a record."""
    return (json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()
