"""The folder of a sweep: sweep.json with all its cells, and one run folder for each in cells/."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from nonvacuous.errors import BadInput
from nonvacuous.files import inside, write_atomically
from nonvacuous.foreign import read_json
from nonvacuous.locks import is_held
from nonvacuous.study.sweep import Cell, Sweep

FORMAT = "nonvacuous-cell/1"
SWEEP_FORMAT = "nonvacuous-sweep/1"
RESULT, ERROR, SWEEP, CELLS = "result.json", "error.json", "sweep.json", "cells"

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
            isinstance(cells, list)
            and all(isinstance(c, dict) and "name" in c and _is_cell(c) for c in cells)
        )
    failed = record.get("state") == "failed" and isinstance(record.get("error"), dict)
    done = record.get("state") == "done" and isinstance(record.get("result"), dict | None)
    return record.get("format") == FORMAT and _is_cell(record) and (failed or done)


def _is_cell(record: dict[str, Any]) -> bool:
    # A name with a path in it would lead out of the folder.
    name = record.get("name", "cell")
    return (
        isinstance(name, str)
        and name == os.path.basename(name)
        and name not in ("", ".", "..")
        and isinstance(record.get("settings"), dict)
        and isinstance(record.get("seed", "missing"), int | None)
    )


def state_of(folder: Path, record: Mapping[str, Any] | None) -> State:
    """How far a cell is; ``record`` is that of its ending."""
    if record is not None:
        return "done" if record["state"] == "done" else "failed"
    if not folder.is_dir():
        return "waiting"
    return "running" if is_held(folder) else "unfinished"


def to_json(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    # What is no Unicode, as names of files may be, is written as JSON writes it.
    return text.encode(errors="backslashreplace")


class SweepFolder:
    """Where the cells of a sweep are, and which have ended."""

    def __init__(self, path: str | os.PathLike[str], *, claimed: bool = False) -> None:
        """``claimed``: the caller knows that the folder, whatever lies in it, is the sweep's."""
        self.path, self._claimed = Path(path), claimed
        self._names: dict[str, str] = {}

    def open(self, sweep: Sweep) -> None:
        """Begin the sweep here, or find it begun. A grid may grow or shrink between two calls."""
        inside(self.path, CELLS)  # refused before anything is written
        # Looked at before the record: another driver may begin the same sweep in this moment.
        there = os.listdir(self.path) if self.path.is_dir() else []
        if (self.path / SWEEP).exists():
            self._check_same(sweep)
        elif not self._claimed and any(not name.startswith(".") for name in there):
            raise BadInput(
                f"{self.path} is not empty and holds no sweep; name another folder for this one."
            )
        self._look()
        record = {
            "format": SWEEP_FORMAT,
            "name": sweep.name,
            "run": sweep.run,
            "seed": sweep.seed,
            "cells": [{**c.to_dict(), "name": self.of(c).name} for c in sweep.cells],
        }
        # The record comes first: a folder with anything in it has one.
        write_atomically(inside(self.path, SWEEP), to_json(record))
        inside(self.path, CELLS).mkdir(exist_ok=True)

    def states(self, cells: Sequence[Cell]) -> dict[str, State]:
        """The state of each cell, by digest; a sweep that was never begun has them all waiting."""
        self._look()
        return {cell.digest: state_of(self.of(cell), ending(self.of(cell))) for cell in cells}

    def of(self, cell: Cell) -> Path:
        return inside(self.path, CELLS, self._names.get(cell.digest, cell.name))

    def endings(self, cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
        records = ((cell.digest, ending(self.of(cell))) for cell in cells)
        return {digest: record for digest, record in records if record is not None}

    def _look(self) -> None:
        """A cell is known by its digest: what a person reads in its name may be another now."""
        if (self.path / CELLS).is_dir():
            for name in os.listdir(self.path / CELLS):
                self._names[name.rpartition("-")[2]] = name

    def _check_same(self, sweep: Sweep) -> None:
        stored = read_record(self.path / SWEEP)
        if stored is None:
            raise BadInput(
                f"{self.path / SWEEP} cannot be read as the record of a sweep; name another folder."
            )
        if stored["run"] != sweep.run:
            raise BadInput(
                f"{self.path} holds a sweep of {stored['run']}, not of {sweep.run}; name another "
                "folder for this one."
            )
