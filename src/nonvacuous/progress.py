"""How a long computation tells its caller how far it is, and how the system tells it to stop.

The library draws no bars: it calls a function, and the command line (or a notebook) draws.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

#: The phase of progress that is a sentence of its own.
NOTE = "note"


class Progress(Protocol):
    """What every long function accepts as `progress`: any callable with these four arguments."""

    def __call__(self, phase: str, done: int, total: int, message: str) -> None:
        """Take note that `done` of `total` units of `phase` are done; `message` is for people."""


def describe_seconds(seconds: float) -> str:
    """A duration as a person would say it.

    >>> describe_seconds(7.2), describe_seconds(135), describe_seconds(7500)
    ('7 s', '2 min 15 s', '2 h 05 min')
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Reporter:
    """Calls a `Progress` with the time left appended, at most every `every` seconds.

    A step may take less than a millisecond; reporting each of them would cost more than the step.
    The time left is estimated from the units done since the computation began or resumed: those
    `done` before a resume took another process's time.
    """

    def __init__(
        self,
        progress: Progress | None,
        phase: str,
        *,
        done: int = 0,
        every: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress, self._phase, self._every, self._clock = progress, phase, every, clock
        self._first, self._start, self._last = done, clock(), -float("inf")

    def report(self, done: int, total: int, message: str, *, always: bool = False) -> None:
        """Report now if enough time has passed since the last report, or if told `always`."""
        now = self._clock()
        if self._progress is None or (not always and now - self._last < self._every):
            return
        self._last = now
        if self._first < done < total:
            left = (now - self._start) / (done - self._first) * (total - done)
            message = f"{message}, about {describe_seconds(left)} left"
        self._progress(self._phase, done, total, message)


@contextmanager
def stopped_by_term(error: type[BaseException]) -> Iterator[None]:
    """Within this block the signal TERM, which is sent before force is used, raises ``error``."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may install handlers
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise error

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
