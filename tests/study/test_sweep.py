"""Sweeps on one machine: every cell ends exactly once, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nonvacuous.errors import BadInput
from nonvacuous.locks import Claim, Lock, is_held, machine
from nonvacuous.study.folder import SweepFolder, to_json
from nonvacuous.study.local import LocalEngine
from nonvacuous.study.runs import read_runs
from nonvacuous.study.sweep import sweep_of
from nonvacuous.study.worker import GpuShare, Task, run_cell, shares_of, take_share
from tests.study import sweep_worlds as worlds

VALUES = list(range(6))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before


def one() -> LocalEngine:
    """Computes in this process: quick, and enough where no process has to die."""
    return LocalEngine(jobs=1)


def test_every_cell_gets_a_folder_with_its_result(here: Path) -> None:
    run = worlds.write_module(here, "cells_a")
    told: list[tuple[int, int]] = []
    summary = worlds.run_sweep(
        worlds.plan(run, VALUES),
        "s",
        engine=one(),
        progress=lambda _phase, done, total, _message: told.append((done, total)),
    )
    assert (summary.cells, summary.done, summary.failed, summary.computed) == (6, 6, 0, 6)
    assert told[0] == (0, 6) and told[-1] == (6, 6)
    found = worlds.results(here / "s")
    assert sorted(result["value"] for result in found.values()) == VALUES
    for name, result in found.items():
        assert name.startswith(f"value={result['value']}-")
        assert result["empty"] is None
        assert len(result["numpy"]) == 3
        assert (here / "s/cells" / name / "log.txt").read_text() == "about to return\n"
    assert not list((here / "s").rglob(".*"))


@pytest.mark.slow
def test_two_processes_find_what_one_finds(here: Path) -> None:
    run = worlds.write_module(here, "cells_b")
    worlds.run_sweep(worlds.plan(run, VALUES), "one", engine=one())
    worlds.run_sweep(worlds.plan(run, VALUES[::-1]), "two", engine=LocalEngine(jobs=2))
    assert worlds.results(here / "one") == worlds.results(here / "two")
    seeds = [run.seed for run in read_runs("one")]
    assert len(set(seeds)) == len(VALUES)


def test_a_failed_cell_is_recorded_and_stops_nothing(here: Path) -> None:
    run = worlds.write_module(here, "cells_c")
    lines: list[str] = []
    values = [1, "bad", "mended", 2]
    summary = worlds.run_sweep(worlds.plan(run, values), "s", engine=one(), say=lines.append)
    assert (summary.done, summary.failed) == (2, 2)
    assert sorted(failure.message for failure in summary.failures) == [
        "not mended yet",
        "this cell is made to fail",
    ]
    assert len(lines) == 2 and "made to fail" in "".join(lines)
    (path,) = (here / "s").glob("cells/value=bad*/error.json")
    record = json.loads(path.read_text())
    assert record["error"]["type"] == "ValueError"
    assert "made to fail" in record["error"]["traceback"]
    assert record["settings"] == {"value": "bad"}

    # Without being told to, the next call leaves the failed ones alone.
    summary = worlds.run_sweep(worlds.plan(run, values), "s", engine=one())
    assert (summary.failed, summary.computed) == (2, 0)
    (here / "s/mended").touch()
    summary = worlds.run_sweep(worlds.plan(run, values), "s", engine=one(), retry_failed=True)
    assert (summary.done, summary.failed, summary.computed) == (3, 1, 2)
    (folder,) = (here / "s").glob("cells/value=mended*")
    assert (folder / "result.json").exists() and not (folder / "error.json").exists()


def test_a_grid_may_grow(here: Path) -> None:
    run, log = worlds.write_module(here, "cells_d"), str(here / "log")
    worlds.run_sweep(worlds.plan(run, [1, 2], log=log), "s", engine=one())
    summary = worlds.run_sweep(worlds.plan(run, [1, 2, 3], log=log), "s", engine=one())
    assert (summary.cells, summary.computed) == (3, 1)
    assert worlds.begun(here / "log") == ["1", "2", "3"]
    # Another way to write the same cells: their names would be others, the cells are the same.
    moved = sweep_of(
        {
            "command": {"run": run},
            "seed": 5,
            "cells": [{"value": value, "log": log} for value in (1, 2, 3)],
        }
    )
    assert worlds.run_sweep(moved, "s", engine=one()).computed == 0


@pytest.mark.slow
def test_a_cell_that_kills_its_process_fails_and_the_others_end(here: Path) -> None:
    run, log = worlds.write_module(here, "cells_e"), here / "log"
    values = [1, 2, "deadly", 3, 4, 5]
    plan = worlds.plan(run, values, log=str(log), sleep=0.05)
    summary = worlds.run_sweep(plan, "s", engine=LocalEngine(jobs=2))
    assert (summary.done, summary.failed) == (5, 1)
    assert summary.failures[0].name.startswith("value=deadly")
    assert "killed 3 times" in summary.failures[0].message
    assert Counter(worlds.begun(log))["deadly"] == 3
    assert not list((here / "s").glob("cells/*/.lock*"))


@pytest.mark.slow
def test_a_killed_driver_goes_on_where_it_stopped(here: Path) -> None:
    run, log = worlds.write_module(here, "cells_f"), here / "log"
    described = worlds.record(run, [*range(10), "bad"], log=str(log), sleep=0.15)
    driver = worlds.start_driver(here, described, "s", jobs=2)
    workers: list[int] = []
    try:
        worlds.wait_until(lambda: len(worlds.ended(here / "s")) >= 3, driver=driver)
        workers = worlds.descendants(driver.pid)
        driver.kill()
        driver.wait(timeout=60)
        # A worker ends with its cell, not with its driver; the next driver waits for that.
        before = worlds.ended(here / "s")
        assert len(before) < 11
        summary = worlds.finish(worlds.start_driver(here, described, "s", jobs=2))
    finally:
        for pid in workers:
            worlds.end(pid)
    assert (summary["cells"], summary["done"], summary["failed"]) == (11, 10, 1)
    after = worlds.ended(here / "s")
    assert len(after) == 11
    assert all(after[name] == content for name, content in before.items())
    # Nothing that had ended was begun again.
    counts = Counter(worlds.begun(log))
    for content in before.values():
        assert counts[str(json.loads(content)["settings"]["value"])] == 1
    worlds.run_sweep(
        worlds.plan(run, [*range(10), "bad"], log=str(log), sleep=0.15), "t", engine=one()
    )
    assert worlds.results(here / "s") == worlds.results(here / "t")


@pytest.mark.slow
def test_two_drivers_share_a_sweep(here: Path) -> None:
    run, log = worlds.write_module(here, "cells_g"), here / "log"
    described = worlds.record(run, list(range(8)), log=str(log), sleep=0.1)
    drivers = [worlds.start_driver(here, described, "s", jobs=1) for _ in range(2)]
    summaries = [worlds.finish(driver) for driver in drivers]
    assert [summary["done"] for summary in summaries] == [8, 8]
    assert sum(summary["computed"] for summary in summaries) == 8
    assert sorted(worlds.begun(log)) == sorted(map(str, range(8)))


def test_settings_that_do_not_fit_are_told_before_anything_is_computed(here: Path) -> None:
    worlds.write_module(here, "cells_h")
    with pytest.raises(BadInput, match="missing a required argument: 'two'"):
        worlds.run_sweep(
            sweep_of({"command": {"run": "cells_h:takes_two"}, "fixed": {"one": 1}}),
            "s",
            engine=one(),
        )
    with pytest.raises(BadInput, match="nothing called absent"):
        worlds.run_sweep(sweep_of({"command": {"run": "cells_h:absent"}}), "s", engine=one())
    with pytest.raises(BadInput, match="cannot be imported"):
        worlds.run_sweep(sweep_of({"command": {"run": "no_such_module:f"}}), "s", engine=one())
    assert not (here / "s").exists()


def test_a_foreign_folder_is_left_alone(here: Path) -> None:
    run = worlds.write_module(here, "cells_i")
    with pytest.raises(BadInput, match="not empty and holds no sweep"):
        worlds.run_sweep(worlds.plan(run, [1]), here, engine=one())
    worlds.run_sweep(worlds.plan(run, [1]), "s", engine=one())
    other = sweep_of({"command": {"run": "cells_i:takes_two"}, "fixed": {"one": 1, "two": 2}})
    with pytest.raises(BadInput, match="holds a sweep of cells_i:cell"):
        worlds.run_sweep(other, "s", engine=one())


class TestLocks:
    def test_only_one_has_it(self, tmp_path: Path) -> None:
        first = Lock.take(tmp_path, Claim("a"))
        assert first is not None
        with first:
            assert is_held(tmp_path)
            assert Lock.take(tmp_path, Claim("b")) is None
        again = Lock.take(tmp_path, Claim("b"))
        assert again is not None
        with again:
            pass
        assert not list(tmp_path.iterdir())

    def test_a_dead_owner_is_recognized(self, tmp_path: Path) -> None:
        code = (
            "import os, signal, sys; from pathlib import Path;"
            "from nonvacuous.locks import Claim, Lock;"
            "assert Lock.take(Path(sys.argv[1]), Claim('x'));"
            "os.kill(os.getpid(), signal.SIGKILL)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
        assert done.returncode == -signal.SIGKILL
        assert not is_held(tmp_path)
        lock = Lock.take(tmp_path, Claim("y"))
        assert lock is not None and lock.number == 2
        # Whoever found the same dead owner comes too late.
        assert Lock.take(tmp_path, Claim("z")) is None
        with lock:
            pass
        assert not list(tmp_path.iterdir())

    def test_a_number_that_was_given_to_another_process_is_no_life(self, tmp_path: Path) -> None:
        self._forge(tmp_path, pid=os.getpid(), started="1")
        assert not is_held(tmp_path)

    def test_an_owner_elsewhere_lives_as_long_as_it_touches_its_lock(self, tmp_path: Path) -> None:
        path = self._forge(tmp_path, machine="elsewhere")
        assert is_held(tmp_path)
        os.utime(path, (0, path.stat().st_mtime - 61))
        assert not is_held(tmp_path)

    def test_an_attempt_that_the_driver_gave_up_counts_for_nothing(self, tmp_path: Path) -> None:
        self._forge(tmp_path, machine="elsewhere", session="mine")
        assert Lock.take(tmp_path, Claim("mine", attempt=1)) is None
        assert Lock.take(tmp_path, Claim("mine", attempt=2)) is not None

    def test_half_a_lock_is_judged_by_its_age(self, tmp_path: Path) -> None:
        (tmp_path / ".lock.1").write_text('{"pid": 1')
        assert is_held(tmp_path)

    def _forge(self, folder: Path, **changes: object) -> Path:
        lock = Lock.take(folder, Claim("theirs"))
        assert lock is not None
        path = folder / ".lock.1"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return path


def test_gpus_are_shared_by_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares_of(["4", "7"], 0.3) == ("4", "4", "4", "7", "7", "7")
    assert shares_of(["a", "b", "c", "d", "e"], 2) == ("a,b", "c,d")
    for devices, part in (([], 0.5), (["0"], 2), (["0", "1"], 1.5)):
        with pytest.raises(BadInput):
            shares_of(devices, part)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "9")
    share = GpuShare(str(tmp_path), ("4", "7"))
    taken = []
    for session in ("one", "two"):
        take_share(share, Claim(session))
        take_share(share, Claim(session))
        taken.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert taken == ["4", "7"]
    with pytest.raises(BadInput, match="all 2 shares"):
        take_share(share, Claim("three"))


def test_cells_see_no_gpu_unless_they_were_promised_one(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    (here / "cells_gpu.py").write_text(
        "import os\ndef f():\n    return {'seen': os.environ['CUDA_VISIBLE_DEVICES']}\n"
    )
    plan = sweep_of({"command": {"run": "cells_gpu:f"}})
    worlds.run_sweep(plan, "without", engine=one())
    worlds.run_sweep(plan, "with", engine=LocalEngine(jobs=1, gpus_per_task=0.5))
    assert [r["seen"] for r in worlds.results(here / "without").values()] == [""]
    assert [r["seen"] for r in worlds.results(here / "with").values()] == ["5"]


def test_a_lock_that_was_left_on_an_ended_cell_goes(here: Path) -> None:
    run = worlds.write_module(here, "cells_j")
    plan = worlds.plan(run, [1])
    worlds.run_sweep(plan, "s", engine=one())
    folder = here / "s/cells" / plan.cells[0].name
    (folder / ".lock.1").write_text(json.dumps({"machine": machine(), "pid": 2**22 + 1}))
    before = worlds.ended(here / "s")
    outcome = run_cell(Task(plan.cells[0], run, str(folder), Claim("later")))
    assert outcome.state == "done"
    assert not list(folder.glob(".lock*"))
    assert worlds.ended(here / "s") == before


def test_a_sweep_that_another_driver_is_just_beginning_is_no_foreign_folder(here: Path) -> None:
    """Whatever another driver has written so far, its record was first."""
    run = worlds.write_module(here, "cells_k")
    plan = worlds.plan(run, [1])
    place = SweepFolder(here / "s")
    place.open(plan)
    assert sorted(path.name for path in (here / "s").iterdir()) == ["cells", "sweep.json"]
    (here / "s/cells").rmdir()
    SweepFolder(here / "s").open(plan)
    (here / "half").mkdir()
    (here / "half/.sweep.json.1.part").touch()
    SweepFolder(here / "half").open(plan)


def test_what_is_no_unicode_is_written_as_json_writes_it() -> None:
    record = {"x": "\udcff, \u00e9", "\udcfe": 1}
    assert json.loads(to_json(record)) == record
    assert "\u00e9" in to_json(record).decode()
