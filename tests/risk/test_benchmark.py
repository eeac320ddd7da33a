"""The benchmark runs, and writes what it measured with where it comes from."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_benchmark_runs_on_tiny_sizes(tmp_path: Path, monkeypatch) -> None:
    words = ["benchmarks/risk.py", "--quick", "--threads", "1", "--folder", str(tmp_path)]
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend("benchmarks")
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(words[0], run_name="__main__")
    record = json.loads((tmp_path / "risk-cpu.json").read_text(encoding="utf-8"))
    assert {"commit", "machine", "seed", "versions", "command", "date"} <= set(record["provenance"])
    for name in ("mlp", "mlp with equal scales", "cnn"):
        figures = record["result"][name]
        assert figures["method"] == "local noise"
        assert figures["shared_passes_for_equal_slack"] >= figures["trials"]
        assert figures["times_fewer_seconds"] > 1
