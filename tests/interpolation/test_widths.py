"""The benchmark's search for bandwidths: never at the edge of its grid, and at a given norm."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture
def benchmark(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("interpolation_gpu")


@pytest.mark.parametrize("best", [0.1, 5.0, 40.0])
def test_the_grid_goes_on_where_its_end_is_best(benchmark, best):
    labels = np.zeros(1000, dtype=int)

    def solve(factor: float) -> np.ndarray:
        wrong = round(100 * abs(math.log(factor / best)))
        return np.eye(2)[(np.arange(1000) < wrong).astype(int)]

    factor, errors = benchmark.chosen((2.0, 3.4, 5.0), 1.0, labels, solve)
    tried = sorted(map(float, errors))
    assert tried[0] < factor < tried[-1]
    assert abs(math.log(factor / best)) <= math.log(1.5) / 2 + 1e-9


def test_both_bandwidths_with_a_given_norm(benchmark):
    # As for a Gaussian kernel: large for wide ones, least in between, then up to the identity's.
    def at(gamma: float) -> dict[str, float]:
        return {"gamma": gamma, "norm": 1 / gamma + 250 * gamma / (gamma + 1)}

    grid = [at(0.001 * 4**k) for k in range(9)]
    found = benchmark.with_norm(220.0, grid, at)
    assert len(found) == 2
    assert all(entry["norm"] == pytest.approx(220.0, rel=0.006) for entry in found)
    assert found[0]["gamma"] < 0.01 < 1 < found[1]["gamma"]
    assert benchmark.with_norm(1.0, grid, at) == []
