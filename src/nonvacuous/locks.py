"""Who computes in a folder: locks that outlive no process, on one machine or a shared disk.

A lock is a file ``.lock.N`` in the folder; whoever has the highest N has the folder. A lock whose
owner is dead is not removed but topped by ``.lock.N+1``, which only one process can create: two
that find the same dead owner cannot both take over. Whether an owner lives is asked of the system
where it runs on this machine; elsewhere, a lock that was not touched for a minute is dead.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nonvacuous.files import create_once, lives, open_here

_PREFIX = ".lock."
#: Seconds between two touches of a lock, and after how many without one its owner is dead.
_TOUCH, _DEAD = 5.0, 60.0
#: Characters of a lock that are read: ours are much shorter.
_LONGEST = 10_000
#: The thread that holds a lock, by process and folder.
_holders: dict[tuple[int, str], int] = {}


@dataclass(frozen=True)
class Claim:
    """In whose name a lock is taken: the session of a driver, and its attempt at this cell.

    The driver begins another attempt only where it knows that the last one is dead.
    """

    session: str
    attempt: int = 1


class Lock:
    """The lock on one folder, held; a context manager that touches it and lets go at the end."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)

    @classmethod
    def take(cls, folder: Path, claim: Claim) -> Lock | None:
        """The lock, or None where a living process has it."""
        folder.mkdir(parents=True, exist_ok=True)
        numbers = _numbers(folder)
        if numbers and not _is_dead(_file(folder, numbers[-1]), claim):
            return None
        number = numbers[-1] + 1 if numbers else 1
        pid = os.getpid()
        record = {"machine": machine(), "host": socket.gethostname(), "pid": pid}
        record |= {"started": _start_of(pid), "session": claim.session, "attempt": claim.attempt}
        try:
            taken = create_once(_file(folder, number), json.dumps(record).encode())
        except FileNotFoundError:
            return None  # whoever made the folder removed it in this moment
        return cls(folder, number) if taken else None

    def __enter__(self) -> Lock:
        self._thread.start()
        _holders[_key(self.folder)] = threading.get_ident()
        return self

    def __exit__(self, *_error: object) -> None:
        _holders.pop(_key(self.folder), None)
        self._over.set()
        self._thread.join()
        # The highest goes last: as long as any is left, it is this one that counts.
        for number in _numbers(self.folder):
            if number <= self.number:
                with contextlib.suppress(OSError):
                    _file(self.folder, number).unlink()

    def _keep_alive(self) -> None:
        while not self._over.wait(_TOUCH):
            with contextlib.suppress(OSError):
                os.utime(_file(self.folder, self.number))


def owner(folder: Path) -> Mapping[str, Any] | None:
    """What the highest lock in a folder says, or None where there is none."""
    numbers = _numbers(folder)
    return _read(_file(folder, numbers[-1])) if numbers else None


def is_held(folder: Path) -> bool:
    """Whether a living process has the lock on a folder."""
    numbers = _numbers(folder)
    return bool(numbers) and not _is_dead(_file(folder, numbers[-1]), None)


def is_mine(folder: Path) -> bool:
    """Whether the calling thread has the lock on a folder, taken in a ``with`` around the call."""
    return _holders.get(_key(folder)) == threading.get_ident()


def _key(folder: Path) -> tuple[int, str]:
    return os.getpid(), os.path.realpath(folder)


def _numbers(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    numbers = [name[len(_PREFIX) :] for name in names if name.startswith(_PREFIX)]
    return sorted(int(number) for number in numbers if number.isdecimal())


def _file(folder: Path, number: int) -> Path:
    return folder / f"{_PREFIX}{number}"


def _read(path: Path) -> dict[str, Any]:
    try:
        with open_here(path, "r", encoding="utf-8") as stream:
            record = json.loads(stream.read(_LONGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_dead(path: Path, claim: Claim | None) -> bool:
    record = _read(path)
    if (
        claim is not None
        and record.get("session") == claim.session
        and record.get("attempt", claim.attempt) < claim.attempt
    ):
        return True
    if record.get("machine") == machine() and os.name == "posix":
        pid, started = record.get("pid"), record.get("started")
        if not isinstance(pid, int) or not lives(pid):
            return True
        # Numbers of dead processes are given to new ones; the time of the start tells them apart.
        return started is not None and _start_of(pid) not in (started, None)
    # By its absolute value: a lock from the future would be held for good.
    return abs(_age(path)) > _DEAD


def _age(path: Path) -> float:
    """Seconds since the last touch, by the clock of the file system rather than of this machine."""
    probe = path.parent / f".clock.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        touched = path.stat().st_mtime
    except OSError:
        return 0.0  # let go in this moment: whoever asks will ask again
    try:
        probe.touch()
        return probe.stat().st_mtime - touched
    except OSError:
        return time.time() - touched
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def _start_of(pid: int) -> str | None:
    """When a process began, as the system counts; None where the system does not tell.

    A process that has ended but was not collected yet by its parent has no start either.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return None
    return "ended" if fields[0] in "ZX" else fields[19]


@cache
def machine() -> str:
    """What tells this machine, since it was started, and this container from every other."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "|".join(parts)
