"""The folder of a sweep: sweep.json with all its cells, and one run folder for each in cells/."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput
from nonvacuous.files import write_atomically
from nonvacuous.locks import is_held
from nonvacuous.study.cell import Cell
from nonvacuous.study.records import (
    CELLS,
    SWEEP,
    SWEEP_FORMAT,
    State,
    ending,
    read_record,
    to_json,
)
from nonvacuous.study.sweep import Sweep


class SweepFolder:
    """Where the cells of a sweep are, and which have ended."""

    def __init__(self, path: str | os.PathLike[str], *, claimed: bool = False) -> None:
        """``claimed``: the caller knows that the folder, whatever lies in it, is the sweep's."""
        self.path, self._claimed = Path(path), claimed
        self._names: dict[str, str] = {}

    def open(self, sweep: Sweep) -> None:
        """Begin the sweep here, or find it begun. A grid may grow or shrink between two calls."""
        # Looked at before the record: another driver may begin the same sweep in this moment.
        found = os.listdir(self.path) if self.path.is_dir() else []
        if (self.path / SWEEP).exists():
            self._check_same(sweep)
        elif not self._claimed and any(not name.startswith(".") for name in found):
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
        content = to_json(record)
        # The record comes first: a folder with anything in it has one.
        write_atomically(self.path / SWEEP, lambda stream: stream.write(content))
        (self.path / CELLS).mkdir(exist_ok=True)

    def states(self, cells: Sequence[Cell]) -> dict[str, State]:
        """The state of each cell, by digest; a sweep that was never begun has them all waiting."""
        self._look()
        return {cell.digest: self._state(self.of(cell)) for cell in cells}

    def of(self, cell: Cell) -> Path:
        """The run folder of a cell."""
        return self.path / CELLS / self._names.get(cell.digest, cell.name)

    def endings(self, cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
        """The records of those cells that have ended, by digest."""
        found = ((cell.digest, ending(self.of(cell))) for cell in cells)
        return {digest: record for digest, record in found if record is not None}

    def _look(self) -> None:
        """A cell is known by its digest: what a person reads in its name may be another now."""
        if (self.path / CELLS).is_dir():
            for name in os.listdir(self.path / CELLS):
                self._names[name.rpartition("-")[2]] = name

    def _state(self, folder: Path) -> State:
        record = ending(folder)
        if record is not None:
            return "done" if record["state"] == "done" else "failed"
        if not folder.is_dir():
            return "waiting"
        return "running" if is_held(folder) else "unfinished"

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
