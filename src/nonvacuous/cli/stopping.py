"""Stopping in good order: Ctrl-C and the signal TERM end a command with a message."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from nonvacuous.cli.exits import INTERRUPTED, TERMINATED


class Stopped(KeyboardInterrupt):
    """The signal TERM, which schedulers and `kill` send before they use force."""


def exit_code_of(stop: KeyboardInterrupt) -> int:
    return TERMINATED if isinstance(stop, Stopped) else INTERRUPTED


@contextmanager
def stoppable() -> Iterator[None]:
    """Within this block the signal TERM raises :class:`Stopped` as Ctrl-C raises its exception."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may install handlers
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
