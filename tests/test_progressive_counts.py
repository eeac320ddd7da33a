"""Counts of checkpoints on many subsets, and the bounds that the benchmark makes of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

SUBSETS, PARTS, FIRST, SIZE, RISK = 400, 20, 4, 50, 0.1


@pytest.fixture(scope="module")
def modules() -> Any:
    """The two benchmark files, imported by their names."""
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        import progressive_bounds
        import progressive_subsets
    finally:
        sys.path.remove(folder)
    return progressive_subsets, progressive_bounds


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    """Errors of checkpoints (rows) on parts (columns): all err alike on every part."""
    checkpoints = PARTS - FIRST
    shape = (SUBSETS, checkpoints, checkpoints)
    return np.random.default_rng(0).binomial(SIZE, RISK, shape)


@pytest.fixture
def counts(
    modules: tuple[ModuleType, ModuleType],
    table: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    subsets, bounds = modules
    case = subsets.Case("mnist", PARTS * SIZE, 8, 10, 0.1, PARTS, FIRST)
    result = {
        **case._asdict(),
        "next": subsets._lines(np.diagonal(table, axis1=1, axis2=2)),
        "rest": subsets._lines(np.triu(table).sum(axis=2)),
    }
    # Half of the subsets in a second file, and one of another case whose name begins alike.
    half = {k: v[: SUBSETS // 2] if isinstance(v, list) else v for k, v in result.items()}
    rest = {k: v[SUBSETS // 2 :] if isinstance(v, list) else v for k, v in result.items()}
    for name, content in (("mnist-1000", half), ("mnist-1000-200", rest), ("mnist-10000", {})):
        path = tmp_path / f"progressive-counts-{name}.json"
        path.write_text(json.dumps({"result": content}))
    monkeypatch.setattr(bounds, "RESULTS", tmp_path)
    return bounds.Counts("mnist-1000")


def test_each_checkpoint_is_tested_on_the_next_part_alone(counts: Any, table: np.ndarray) -> None:
    assert counts.subsets == SUBSETS
    for start in counts.starts:
        by_hand = sum(table[:, number, number] for number in range(start, PARTS - FIRST))
        assert np.array_equal(counts.errors(start), by_hand)
        assert np.array_equal(counts.rest[:, start], table[:, start, start:].sum(axis=1))
        assert counts.tests(start) == SIZE * (PARTS - FIRST - start)


def test_where_all_checkpoints_err_alike_the_plain_test_wins(
    counts: Any, modules: tuple[ModuleType, ModuleType]
) -> None:
    """Nothing is gained by training on; the exact tail of the largest test is the best of all."""
    for row in modules[1].tests(counts).values():
        assert row["held_out_share"] == FIRST / PARTS
        for entry in (row["progressive"], row["fixed"]):
            assert entry["difference"] > 2 * entry["standard_error"]
    for row in modules[1].gates(counts):
        assert row["many"]["passes"] <= row["held_out"]
        # Two batches take as many tests and allow as many errors: the same chance, but for luck.
        assert row["two"]["difference"] <= 3 * row["two"]["standard_error"]
