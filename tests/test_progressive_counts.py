"""Counts of checkpoints on many subsets, and the bounds that the benchmark makes of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nonvacuous as nv

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
    more = np.random.default_rng(1).binomial(10_000, RISK, table.shape[:2])
    result = {
        **case._asdict(),
        "next": {str(w): subsets._lines(subsets._next(table, w)) for w in subsets.WIDTHS},
        "rest": subsets._lines(np.triu(table).sum(axis=2)),
        "more_examples": 10_000,
        "more": subsets._lines(more),
    }
    # Half of the subsets in a second file, and one of another case whose name begins alike.
    half = {k: v[: SUBSETS // 2] if isinstance(v, list) else v for k, v in result.items()}
    half["next"] = {w: lines[: SUBSETS // 2] for w, lines in result["next"].items()}
    rest = {k: v[SUBSETS // 2 :] if isinstance(v, list) else v for k, v in result.items()}
    rest["next"] = {w: lines[SUBSETS // 2 :] for w, lines in result["next"].items()}
    for name, content in (("mnist-1000", half), ("mnist-1000-200", rest), ("mnist-10000", {})):
        path = tmp_path / f"progressive-counts-{name}.json"
        path.write_text(json.dumps({"result": content}))
    monkeypatch.setattr(bounds, "RESULTS", tmp_path)
    return bounds.Counts("mnist-1000")


def test_each_checkpoint_is_tested_on_its_own_batch_alone(counts: Any, table: np.ndarray) -> None:
    assert counts.subsets == SUBSETS
    for width in (1, 2, 4):
        for start in counts.starts(width):
            by_hand = sum(
                table[:, number, number : number + width].sum(axis=1)
                for number in range(start, PARTS - FIRST, width)
            )
            assert np.array_equal(counts.errors(start, width), by_hand)
    assert np.array_equal(counts.rest[:, 3], table[:, 3, 3:].sum(axis=1))


def test_steadied_bounds_have_the_same_mean_and_a_smaller_spread(counts: Any) -> None:
    tests = counts.tests(6)
    plain = [nv.bounds.holdout(errors=e, examples=tests, failure=0.01) for e in range(tests + 1)]
    values = np.array([plain[errors] for errors in counts.rest[:, 6]])
    steadied = counts.held_out(6, 0.01)
    error = values.std(ddof=1) / np.sqrt(SUBSETS)
    assert abs(steadied.mean() - values.mean()) < 3 * error
    assert steadied.std() < 0.5 * values.std()


def test_where_all_checkpoints_err_alike_the_plain_test_wins(
    counts: Any, modules: tuple[ModuleType, ModuleType]
) -> None:
    """Nothing is gained by training on; the exact tail of the largest test is the best of all."""
    for row in modules[1].tests(counts).values():
        assert row["held_out_share"] == FIRST / PARTS
        for entry in row["progressive"].values():
            assert entry["best"]["difference"] > 2 * entry["best"]["standard_error"]
