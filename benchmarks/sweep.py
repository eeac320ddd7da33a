"""What does a sweep cost besides its cells? And how long does the site of its runs take?

A thousand cells that compute nothing: the time per cell is the engine's own (a folder, a lock, a
durable record, and a place in a queue). Baseline in the same run: the same thousand calls and
durable records in a plain loop in one process, without locks, folders of their own or resuming.
Engines are timed without their start, which is reported apart. Durable writes wait for the disk,
whose speed changes with what else the machine does: loop and engines take turns for several rounds,
and every round is in the result. The site is written for 500 runs with one certificate each.

    python benchmarks/sweep.py                 # results/sweep.json
    python benchmarks/sweep.py --cells 100     # quicker

Ray is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import RESULTS, write_result

from nonvacuous.files import write_atomically
from nonvacuous.study.engine import Driver, Engine
from nonvacuous.study.folder import SweepFolder
from nonvacuous.study.local import LocalEngine
from nonvacuous.study.runs import Run, figures_of
from nonvacuous.study.sweep import Sweep, sweep_of

PROCESSES = 2
RUNS = 500
CELL = "def nothing(*, number, seed):\n    return {'number': number, 'seed': seed}\n"


def plan(cells: int) -> Sweep:
    return sweep_of(
        {"command": {"run": "bench_cells:nothing"}, "grid": {"number": list(range(cells))}}
    )


def plain_loop(cells: int, folder: Path) -> float:
    """Seconds for the same calls with one durable file each."""
    from bench_cells import nothing

    begun = time.perf_counter()
    for cell in plan(cells).cells:
        found = json.dumps(nothing(seed=cell.seed, **cell.settings)).encode()
        write_atomically(folder / f"{cell.name}.json", lambda stream, f=found: stream.write(f))
    return time.perf_counter() - begun


def engine_figures(make: Callable[[], Engine], cells: int, folder: Path) -> dict[str, float]:
    """Start: until the first of a few cells is done. Then the rest, timed from there."""
    begun = time.perf_counter()
    marks: list[tuple[float, int]] = []
    summary = Driver(
        plan(cells),
        SweepFolder(folder),
        make(),
        progress=lambda _phase, done, _total, _message: marks.append((time.perf_counter(), done)),
    ).run()
    assert summary.done == cells, summary
    first = next((moment, done) for moment, done in marks if done >= PROCESSES * 2)
    per_cell = (marks[-1][0] - first[0]) / (cells - first[1])
    again = time.perf_counter()
    resumed = Driver(plan(cells), SweepFolder(folder), LocalEngine(jobs=1)).run()
    assert resumed.computed == 0
    return {
        "start_seconds": round(first[0] - begun, 3),
        "milliseconds_per_cell": round(1e3 * per_cell, 4),
        "nothing_left_milliseconds_per_cell": round(1e3 * (time.perf_counter() - again) / cells, 4),
    }


def site_figures(folder: Path) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from nonvacuous.study.site import write_site
    from tests.report import samples

    certificate = samples.SAMPLES["posterior"]()
    runs = [
        Run(
            name=f"run{number:03}",
            folder=Path("runs") / f"run{number:03}",
            state="done",
            settings={"width": number},
            figures=figures_of(certificate),
            seed=number,
            certificate=certificate,
        )
        for number in range(RUNS)
    ]
    begun = time.perf_counter()
    site = write_site(runs, folder, title="benchmark")
    return {
        "runs": RUNS,
        "pages": len(site.pages),
        "seconds": round(time.perf_counter() - begun, 3),
        "index_bytes": site.index.stat().st_size,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        (here / "bench_cells.py").write_text(CELL)
        os.chdir(here)
        sys.path.append(place)
        engines: dict[str, Callable[[], Engine]] = {
            "local, in the driver": lambda: LocalEngine(jobs=1),
            f"local, {PROCESSES} processes": lambda: LocalEngine(jobs=PROCESSES),
        }
        if importlib.util.find_spec("ray") is not None:
            from nonvacuous.study.cluster import RayEngine

            engines["Ray on this machine"] = RayEngine
        loops: list[float] = []
        found: dict[str, list[dict[str, float]]] = {name: [] for name in engines}
        for number in range(options.rounds):
            loops.append(1e3 * plain_loop(options.cells, here / f"loop{number}") / options.cells)
            for name, make in engines.items():
                folder = here / f"{len(found[name])}-{list(engines).index(name)}"
                found[name].append(engine_figures(make, options.cells, folder))
            print(number, loops[-1], {name: rounds[-1] for name, rounds in found.items()})
        site = site_figures(here / "site")
        os.chdir(Path(__file__).parent)
    result = {
        "cells": options.cells,
        "processes": PROCESSES,
        "loop_milliseconds_per_cell": [round(value, 4) for value in loops],
        "engines": [
            {"engine": name, **{key: [entry[key] for entry in rounds] for key in rounds[0]}}
            for name, rounds in found.items()
        ],
        "site": site,
    }
    write_result("sweep", result, seed=0, folder=options.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
