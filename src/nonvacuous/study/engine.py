"""The driver of a sweep: which cells are left, who computes them, and how far it is.

All that matters is in the folder: the driver can be killed at any moment and started again, and two
drivers may even share one sweep. Engines only decide where :func:`run_cell` is called.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nonvacuous.errors import BadInput
from nonvacuous.locks import Claim, Lock, owner
from nonvacuous.progress import Progress, describe_seconds
from nonvacuous.study.folder import FORMAT, SweepFolder
from nonvacuous.study.functions import arguments_of, find_function
from nonvacuous.study.sweep import Cell, Sweep
from nonvacuous.study.worker import Outcome, Task, publish_failure

#: How often the process of one cell may die before the cell counts as failed.
_DEATHS = 3
#: Seconds between two looks at cells that another process computes.
_PATIENCE = 1.0
#: Taken over by workers that do not have them.
_VARIABLES = ("NONVACUOUS_DATA",)


class WorkersLost(Exception):
    """Processes died, and the engine cannot tell on which cell."""


class Engine(Protocol):
    """Where cells are computed."""

    name: str

    def equip(self, task: Task, folder: Path) -> Task:
        """The task with what this engine's workers need to know."""

    def run(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """Compute all, in any order. May raise :class:`WorkersLost`."""

    def run_alone(self, task: Task) -> Outcome:
        """Compute one in a process of its own, so that a death has one culprit."""

    def close(self, *, kill: bool = False) -> None:
        """Let the workers go; at once if told to ``kill``."""


@dataclass(frozen=True)
class Failure:
    """A cell that ended with an error."""

    name: str
    folder: str
    message: str


@dataclass(frozen=True)
class Summary:
    """How a sweep ended.

    done, failed  cells of this sweep in the folder
    computed      how many of these ended in this call; the others had ended before
    """

    name: str
    folder: str
    engine: str
    cells: int
    done: int
    failed: int
    computed: int
    seconds: float
    failures: tuple[Failure, ...]


@dataclass(eq=False)
class Driver:
    """Computes every cell of a sweep that has not ended; :meth:`run` once.

    function       behind ``sweep.run``, where that is not of the form package.module:function
    retry_failed   compute cells again that failed in an earlier call
    given          what functions may use but do not depend on, by the names of parameters
    cell_progress  for the cells themselves, where they are computed in this process
    ended          called for every cell that ends, well or not; what it raises ends the sweep
    say            receives a line for each cell that fails
    """

    sweep: Sweep
    folder: SweepFolder
    engine: Engine
    function: str = ""
    retry_failed: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress | None = None
    cell_progress: Progress | None = None
    ended: Callable[[Cell], None] = lambda _cell: None
    say: Callable[[str], None] = lambda _line: None
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    left: dict[str, Cell] = field(default_factory=dict)
    failed: int = 0
    at_first: int = 0
    deaths: Counter[str] = field(default_factory=Counter)
    begun: float = field(default_factory=time.monotonic)

    def run(self) -> Summary:
        """Compute what is left, and return how all cells ended."""
        # Known before anything is computed: a cell that cannot be.
        self.function = self.function or self.sweep.run
        function = find_function(self.function)
        for cell in self.sweep.cells:
            arguments_of(function, cell, self.folder.path)
        self.folder.open(self.sweep)
        ended = {digest: r["state"] for digest, r in self.folder.endings(self.sweep.cells).items()}
        if self.retry_failed:
            ended = {digest: state for digest, state in ended.items() if state != "failed"}
        self.failed = sum(state == "failed" for state in ended.values())
        self.left = {cell.digest: cell for cell in self.sweep.cells if cell.digest not in ended}
        self.at_first = len(self.left)
        self._report()
        try:
            while self.left:
                self._round()
        finally:
            self.engine.close(kill=bool(self.left))
        return self._summary()

    def _round(self) -> None:
        """Offer all that is left to the engine once."""
        before, busy = len(self.left), 0
        deaths = self.deaths.total()
        try:
            tasks = [self._task(cell) for cell in self.left.values()]
            for outcome in self.engine.run(tasks):
                busy += outcome.state == "busy"
                self._note(outcome)
        except WorkersLost:
            self._find_the_culprit()
            return
        if self.left and busy:
            self._report(f"waiting for {busy} that another process computes")
            time.sleep(_PATIENCE)
        elif self.left and len(self.left) == before and self.deaths.total() == deaths:
            raise BadInput(
                f"the {self.engine.name} engine came back without an answer for {before} cells; "
                "start the same command again."
            )

    def _find_the_culprit(self) -> None:
        """Compute alone what was under way when processes died: only one can be to blame then."""
        ended = self.folder.endings(tuple(self.left.values()))
        suspects = [
            cell
            for digest, cell in self.left.items()
            if ended.get(digest, {}).get("session") != self.session
            and (owner(self.folder.of(cell)) or {}).get("session") == self.session
        ]
        if not suspects:
            self.deaths["nobody"] += 1
            if self.deaths["nobody"] >= _DEATHS:
                raise BadInput(
                    "worker processes die before they begin with a cell: is there enough memory? "
                    "Start the same command again with fewer --jobs."
                )
        for cell in suspects:
            self.deaths[cell.digest] += 1
            while cell.digest in self.left:
                self._note(self.engine.run_alone(self._task(cell)))

    def _task(self, cell: Cell) -> Task:
        task = Task(
            cell=cell,
            function=self.function,
            folder=str(self.folder.of(cell).absolute()),
            claim=Claim(self.session, attempt=1 + self.deaths[cell.digest]),
            retry=self.retry_failed,
            here=os.getcwd(),
            variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
            given=self.given,
            progress=self.cell_progress,
        )
        return self.engine.equip(task, self.folder.path.absolute())

    def _note(self, outcome: Outcome) -> None:
        cell = self.left.get(outcome.digest)
        if cell is None or outcome.state == "busy":
            return
        if outcome.state == "lost":
            self.deaths[cell.digest] += 1
            if self.deaths[cell.digest] < _DEATHS:
                return
            outcome = self._bury(cell)
            if outcome.state == "busy":
                return
        del self.left[cell.digest]
        if outcome.state == "failed":
            self.failed += 1
            self.say(f"failed: {self.folder.of(cell).name}: {outcome.message}")
        self.ended(cell)
        self._report()

    def _bury(self, cell: Cell) -> Outcome:
        message = (
            f"the process that computed it was killed {_DEATHS} times; did the machine run out of "
            "memory?"
        )
        folder = self.folder.of(cell)
        lock = Lock.take(folder, Claim(self.session, attempt=1 + self.deaths[cell.digest]))
        if lock is None:
            return Outcome(cell.digest, "busy")
        record = {"format": FORMAT, **cell.to_dict(), "session": self.session, "seconds": None}
        with lock:
            trouble = {"type": "Killed", "message": message, "traceback": ""}
            publish_failure(folder, record, trouble)
        return Outcome(cell.digest, "failed", message)

    def _report(self, message: str = "") -> None:
        if self.progress is None:
            return
        total, computed = len(self.sweep.cells), self.at_first - len(self.left)
        if not message and computed and self.left:
            seconds = (time.monotonic() - self.begun) / computed * len(self.left)
            message = f"about {describe_seconds(seconds)} left"
        parts = (f"{self.failed} failed" if self.failed else "", message)
        self.progress("sweep", total - len(self.left), total, ", ".join(filter(None, parts)))

    def _summary(self) -> Summary:
        ended = self.folder.endings(self.sweep.cells)
        records = ((self.folder.of(cell), ended[cell.digest]) for cell in self.sweep.cells)
        failures = [
            Failure(folder.name, str(folder), str(record["error"]["message"]))
            for folder, record in records
            if record["state"] == "failed"
        ]
        return Summary(
            name=self.sweep.name,
            folder=str(self.folder.path),
            engine=self.engine.name,
            cells=len(self.sweep.cells),
            done=len(self.sweep.cells) - len(failures),
            failed=len(failures),
            computed=sum(record.get("session") == self.session for record in ended.values()),
            seconds=round(time.monotonic() - self.begun, 3),
            failures=tuple(failures),
        )
