"""The benchmark runs, and writes what it measured with where it comes from."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from nonvacuous.distributions import DiagonalGaussian

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


def test_the_work_of_a_pair_is_counted(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    work_of_a_pair = runpy.run_path(str(ROOT / "benchmarks/risk.py"))["work_of_a_pair"]
    network = nn.Linear(4, 3).eval()
    posterior = DiagonalGaussian.around(network, scale=0.1)
    examples = torch.randn(10, 4), torch.zeros(10, dtype=torch.int64)
    work = work_of_a_pair(network, posterior, examples, trials=1000, seed=0)
    assert work["normal_numbers"] == 3
    # Ten examples that all trials share, and a few for the probe.
    assert 0 < work["operations"] < 2 * 4 * 3 * 50 / 1000
