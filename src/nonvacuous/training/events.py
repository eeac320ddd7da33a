"""The event log of a run: one JSON object per line, only ever appended to.

A checkpoint remembers how long the log was. On resume the log is cut back to that length, so that
no epoch is told twice; a last line torn by a kill is cut off as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.files import open_here
from nonvacuous.foreign import read_bytes

#: Bytes of a log that are read.
_LONGEST = 2**30


class EventLog:
    """Appends events to a file; several phases of one run may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.cut_back(-1)

    def append(self, phase: str, epoch: int, metrics: Mapping[str, Any]) -> None:
        """Add one line with the time, the phase, and the numbers of the epoch that has ended."""
        record = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "phase": phase,
            "event": "epoch",
            "epoch": epoch,
            "metrics": dict(metrics),
        }
        line = json.dumps(record, allow_nan=False) + "\n"
        # One write of whole lines in append mode: a kill tears at most the last line.
        with open_here(self.path, "ab") as file:
            file.write(line.encode())

    def position(self) -> int:
        """The length in bytes, everything before it safely on the disk."""
        if not self.path.exists():
            return 0
        with open_here(self.path, "rb+") as file:
            os.fsync(file.fileno())
            return int(file.seek(0, os.SEEK_END))

    def cut_back(self, position: int) -> None:
        """Forget what was appended after `position` (-1: nothing), and a line torn by a kill."""
        if self.path.exists():
            with open_here(self.path, "rb+") as file:
                file.truncate(file.read(position).rfind(b"\n") + 1)


def read_events(path: Path) -> list[dict[str, Any]]:
    """All events of a log, oldest first. A torn last line is left out."""
    lines = read_bytes(path, longest=_LONGEST).split(b"\n")
    events = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            event = json.loads(line)
            if not isinstance(event, dict):
                raise ValueError("not an event")
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"Line {number} of the event log {path} is not JSON ({error}). Only a last line "
                "can be torn by a kill, so the file was edited or damaged: restore it, or delete "
                "that line."
            ) from error
        events.append(event)
    return events


def tensorboard_writer(folder: Path, *, first_epoch: int = 0) -> Any:
    """A `SummaryWriter` for curves from this epoch on."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise Unsupported(
            "tensorboard= was given, but the package tensorboard is not installed. Install it "
            "with `pip install tensorboard`, or leave tensorboard= out: events.jsonl holds "
            "the same numbers."
        ) from error
    # Epochs after the checkpoint that a run resumes from are shown once, not twice.
    return SummaryWriter(log_dir=str(folder), purge_step=first_epoch or None)
