"""The benchmark runs, and writes what it measured with where it comes from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_benchmark_runs_on_tiny_sizes(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/risk.py", "--quick", "--threads", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, "--folder", str(tmp_path)], cwd=ROOT, check=True, env=environment, timeout=300
    )
    record = json.loads((tmp_path / "risk-cpu.json").read_text(encoding="utf-8"))
    assert {"commit", "machine", "seed", "versions", "command", "date"} <= set(record["provenance"])
    for name in ("mlp", "mlp with equal scales", "cnn"):
        figures = record["result"][name]
        assert figures["method"] == "local noise"
        assert figures["shared_passes_for_equal_slack"] >= figures["trials"]
        assert figures["times_fewer_seconds"] > 1
