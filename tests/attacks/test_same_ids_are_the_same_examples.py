"""The best of many predictors on the same examples, told by their ids alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.evaluation.audit import PAID
from nonvacuous.evaluation.likeness import Unordered


def _paid(report: nv.Certificate) -> str:
    return next(a.status for a in report.assumptions if a.name == PAID)


def _losses(seed: int, size: int = 300) -> np.ndarray:
    return (np.random.default_rng(seed).random(size) < 0.1).astype(int)


@pytest.mark.parametrize("words", [False, True])
def test_losses_of_many_predictors_on_the_same_ids_are_a_search(tmp_path, words: bool) -> None:
    ids = np.arange(300).astype(str) if words else np.arange(300)
    reports = []
    for number in range(3):
        order = np.random.default_rng(number).permutation(300)
        reports.append(
            nv.evaluate(
                losses=_losses(number)[order],
                ids=ids[order],
                unseen=True,
                settings={"metric": "event"},
                folder=tmp_path / str(number),
            )
        )
    assert [r.status for r in reports] == ["valid", "conditional", "conditional"]
    assert [_paid(r) for r in reports] == ["checked", "violated", "violated"]
    others = nv.evaluate(
        losses=_losses(9),
        ids=np.r_[ids[:-1], ["another"] if words else [300]],
        unseen=True,
        settings={"metric": "event"},
        folder=tmp_path / "others",
    )
    assert others.status == "valid" and _paid(others) == "checked"


def test_a_regressor_tested_in_another_order_is_found(tmp_path: Path) -> None:
    labels, ids = np.random.default_rng(0).normal(size=300), np.arange(300)
    status = []
    for number in range(2):
        generator = np.random.default_rng(number)
        order = generator.permutation(300)
        report = nv.evaluate(
            predictions=(labels + 0.1 * generator.normal(size=300))[order],
            labels=labels[order],
            ids=ids[order],
            unseen=True,
            settings={"metric": "absolute error", "range": (0, 1)},
            folder=tmp_path / str(number),
        )
        status.append(report.status)
    assert status == ["valid", "conditional"]


def test_losses_without_ids_are_not_called_checked(tmp_path: Path) -> None:
    call = {"losses": _losses(0), "unseen": True, "settings": {"metric": "event"}}
    report = nv.evaluate(**call, folder=tmp_path / "run")
    assert report.status == "valid" and _paid(report) == "asserted"
    again = nv.evaluate(**call, folder=tmp_path / "again")
    assert again.status == "valid" and _paid(again) == "asserted"


def test_the_same_test_again_is_one_test(tmp_path: Path) -> None:
    call = {"losses": _losses(0), "ids": np.arange(300), "settings": {"metric": "event"}}
    for name in ("run", "again"):
        assert nv.evaluate(**call, unseen=True, folder=tmp_path / name).status == "valid"


def test_ids_are_the_same_in_every_process_and_order() -> None:
    code = (
        "import numpy as np; from nonvacuous.evaluation.likeness import Unordered; u = Unordered();"
        "u.add(np.array(['b', 'c'])); u.add(np.array(['a'])); print(u.hexdigest())"
    )
    here = Unordered()
    here.add(np.array(["a", "b", "c"]))
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == here.hexdigest()
    twice = Unordered()
    twice.add(np.array(["a", "b", "c", "c"]))
    assert twice.hexdigest() != here.hexdigest()
