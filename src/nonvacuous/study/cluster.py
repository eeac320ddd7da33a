"""Cells on a Ray cluster: as tasks of its own, each with its processors and part of a GPU.

joblib can use Ray too, but as a pool: with the first worker that dies, all cells under way are
lost, and machines that join later stay idle. Tasks fail one by one, and Ray finds room for them.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.files import create_once, write_atomically
from nonvacuous.progress import stopped_by_term
from nonvacuous.study.folder import ERROR, RESULT
from nonvacuous.study.worker import Outcome, Task, run_cell

Files = dict[str, bytes]
#: Tasks under way at once, for each processor of the cluster and at least.
_AHEAD, _LEAST = 4, 64
#: Seconds that machines may take to join a cluster that was just started.
_JOINING = 30.0
#: Seconds for which the head may be silent, as when a network stumbles.
_SILENCE = 5.0
#: What shells report for a program stopped with the signal TERM.
_TERMINATED = 143


class RayEngine:
    """A cluster that exists (``address``), or one that Ray starts on this machine."""

    name = "ray"

    def __init__(
        self,
        *,
        address: str | None = None,
        jobs: int | None = None,
        threads: int = 1,
        gpus_per_task: float = 0.0,
    ) -> None:
        self.ray = _ray()
        self.jobs, self.gpus = jobs, gpus_per_task
        self._markers: set[Path] = set()
        _connect(self.ray, address)
        self._head = _Head(str(self.ray.get_runtime_context().gcs_address))
        self._remote = self.ray.remote(run_anywhere).options(
            num_cpus=threads, num_gpus=gpus_per_task, max_retries=0
        )
        self._check_resources(threads, gpus_per_task)

    def equip(self, task: Task, folder: Path) -> Task:
        """Leave a mark by which workers know whether they see this very folder."""
        marker = folder / f".session.{task.claim.session}"
        if marker not in self._markers:
            marker.touch()
            self._markers.add(marker)
        return replace(task, hide_gpus=not self.gpus, progress=None)

    def run(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """Compute all, in any order, a bounded number under way at once."""
        ahead = self.jobs or max(_LEAST, _AHEAD * int(self.ray.cluster_resources().get("CPU", 1)))
        waiting = iter(tasks)
        running: dict[Any, Task] = {}
        while True:
            while len(running) < ahead and (task := next(waiting, None)) is not None:
                running[self._remote.remote(task)] = task
            if not running:
                return
            ready, _ = self.ray.wait(list(running), num_returns=1, timeout=1.0)
            self._head.check()
            for reference in ready:
                yield self._result(reference, running.pop(reference))

    def run_alone(self, task: Task) -> Outcome:
        """Ray's tasks are alone in their process anyway."""
        return next(self.run([task]))

    def close(self, *, kill: bool = False) -> None:
        """Leave the cluster: Ray ends the tasks of a driver that goes."""
        for marker in self._markers:
            marker.unlink(missing_ok=True)
        if self._head.answers():
            self.ray.shutdown()
        else:  # saying goodbye to nobody, or reporting the error to it, takes Ray minutes
            atexit.unregister(self.ray.shutdown)
            sys.excepthook = sys.__excepthook__

    def _result(self, reference: Any, task: Task) -> Outcome:
        errors = self.ray.exceptions
        try:
            outcome: Outcome
            outcome, files = self.ray.get(reference)
        except errors.RayTaskError as error:
            raise BadInput(
                f"a worker of the cluster cannot compute cells: {str(error).strip()[-300:]} Is the "
                "same version of nonvacuous installed on every machine?"
            ) from error
        except errors.RayError:
            return Outcome(task.cell.digest, "lost")
        if files is not None:
            deposit(Path(task.folder), files)
        return outcome

    def _check_resources(self, threads: int, gpus: float) -> None:
        """Ray would wait forever for a machine that is large enough; one may be about to join."""
        until = time.monotonic() + _JOINING
        while True:
            nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
            if any(n.get("CPU", 0) >= threads and n.get("GPU", 0) >= gpus for n in nodes):
                return
            if time.monotonic() > until:
                break
            time.sleep(0.5)
        listed = "; ".join(f"{n.get('CPU', 0):g} and {n.get('GPU', 0):g}" for n in nodes)
        self.ray.shutdown()
        raise BadInput(
            f"no machine of the cluster has {threads} processor(s) and {gpus:g} GPU(s) for a cell; "
            f"processors and GPUs of its machines: {listed}. Start workers that have them, or ask "
            "for less."
        )


class _Head:
    """The machine that keeps the cluster together: without it Ray waits in silence."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._at = (host.strip("[]"), int(port))
        self._silent_since: float | None = None

    def answers(self) -> bool:
        try:
            socket.create_connection(self._at, timeout=1.0).close()
        except OSError:
            return False
        return True

    def check(self) -> None:
        """Raise where it has not answered for a few seconds."""
        if self.answers():
            self._silent_since = None
            return
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        if now - self._silent_since >= _SILENCE:
            raise BadInput(
                f"the head of the Ray cluster, {':'.join(map(str, self._at))}, does not answer "
                "any more: it has died or cannot be reached. What was finished is kept; start a "
                "cluster again and repeat the command, and it goes on from there."
            )


def run_anywhere(task: Task) -> tuple[Outcome, Files | None]:
    """Compute a cell where its folder is, or else in a folder of this machine and send the files.

    A cell that was sent begins anew if it is killed: its checkpoints went with the machine.
    """
    folder = Path(task.folder)
    with _being_stopped_is_no_failure():
        if (folder.parents[1] / f".session.{task.claim.session}").exists():
            return run_cell(task), None
        with tempfile.TemporaryDirectory(prefix="nonvacuous-") as here:
            own = Path(here) / "sweep" / folder.parent.name / folder.name
            outcome = run_cell(replace(task, folder=str(own)))
            paths = [path for path in sorted(own.rglob("*")) if path.is_file()]
            return outcome, {path.relative_to(own).as_posix(): path.read_bytes() for path in paths}


class _Stopped(BaseException):
    """The signal TERM: this worker is to end. No cell may catch it by catching its own errors."""


@contextmanager
def _being_stopped_is_no_failure() -> Iterator[None]:
    """Let a cell go without a record when Ray ends its worker, as it does when a driver dies.

    Ray raises SystemExit in whatever runs, which looks like a cell that calls sys.exit. Ours passes
    through the cell, the lock is let go, and then the process ends: the cell is computed elsewhere.
    """
    try:
        with stopped_by_term(_Stopped):
            yield
    except (_Stopped, KeyboardInterrupt):
        raise SystemExit(_TERMINATED) from None


def deposit(folder: Path, files: Files) -> None:
    """Write the files of a cell that was computed elsewhere; what says that it ended comes last."""
    for name in sorted(files, key=lambda name: (name in (RESULT, ERROR), name)):
        if name == RESULT:
            create_once(folder / name, files[name], durable=True)
        else:
            write_atomically(folder / name, files[name])


def _ray() -> Any:
    # Nothing is reported to anybody unless the user has asked for it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Who hides GPUs from cells that were promised none: we, as the local engine does.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise Unsupported(
            "--engine ray needs the package ray. Install it with pip install 'nonvacuous[ray]', or "
            "leave --engine out to compute on this machine."
        ) from error
    return ray


def _connect(ray: Any, address: str | None) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = f"no Ray cluster answers at {address}"
        if address is None:
            where = "Ray cannot be started on this machine"
        raise BadInput(
            f"{where}: {' '.join(str(error).split())[:300]} Start one with `ray start --head` and "
            "give its address with --address. A cluster that asks for a token, as Ray's do by "
            "default, needs RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH here."
        ) from error
