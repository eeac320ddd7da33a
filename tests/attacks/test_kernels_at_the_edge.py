"""The record of the kernels: from a clean commit, no width at the edge of its grid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "benchmarks" / "results").glob("interpolation-gpu*.json"))
RECORDS = [json.loads(path.read_text()) for path in PATHS]
PARTS = {name: part for record in RECORDS for name, part in record["result"]["parts"].items()}


def test_the_commits_were_clean() -> None:
    for record in RECORDS:
        assert record["provenance"]["commit"]
        assert record["provenance"]["uncommitted_changes"] is False


@pytest.mark.parametrize("case", ["mnist raw", "mnist gabor", "cifar10 raw", "cifar10 patches"])
def test_held_out_data_chose_a_width_between_two_others(case: str) -> None:
    part = PARTS[case]
    tried = {float(factor): error for factor, error in part["held_out_errors"].items()}
    assert min(tried) < float(f"{part['factor']:g}") < max(tried)
    assert tried[float(f"{part['factor']:g}")] == min(tried.values())


@pytest.mark.parametrize(("case", "norm"), [("mnist raw", 220), ("mnist gabor", 390)])
def test_published_norms_are_told_beside_the_width_that_gives_them(case: str, norm: int) -> None:
    part = PARTS[f"{case} widths"]
    assert part["published_norm"] == norm
    for entry in part["at_published_norm"]:
        assert entry["norm"] == pytest.approx(norm, rel=0.01)
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert f", {norm}, is ours at γ = " in page
    assert "edge of its grid" not in (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
