"""Kernel interpolation case by case: what is kept, what is computed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from nonvacuous.errors import BadInput
from nonvacuous.papers.zhang.kernels import STUDY, Case, KernelsSettings
from nonvacuous.study.running import Surroundings, run_study

RAW = Case(name="raw", data="digits", features="raw", gamma="median:2")
SMALL = KernelsSettings.quick().changed(
    cases=(RAW,), examples=150, labels=("true",), bad_examples=60, bad_test=40
)
RESUME, FORCE = Surroundings(resume=True), Surroundings(force=True)


def stamps(folder: Path) -> dict[str, int]:
    return {
        path.parent.name: path.stat().st_mtime_ns for path in folder.glob("cells/*/result.json")
    }


def test_a_case_with_other_settings_is_another_cell(tmp_path: Path) -> None:
    first = run_study(STUDY, SMALL, tmp_path)
    kept = stamps(tmp_path)
    assert sorted(name.split("-")[0] for name in kept) == ["bad", "raw"]
    again = run_study(STUDY, SMALL, tmp_path, surroundings=RESUME)
    assert STUDY.record(again) == STUDY.record(first) and stamps(tmp_path) == kept
    wider = SMALL.changed(cases=(RAW.model_copy(update={"gamma": "median:4"}),))
    other = run_study(STUDY, wider, tmp_path, surroundings=RESUME)
    assert other.studies[0][1] != first.studies[0][1]
    assert len(stamps(tmp_path)) == 3 and kept.items() <= stamps(tmp_path).items()
    forced = run_study(STUDY, wider, tmp_path, surroundings=FORCE)
    assert len(stamps(tmp_path)) == 2
    assert forced.studies[0][1].labelings == other.studies[0][1].labelings
    with pytest.raises(BadInput, match="with other settings"):
        run_study(STUDY, wider.changed(seed=3), tmp_path, surroundings=RESUME)


def test_another_case_joins_those_that_are_done(tmp_path: Path) -> None:
    run_study(STUDY, SMALL, tmp_path)
    kept = stamps(tmp_path)
    more = SMALL.changed(
        cases=(RAW, Case(name="gabor", data="digits", features="gabor", gamma="median:1"))
    )
    found = run_study(STUDY, more, tmp_path, surroundings=RESUME)
    assert [case.name for case, _ in found.studies] == ["raw", "gabor"]
    assert kept.items() <= stamps(tmp_path).items() and len(stamps(tmp_path)) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ("random", "true")}, "^labels: true comes first"),
        ({"bad_examples": 0}, "bad-examples must be greater than or equal to 1"),
        ({"bad_test": -1}, "bad-test must be greater than or equal to 1"),
    ],
)
def test_what_cannot_be_compared(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        SMALL.changed(**changes)
