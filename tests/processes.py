"""Processes that tests can kill, forked from one that has imported what they need."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

#: What runs import on their way, which would be most of what a short one does.
IMPORTED = (
    *("nonvacuous.cli.app", "nonvacuous.cli.certify", "nonvacuous.cli.certify_run"),
    *("nonvacuous.certify", "nonvacuous.methods.posterior.making", "nonvacuous.report.html"),
    *("nonvacuous.methods.sparsity.making", "nonvacuous.report.plots"),
)
#: How many seconds anything may take, on a machine that does much else.
PATIENCE = 300.0


def forked(target: Callable[..., None], *arguments: object) -> ForkServerProcess:
    """A process that calls this function, started at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


class Command:
    """`nonvacuous` with these words, at work in the current folder from now on.

    What it writes to stdout and stderr goes to files of these names in ``logs``.
    """

    def __init__(self, *words: str | Path, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self.streams = (logs / "stdout", logs / "stderr")
        for path in self.streams:
            path.write_text("")
        surroundings = (Path.cwd(), dict(os.environ), self.streams)
        self.process = forked(_run, [*map(str, words)], *surroundings)

    @property
    def out(self) -> str:
        return self.streams[0].read_text()

    @property
    def err(self) -> str:
        return self.streams[1].read_text()

    def wait_for(self, words: str) -> None:
        """Return once these words are on stderr, or the command has ended without them."""
        end = time.monotonic() + PATIENCE
        while words not in self.err and self.process.is_alive():
            assert time.monotonic() < end, self.err
            time.sleep(0.005)

    def code(self, timeout: float = PATIENCE) -> int | None:
        """Its exit code, negative after a signal; None if it still goes on after ``timeout``."""
        self.process.join(timeout)
        return self.process.exitcode


def _run(
    words: list[str], folder: Path, environment: dict[str, str], streams: tuple[Path, Path]
) -> None:
    from nonvacuous.cli.app import main

    # Whoever started the tests in the background may have told them to ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for descriptor, path in enumerate(streams, start=1):
        opened = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.exit(main(words))
