"""A folder belongs to the experiment whose settings stand in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nonvacuous.claims import SETTINGS, claim_folder
from nonvacuous.errors import BadInput

RESULTS = ("cells/*.json",)


def _claim(
    folder: Path, *, resume: bool = False, force: bool = False, rate: float = 0.1, shown: int = 1
) -> None:
    claim_folder(
        folder,
        {"rate": rate, "sizes": (1, 2), "shown": shown},
        results=RESULTS,
        may_change={"shown"},
        resume=resume,
        force=force,
    )


def _result(folder: Path) -> Path:
    path = folder / "cells" / "one.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


def test_a_second_experiment_needs_to_say_what_it_wants(tmp_path: Path) -> None:
    _claim(tmp_path)
    with pytest.raises(BadInput, match="go on with it"):
        _claim(tmp_path)


def test_the_same_settings_go_on_and_tuples_count_as_lists(tmp_path: Path) -> None:
    _claim(tmp_path)
    kept = _result(tmp_path)
    _claim(tmp_path, resume=True, shown=2)
    assert kept.is_file()
    assert '"shown": 2' in (tmp_path / SETTINGS.name).read_text()


def test_other_settings_are_named_and_nothing_is_touched(tmp_path: Path) -> None:
    _claim(tmp_path)
    kept, before = _result(tmp_path), (tmp_path / SETTINGS.name).read_text()
    with pytest.raises(BadInput, match=r"other settings \(rate\)"):
        _claim(tmp_path, resume=True, rate=0.2)
    assert kept.is_file()
    assert (tmp_path / SETTINGS.name).read_text() == before


def test_overwriting_leaves_no_old_result_for_a_later_resume(tmp_path: Path) -> None:
    _claim(tmp_path)
    old = _result(tmp_path)
    _claim(tmp_path, force=True, rate=0.2)
    assert not old.exists()


def test_results_without_their_settings_are_not_trusted(tmp_path: Path) -> None:
    kept = _result(tmp_path)
    with pytest.raises(BadInput, match="not the settings"):
        _claim(tmp_path, resume=True)
    assert kept.is_file()
