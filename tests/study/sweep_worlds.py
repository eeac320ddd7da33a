"""Cells for tests of sweeps: a module of functions, and drivers that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nonvacuous.study.engine import Driver, Summary
from nonvacuous.study.folder import SweepFolder
from nonvacuous.study.sweep import Sweep, sweep_of

#: Written into a folder of its own: workers import it by name, as they do a user's.
MODULE = '''
import os
import pathlib
import random
import signal
import time

import numpy


def cell(*, value, seed, folder, log=None, sleep=0.0):
    """Numbers that depend on the cell alone; every beginning leaves a line."""
    if log is not None:
        with open(log, "a") as stream:
            stream.write(f"{value} {os.getpid()}\\n")
    time.sleep(sleep)
    if value == "bad":
        raise ValueError("this cell is made to fail")
    if value == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    if value == "mended" and not pathlib.Path(folder, "..", "..", "mended").exists():
        raise RuntimeError("not mended yet")
    print("about to return")
    return {
        "value": value,
        "python": random.random(),
        "numpy": numpy.random.rand(3),
        "own": random.Random(seed).random(),
        "empty": float("nan"),
    }


def takes_two(*, one, two):
    return None
'''

DRIVER = """
import json, sys
from dataclasses import asdict
from nonvacuous.study.sweep import sweep_of
from nonvacuous.study.engine import Driver
from nonvacuous.study.folder import SweepFolder

record, folder, engine, options = (json.loads(word) for word in sys.argv[1:])
if engine == "ray":
    from nonvacuous.study.cluster import RayEngine as Engine
else:
    from nonvacuous.study.local import LocalEngine as Engine
summary = Driver(sweep_of(record), SweepFolder(folder), Engine(**options)).run()
print(json.dumps(asdict(summary)))
"""


def run_sweep(sweep: Sweep, folder: str, **how: Any) -> Summary:
    return Driver(sweep, SweepFolder(folder), **how).run()


def write_module(folder: Path, name: str) -> str:
    """The module as a file, and how a sweep calls its function."""
    (folder / f"{name}.py").write_text(MODULE)
    return f"{name}:cell"


def plan(run: str, values: list[Any], **fixed: Any) -> Sweep:
    return sweep_of(record(run, values, **fixed))


def record(run: str, values: list[Any], **fixed: Any) -> dict[str, Any]:
    return {"command": {"run": run}, "fixed": fixed, "grid": {"value": values}, "seed": 5}


def start_driver(
    here: Path, described: dict[str, Any], folder: str, engine: str = "local", **options: Any
) -> subprocess.Popen[str]:
    """A driver in a process of its own, at the head of a group of its own."""
    words = [json.dumps(part) for part in (described, folder, engine, options)]
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, *words],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(driver: subprocess.Popen[str], *, seconds: float = 120.0) -> dict[str, Any]:
    """The summary of a driver that came to its end."""
    out, err = driver.communicate(timeout=seconds)
    assert driver.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def wait_until(
    condition: Callable[[], bool], *, driver: subprocess.Popen[str] | None = None
) -> None:
    """Wait for something that is about to happen; a driver that ends first is an error."""
    until = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        if driver is not None and driver.poll() is not None:
            assert condition(), driver.communicate()
        time.sleep(0.02)


def ended(folder: Path) -> dict[str, bytes]:
    """The records of cells that ended, as they lie on the disk."""
    paths = [*folder.glob("cells/*/result.json"), *folder.glob("cells/*/error.json")]
    return {path.parent.name: path.read_bytes() for path in paths}


def results(folder: Path) -> dict[str, Any]:
    """What cells found, or the message of their error, by name."""
    found = {name: json.loads(content) for name, content in ended(folder).items()}
    return {
        n: r["result"] if r["state"] == "done" else r["error"]["message"] for n, r in found.items()
    }


def begun(log: Path) -> list[str]:
    """The values of cells in the order in which they began."""
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def descendants(pid: int) -> list[int]:
    """All processes below one, children first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    queue = [pid]
    while queue:
        children = parents.get(queue.pop(0), [])
        found += children
        queue += children
    return found


def end(pid: int) -> None:
    """Kill one process, if it still lives."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
