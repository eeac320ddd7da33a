"""What a long command tells while it works: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from nonvacuous.cli import exits, output
from nonvacuous.progress import NOTE, stopped_by_term
from nonvacuous.report.wording import printable

#: Phases as the library names them, as a person would.
_TITLES = {
    "prior": "training the prior",
    "posterior": "training the posterior",
    "noise": "choosing the noise",
    "sampling": "counting errors",
    "held-out twin": "training the held-out twin",
    "network": "training the network",
    "search": "choosing the setting",
    "fresh noise": "counting losses under fresh noise",
    "checks": "checking",
}


class Narration:
    """A context manager that is itself the ``progress`` of the library's long functions."""

    def __init__(self) -> None:
        self._console = output.narration_console()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._begun: set[str] = set()

    def __enter__(self) -> Narration:
        if self._console.is_terminal:
            # Only the message gives way where the terminal is narrow.
            rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            self._bars = Progress(
                TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
                BarColumn(bar_width=16, table_column=Column(min_width=16)),
                TaskProgressColumn(table_column=Column(min_width=4, no_wrap=True)),
                TimeRemainingColumn(
                    elapsed_when_finished=True, table_column=Column(min_width=7, no_wrap=True)
                ),
                TextColumn("{task.fields[message]}", markup=False, style="dim", table_column=rest),
                console=self._console,
                expand=True,
            )
            self._bars.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, phase: str, done: int, total: int, message: str) -> None:
        if phase == NOTE:
            self.say(message)
            return
        title, message = printable(_TITLES.get(phase, phase)), printable(message)
        if self._bars is not None:
            task = self._tasks.get(phase)
            if task is None:
                task = self._tasks[phase] = self._bars.add_task(title, total=total, message="")
            self._bars.update(task, completed=done, total=total, message=message)
        elif phase not in self._begun:
            # One line when a phase begins: a log file wants no bars.
            self._begun.add(phase)
            self._console.print(f"{title} ...", soft_wrap=True)
        if phase == "cells":  # each that is finished is worth a line that stays
            self.say(message)

    def say(self, text: str) -> None:
        """A line of its own, above the bars."""
        self._console.print(printable(text), soft_wrap=True)


@contextmanager
def working(stopped: Callable[[], tuple[str, str]]) -> Iterator[Narration]:
    """Narrate within this block; stopped by a signal, it says what is left and what to try next."""
    try:
        with stopped_by_term(exits.Stopped), Narration() as narration:
            yield narration
    except KeyboardInterrupt as stop:
        raise type(stop)(*stopped()) from stop
