"""Kernel interpolation case by case: what is kept, what is computed again, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nonvacuous.errors import BadInput
from nonvacuous.experiments.zhang_kernels import Case, KernelsSettings, run

SMALL = replace(
    KernelsSettings.quick(),
    cases=(Case("raw", "digits", "raw", "median:2"),),
    examples=150,
    labels=("true",),
    bad_examples=60,
    bad_test=40,
)


def test_a_case_with_other_settings_is_refused_unless_overwritten(tmp_path: Path) -> None:
    first = run(SMALL, tmp_path)
    kept = tmp_path / "cases" / "raw.json"
    stamp = kept.stat().st_mtime_ns
    again = run(SMALL, tmp_path, resume=True)
    assert again.to_dict() == first.to_dict() and kept.stat().st_mtime_ns == stamp
    wider = replace(SMALL, cases=(replace(SMALL.cases[0], gamma="median:4"),))
    with pytest.raises(BadInput, match="the case 'raw' with other settings"):
        run(wider, tmp_path, resume=True)
    assert kept.stat().st_mtime_ns == stamp
    forced = run(wider, tmp_path, force=True)
    assert forced.studies[0][1].to_dict() != first.studies[0][1].to_dict()
    assert run(wider, tmp_path, resume=True).to_dict() == forced.to_dict()


def test_another_case_joins_those_that_are_done(tmp_path: Path) -> None:
    run(SMALL, tmp_path)
    more = replace(SMALL, cases=(*SMALL.cases, Case("gabor", "digits", "gabor", "median:1")))
    found = run(more, tmp_path, resume=True)
    assert [case.name for case, _ in found.studies] == ["raw", "gabor"]
    assert {path.name for path in tmp_path.glob("cases/*")} == {"gabor.json", "raw.json"}
