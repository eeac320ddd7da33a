"""One cell from beginning to end, in whatever process the engine chose.

A cell may be begun more than once (its process was killed) but ends once: result.json or error.json
appears whole, or not at all, and nobody begins a cell that has one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from nonvacuous.errors import BadInput
from nonvacuous.files import create_once, open_here, write_atomically
from nonvacuous.locks import Claim, Lock, machine, owner
from nonvacuous.progress import Progress
from nonvacuous.study.folder import ERROR, FORMAT, RESULT, ending, to_json
from nonvacuous.study.functions import call
from nonvacuous.study.sweep import Cell

LOG = "log.txt"
#: Names with a dot in front: what a run finds in its folder when it begins or goes on.
_HIDDEN_ERROR, _HIDDEN_LOG = ".error.json", ".log"


@dataclass(frozen=True)
class GpuShare:
    """folder: where processes agree on who has which share; each share is a list of devices."""

    folder: str
    shares: tuple[str, ...]


def shares_of(devices: Sequence[str], gpus_per_task: float) -> tuple[str, ...]:
    """The devices that each process sees, for as many processes as fit at once.

    >>> shares_of(["0", "1"], 0.5), shares_of(["0", "1", "2"], 1), shares_of(["0", "1"], 2)
    (('0', '0', '1', '1'), ('0', '1', '2'), ('0,1',))
    """
    if not devices:
        raise BadInput("--gpus-per-task was given, but this machine has no GPU that torch sees.")
    if gpus_per_task < 1.0:
        each = int(1.0 / gpus_per_task + 1e-9)
        return tuple(device for device in devices for _ in range(each))
    whole = int(gpus_per_task)
    if whole != gpus_per_task:
        raise BadInput(f"--gpus-per-task {gpus_per_task:g}: give a part of one GPU, or whole ones.")
    starts = range(0, len(devices) - whole + 1, whole)
    shares = tuple(",".join(devices[start : start + whole]) for start in starts)
    if not shares:
        raise BadInput(f"--gpus-per-task {whole}: this machine has {len(devices)} GPU(s).")
    return shares


def visible_devices() -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [device.strip() for device in named.split(",") if device.strip()]
    return [str(number) for number in range(torch.cuda.device_count())]


_taken: dict[tuple[int, str], Lock] = {}


def take_share(share: GpuShare, claim: Claim) -> None:
    """Show this process its share of the GPUs, before torch looks for them."""
    key = (os.getpid(), claim.session)
    if key in _taken:
        return
    for number, devices in enumerate(share.shares):
        lock = Lock.take(Path(share.folder) / str(number), claim)
        if lock is not None:
            # Held until the process ends: a dead owner's lock counts for nothing.
            _taken[key] = lock
            os.environ["CUDA_VISIBLE_DEVICES"] = devices
            return
    raise BadInput(
        f"all {len(share.shares)} shares of the GPUs are taken; start fewer jobs (--jobs)."
    )


@dataclass(frozen=True)
class Task:
    """A cell as it is sent to a worker.

    function     what to call; ``cell.run`` is how the user calls it
    folder       the run folder of the cell
    claim        in whose name its lock is taken
    retry        compute it again if it has failed in another session
    here         the folder that the driver was started in: relative paths begin there
    variables    environment variables that the worker takes over where it has none of its own
    driver       (machine, process) of the driver where it is the worker's parent
    share        the part of this machine's GPUs that a worker may use; None: as it finds them
    hide_gpus    the cell sees no GPU: it was promised none
    given        what the function may use but does not depend on
    progress     for a cell that is computed in the driver itself
    """

    cell: Cell
    function: str
    folder: str
    claim: Claim
    retry: bool = False
    here: str = "."
    variables: Mapping[str, str] = field(default_factory=dict)
    driver: tuple[str, int] | None = None
    share: GpuShare | None = None
    hide_gpus: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    ``busy``: another living process works on it; ``lost``: its own process died.
    """

    digest: str
    state: Literal["done", "failed", "busy", "lost"]
    message: str = ""


def run_cell(task: Task) -> Outcome:
    """Compute one cell unless it has ended or somebody works on it."""
    _leave_with_the_driver(task)
    if task.share is not None:
        take_share(task.share, task.claim)
    folder = Path(task.folder)
    ended = _ended(task, folder)
    if ended is not None and owner(folder) is None:
        return ended
    lock = Lock.take(folder, task.claim)
    if ended is not None:
        # Its process was killed with the result written and the lock still there.
        with lock or contextlib.nullcontext():
            return ended
    if lock is None:
        return Outcome(task.cell.digest, "busy")
    with lock:
        # It may have ended between the first look and the lock.
        return _ended(task, folder) or _compute(task, folder, lock)


def _ended(task: Task, folder: Path) -> Outcome | None:
    record = ending(folder)
    if record is None:
        return None
    if record["state"] == "done":
        return Outcome(task.cell.digest, "done")
    if task.retry and record.get("session") != task.claim.session:
        return None
    return Outcome(task.cell.digest, "failed", str(record["error"].get("message")))


def _compute(task: Task, folder: Path, lock: Lock) -> Outcome:
    # Hide what an earlier attempt left: a run begins or goes on in a folder of its own files.
    for shown, hidden in ((ERROR, _HIDDEN_ERROR), (LOG, _HIDDEN_LOG)):
        with contextlib.suppress(FileNotFoundError):
            os.replace(folder / shown, folder / hidden)
    started, begun = datetime.now(UTC), time.monotonic()
    record: dict[str, Any] = {
        "format": FORMAT,
        **task.cell.to_dict(),
        "session": task.claim.session,
        "host": socket.gethostname(),
        # One more than the processes that were killed while they computed it.
        "begun": lock.number,
        "started": started.isoformat(timespec="milliseconds"),
    }
    trouble: dict[str, str] | None = None
    result: Mapping[str, Any] = {}
    with _surroundings(task), _logged(folder):
        try:
            given = {**task.given, "progress": task.progress}
            result = call(task.function, task.cell, folder.absolute(), given)
        except (Exception, SystemExit) as error:
            trouble = _described(error)
    record["seconds"] = round(time.monotonic() - begun, 6)
    if trouble is not None:
        publish_failure(folder, record, trouble)
        return Outcome(task.cell.digest, "failed", trouble["message"])
    content = to_json({**record, "state": "done", "result": result})
    create_once(folder / RESULT, content, durable=True)
    return Outcome(task.cell.digest, "done")


def publish_failure(folder: Path, record: Mapping[str, Any], error: Mapping[str, Any]) -> None:
    write_atomically(folder / ERROR, to_json({**record, "state": "failed", "error": error}))


def _described(error: BaseException) -> dict[str, Any]:
    kind = type(error).__name__
    return {
        "type": kind,
        "message": " ".join(str(error).split()) or kind,
        "instead": getattr(error, "instead", {}),
        "traceback": "".join(traceback.format_exception(error)),
    }


@contextlib.contextmanager
def _logged(folder: Path) -> Iterator[None]:
    """What the cell prints goes to a file: many of them share one terminal.

    The file gets its name when the cell has ended; an empty one is none.
    """
    hidden = folder / _HIDDEN_LOG
    with (
        open_here(hidden, "a", encoding="utf-8", errors="replace", buffering=1) as stream,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        yield
    with contextlib.suppress(FileNotFoundError):
        if hidden.stat().st_size:
            os.replace(hidden, folder / LOG)
        else:
            hidden.unlink()


@contextlib.contextmanager
def _surroundings(task: Task) -> Iterator[None]:
    """The driver's folder and variables, where the worker has none of its own."""
    changes = {name: value for name, value in task.variables.items() if name not in os.environ}
    if task.hide_gpus:
        changes["CUDA_VISIBLE_DEVICES"] = ""
    # On another machine of a cluster the folder may not exist; absolute paths work all the same.
    there = contextlib.chdir(task.here) if os.path.isdir(task.here) else contextlib.nullcontext()
    with there, environment(changes):
        yield


@contextlib.contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Within this block variables have these values; None: they are not there."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set(changes)
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _leave_with_the_driver(task: Task) -> None:
    """End a process whose driver was killed: what is queued belongs to the next driver."""
    if task.driver is None:
        return
    where, process = task.driver
    if where == machine() and process not in (os.getpid(), os.getppid()):
        os._exit(0)
