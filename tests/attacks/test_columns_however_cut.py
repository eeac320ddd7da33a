"""One column, cut into other batches or named elsewhere, is the same column; another is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.evaluation import tables
from nonvacuous.evaluation.coding import ColumnDigest, plain
from tests.evaluation.worlds import classes


def _digest(*batches: Any) -> str:
    digest = ColumnDigest()
    for batch in batches:
        digest.update(plain(np.array(batch), "column"))
    return digest.hexdigest()


@pytest.mark.parametrize(
    "batches",
    [
        ([1, 2], [0.5, 3], [4, 5]),
        ([1.0, 2.0, 0.5], [3, 4, 5]),
        ([1.0], [2], [0.5], [3, 4, 5]),
        ([1, 2, 0.5, 3], [4], [5]),
    ],
)
def test_numbers_have_one_digest_however_they_are_cut_and_typed(batches) -> None:
    values = [value for batch in batches for value in batch]
    assert _digest(*batches) == _digest(values)
    assert _digest(*batches) != _digest(values[::-1])
    assert _digest(*batches) != _digest([*values[:-1], values[-1] + 1])


def test_whole_numbers_and_fractions_keep_the_digests_of_older_versions() -> None:
    assert (
        _digest([1, 2, 3])
        == _digest([1.0, 2.0], [3])
        == ("33456418b49174acede859e391d6c6612d4fdf33be79450f75ff6029dc6cf578")
    )
    assert _digest([0.5, 2.0]) == (
        "dbf4f046175a9bc74391104b4fe485645a411fca993ae7ecb2c046e7139dd39c"
    )


def test_a_loader_with_a_batch_of_whole_answers_verifies(tmp_path: Path) -> None:
    """A regressor's answers are fractions, but for those of one batch."""
    inputs = np.random.default_rng(0).normal(size=400)
    labels = np.round(inputs * 4) / 4
    batches = [(inputs[i : i + 4], labels[i : i + 4]) for i in range(0, 400, 4)]
    assert any((batch % 1 == 0).all() for _, batch in batches)
    nv.evaluate(
        lambda rows: np.round(rows * 2) / 2,
        batches,
        unseen=True,
        settings={"metric": "absolute error", "range": (0, 2)},
        folder=tmp_path / "run",
    )
    assert nv.verify(tmp_path / "run").verified


def test_groups_of_numbers_have_the_same_names_in_other_batches(tmp_path: Path, monkeypatch):
    predictions, labels, _ = classes(300)
    doses = np.r_[np.ones(150), np.full(150, 0.5)]
    call = {"predictions": predictions, "labels": labels, "groups": {"dose": doses}}
    with monkeypatch.context() as patch:
        patch.setattr(tables, "BATCH", 100)
        nv.evaluate(**call, unseen=True, folder=tmp_path / "run")
    assert nv.verify(tmp_path / "run").verified
    report = nv.Certificate.load(tmp_path / "run/certificate.json")
    assert list(report.evaluation.groups["dose"]) == ["0.5", "1.0"]


def test_columns_that_an_older_version_cut_in_batches_verify(monkeypatch) -> None:
    """Its digest depends on the cut: whoever reads the same batches finds it again."""
    predictions, labels, _ = classes(200)
    columns = {"predictions": predictions, "labels": labels}
    doses = np.r_[np.ones(100), np.full(100, 0.5)]
    monkeypatch.setattr(tables, "BATCH", 100)
    with monkeypatch.context() as patch:
        patch.setattr(ColumnDigest, "hexdigest", ColumnDigest.as_cut)
        report = nv.evaluate(**columns, groups={"dose": doses}, unseen=True)
    assert nv.verify(report, data=columns | {"dose": doses}).verified
    assert not nv.verify(report, data=columns | {"dose": np.roll(doses, 1)}).passed


def test_a_report_from_arrays_verifies_from_tables_that_call_groups_by_their_names(
    tmp_path: Path,
) -> None:
    predictions, labels, sites = classes(300)
    report = nv.evaluate(
        predictions=predictions, labels=labels, groups={"site": sites}, unseen=True
    )
    columns = {"predictions": predictions, "labels": labels, "site": sites}
    table = pytest.importorskip("pandas").DataFrame(columns)
    table.to_csv(tmp_path / "answers.csv", index=False)
    for evidence in (columns, table, tmp_path / "answers.csv"):
        assert nv.verify(report, data=evidence).verified
    table["site"] = table["site"].to_numpy()[::-1]
    other = nv.verify(report, data=table)
    assert [f.field for f in other.failures] == ["evaluation.digests"]


def test_a_users_file_called_like_ours_verifies(tmp_path: Path) -> None:
    predictions, labels, _ = classes(300)
    named = {"predictions": "p", "labels": "y", "unseen": True}
    np.savez(tmp_path / "columns.npz", p=predictions, y=labels)
    report = nv.evaluate(data=tmp_path / "columns.npz", folder=tmp_path / "run", **named)
    assert nv.verify(report, data=tmp_path / "columns.npz").verified
    assert nv.verify(tmp_path / "run").verified
    assert nv.verify(report, data=tmp_path / "run/columns.npz").verified


def test_another_column_called_predictions_is_left_alone() -> None:
    predictions, labels, _ = classes(300)
    table = {"p": predictions, "y": labels, "predictions": labels}
    report = nv.evaluate(data=table, predictions="p", labels="y", unseen=True)
    assert nv.verify(report, data=table).verified
    assert not nv.verify(report, data={**table, "p": labels}).passed


def test_rows_that_were_chosen_verify_from_the_file_and_from_the_folder(tmp_path: Path) -> None:
    predictions, labels, sites = classes(300)
    table = {"p": predictions, "y": labels, "site": sites}
    report = nv.evaluate(
        data=table,
        predictions="p",
        labels="y",
        unseen=True,
        settings={"where": ("site=A",)},
        folder=tmp_path / "run",
    )
    assert nv.verify(report, data=table).verified
    assert nv.verify(tmp_path / "run").verified
    missing = nv.verify(report, data={"p": predictions, "y": labels})
    assert "no column 'site'" in missing.failures[0].detail
