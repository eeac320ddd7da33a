"""Sweeps on a real Ray cluster: a head and two workers on this machine, some of them killed."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nonvacuous.cli.app import main
from nonvacuous.locks import Claim
from nonvacuous.study.cluster import deposit, run_anywhere
from nonvacuous.study.local import LocalEngine
from nonvacuous.study.sweep import sweep_of
from nonvacuous.study.worker import Task
from tests.study import sweep_worlds as worlds

HAS_RAY = importlib.util.find_spec("ray") is not None
# With CI=true nothing is skipped: there the test fails where Ray is missing.
needs_ray = pytest.mark.skipif(
    not HAS_RAY and os.environ.get("CI") != "true",
    reason="ray is not installed: pip install '.[ray]'",
)


@dataclass
class Cluster:
    """A head without processors, and workers with one each, all started here."""

    folder: Path
    port: int = 0
    #: Ray listens on every interface of the machine. A token that only this test knows keeps
    #: others out, who could run anything here otherwise.
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        return {
            "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
        }

    def start(self, *words: str) -> None:
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
            "--object-store-memory=80000000",
            *("--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats", *words),
        ]
        log = open(self.folder / f"node{time.monotonic_ns()}.log", "wb")  # noqa: SIM115
        node = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=self.folder,
            env={**os.environ, **self.variables},
        )
        self.nodes.append(node)
        # One after the other: nodes that start at once on one machine choose the same sockets.
        worlds.wait_until(
            lambda: b"block forever" in Path(log.name).read_bytes() or node.poll() is not None
        )
        assert node.poll() is None, self.log()

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """A machine that goes down: every process of it at once."""
        for pid in [node.pid, *worlds.descendants(node.pid)]:
            worlds.end(pid)
        node.wait(timeout=60)

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("node*.log")))

    def repair(self) -> None:
        """What earlier tests killed is started again: the head, and two workers."""
        alive = [node for node in self.nodes if node.poll() is None]
        if not alive or alive[0] is not self.nodes[0]:
            self.close()
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            self.start(
                *("--head", f"--port={self.port}", "--num-cpus=0", "--include-dashboard=false"),
                f"--temp-dir={self.folder}",
            )
            alive = self.nodes[:]
        self.nodes = alive
        while len(self.nodes) < 3:
            self.start(f"--address={self.address}", "--num-cpus=1")

    def close(self) -> None:
        for node in self.nodes[::-1]:
            if node.poll() is None:
                self.kill(node)
        self.nodes = []


@pytest.fixture(scope="module")
def standing() -> Iterator[Cluster]:
    # A short path: Ray makes sockets below it, and their names must not be long.
    made = Cluster(Path(tempfile.mkdtemp(prefix="ray")))
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture
def cluster(standing: Cluster) -> Cluster:
    standing.repair()
    return standing


@needs_ray
@pytest.mark.slow
def test_a_reproduction_on_a_cluster_is_the_same_as_here(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text('data = "digits"\nsizes = [40, 90]\ndepths = [2, 4]\n')
    words = ["reproduce", "zhang-theorem-1", "--config", "s.toml", "--out"]
    assert main([*words, "here"]) == 0
    words += ["there", "--engine", "ray", "--address", cluster.address]
    done = subprocess.run(
        [sys.executable, "-m", "nonvacuous.cli.app", *words],
        env={**os.environ, **cluster.variables},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    here, there = (json.loads(Path(out, "results.json").read_text()) for out in ("here", "there"))
    for entry in (*here["depths"], *there["depths"]):
        for name in ("seconds", "certificate_seconds", "forward_seconds"):
            del entry[name]
    assert here == there
    ended = [path.parent.name for path in (tmp_path / "there").glob("cells/*/result.json")]
    assert len(ended) == 6


@needs_ray
@pytest.mark.slow
def test_nothing_is_lost_when_a_worker_and_the_driver_are_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)  # drivers are started with them
    run, log = worlds.write_module(tmp_path, "cells_ray"), tmp_path / "log"
    described = worlds.record(run, [*range(11), "bad"], log=str(log), sleep=0.4)
    folder = tmp_path / "s"
    driver = worlds.start_driver(tmp_path, described, "s", "ray", address=cluster.address)
    try:
        worlds.wait_until(lambda: len(worlds.ended(folder)) >= 3, driver=driver)
        cluster.kill(cluster.nodes[1])
        ended = len(worlds.ended(folder))
        # The other worker goes on with what the dead one had.
        worlds.wait_until(lambda: len(worlds.ended(folder)) >= ended + 3, driver=driver)
        driver.send_signal(signal.SIGKILL)
        driver.wait(timeout=60)
    finally:
        worlds.end(driver.pid)
    before = worlds.ended(folder)
    assert len(before) < 12
    second = worlds.start_driver(tmp_path, described, "s", "ray", address=cluster.address)
    summary = worlds.finish(second, seconds=240)
    assert (summary["cells"], summary["done"], summary["failed"]) == (12, 11, 1)
    assert summary["failures"][0]["message"] == "this cell is made to fail"
    after = worlds.ended(folder)
    assert len(after) == 12
    late = [name for name, content in before.items() if after[name] != content]
    assert late == []
    assert 0 < summary["computed"] <= 12 - len(before)
    counts = Counter(worlds.begun(log))
    assert set(counts) == {*map(str, range(11)), "bad"}
    for content in before.values():
        if json.loads(content).get("begun") == 1:
            assert counts[str(json.loads(content)["settings"]["value"])] == 1

    worlds.finish(worlds.start_driver(tmp_path, described, "local", jobs=2))
    assert worlds.results(folder) == worlds.results(tmp_path / "local")


@needs_ray
@pytest.mark.slow
def test_a_driver_says_that_the_head_has_died(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cluster.variables.items():
        monkeypatch.setenv(name, value)
    run, log = worlds.write_module(tmp_path, "cells_head"), tmp_path / "log"
    described = worlds.record(run, [*range(40)], log=str(log), sleep=2.0)
    driver = worlds.start_driver(tmp_path, described, "s", "ray", address=cluster.address)
    try:
        worlds.wait_until(lambda: len(worlds.ended(tmp_path / "s")) >= 1, driver=driver)
        cluster.kill(cluster.nodes[0])
        died = time.monotonic()
        _, err = driver.communicate(timeout=60)
        assert time.monotonic() - died < 30
        assert driver.returncode != 0
        assert "does not answer any more" in err and "What was finished is kept" in err
    finally:
        worlds.end(driver.pid)


def test_a_worker_that_does_not_see_the_folder_sends_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = worlds.write_module(tmp_path, "cells_sent")
    plan = worlds.plan(run, [1, "bad"])
    worlds.run_sweep(plan, "here", engine=LocalEngine(jobs=1))
    for cell in plan.cells:
        target = tmp_path / "driver/cells" / cell.name
        task = Task(cell, run, str(target), Claim("session"), here=str(tmp_path))
        outcome, files = run_anywhere(task)
        assert not target.exists()
        assert files is not None
        assert outcome.state == ("done" if "result.json" in files else "failed")
        assert not any(name.startswith(".lock") for name in files)
        deposit(target, files)
    assert worlds.results(tmp_path / "driver") == worlds.results(tmp_path / "here")

    # Where the mark of the session is seen, the folder is the driver's own.
    (tmp_path / "driver/.session.session").touch()
    outcome, files = run_anywhere(task)
    assert files is None
    assert outcome.state == "failed"


STOPPED = """
import json, signal, sys
from pathlib import Path
from nonvacuous.study.sweep import sweep_of
from nonvacuous.locks import Claim
from nonvacuous.study.cluster import run_anywhere
from nonvacuous.study.worker import Task

def as_ray_does(number, frame):
    sys.exit(1)

signal.signal(signal.SIGTERM, as_ray_does)
record, folder = (json.loads(word) for word in sys.argv[1:])
(cell,) = sweep_of(record).cells
Path(folder).mkdir()
Path(folder, ".session.s").touch()
run_anywhere(Task(cell, cell.run, str(Path(folder, "cells", cell.name)), Claim("s")))
"""


def test_a_cell_whose_worker_is_told_to_end_has_not_failed(tmp_path: Path) -> None:
    run, log = worlds.write_module(tmp_path, "cells_stopped"), tmp_path / "log"
    described = worlds.record(run, [1], log=str(log), sleep=60.0)
    words = [json.dumps(part) for part in (described, str(tmp_path / "s"))]
    worker = subprocess.Popen([sys.executable, "-c", STOPPED, *words], cwd=tmp_path)
    try:
        worlds.wait_until(lambda: worlds.begun(log) == ["1"])
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 143
    finally:
        worlds.end(worker.pid)
    assert worlds.ended(tmp_path / "s") == {}
    # And whoever computes it next need not wait for anybody.
    assert not list((tmp_path / "s").glob("cells/*/.lock*"))


def test_a_cell_that_exits_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "cells_exit.py").write_text("import sys\ndef f():\n    sys.exit('enough')\n")
    (cell,) = sweep_of({"command": {"run": "cells_exit:f"}}).cells
    outcome, _ = run_anywhere(
        Task(cell, cell.run, str(tmp_path / "s/cells" / cell.name), Claim("s"), here=str(tmp_path))
    )
    assert (outcome.state, outcome.message) == ("failed", "enough")


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from nonvacuous.errors import Unsupported
    from nonvacuous.study.cluster import RayEngine

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Unsupported, match=r"nonvacuous\[ray\]"):
        RayEngine()
