"""Columns from files: the same counts and the same digests, whatever the format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.errors import BadInput, Unrecognized
from nonvacuous.evaluation import tables

from .worlds import classes

pa = pytest.importorskip("pyarrow")
FORMATS = ["csv", "tsv", "parquet", "npz", "jsonl"]


def written(folder: Path, kind: str) -> Path:
    import pyarrow.parquet as parquet

    predictions, labels, sites = classes(900)
    columns = {"pred": predictions, "label": labels, "site": sites}
    path = folder / f"rows.{kind}"
    if kind in ("csv", "tsv"):
        separator = "," if kind == "csv" else "\t"
        rows = zip(*columns.values(), strict=True)
        lines = [separator.join(columns), *(separator.join(map(str, row)) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    elif kind == "parquet":
        parquet.write_table(pa.table(columns), path, row_group_size=128)
    elif kind == "npz":
        np.savez(path, **columns)
    else:
        rows = zip(*(c.tolist() for c in columns.values()), strict=True)
        path.write_text(
            "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
        )
    return path


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_certificate(tmp_path, kind: str, monkeypatch) -> None:
    predictions, labels, sites = classes(900)
    expected = nv.evaluate(
        predictions=predictions, labels=labels, groups={"site": sites}, unseen=True
    )
    path = written(tmp_path, kind)
    monkeypatch.setattr(tables, "BATCH", 100)
    call = {"predictions": "pred", "labels": "label", "groups": ["site"], "unseen": True}
    report = nv.evaluate(data=path, **call)
    assert report.evaluation.digests == expected.evaluation.digests
    assert report.evaluation.groups == expected.evaluation.groups
    assert report.risk_upper == expected.risk_upper
    report.save(tmp_path / "c.json")
    assert nv.verify(tmp_path / "c.json", data=path).verified
    with pytest.raises(Unrecognized, match="Did you mean 'pred'"):
        nv.evaluate(data=path, predictions="prd", labels="label")


def test_a_table_of_columns(tmp_path) -> None:
    predictions, labels, sites = classes(200)
    table = {"p": predictions, "y": labels, "s": sites}
    report = nv.evaluate(data=table, predictions="p", labels="y", groups={"site": "s"}, unseen=True)
    assert set(report.groups["site"]) == {"A", "B", "C"}


def test_a_pandas_frame() -> None:
    pandas = pytest.importorskip("pandas")
    predictions, labels, sites = classes(200)
    frame = pandas.DataFrame({"p": predictions, "y": labels, "site": sites})
    report = nv.evaluate(data=frame, predictions="p", labels="y", groups=["site"], unseen=True)
    arrays = nv.evaluate(
        predictions=frame["p"], labels=frame["y"], groups={"site": frame["site"]}, unseen=True
    )
    assert report.evaluation.digests == arrays.evaluation.digests
    assert nv.verify(report, data=frame).verified


def test_nested_fields_of_logs(tmp_path) -> None:
    path = tmp_path / "samples.jsonl"
    rows = [{"doc": {"id": i}, "acc": float(i % 10 > 0)} for i in range(100)]
    path.write_text("\n".join(map(json.dumps, rows)))
    report = nv.evaluate(
        data=path, losses="acc", ids="doc.id", unseen=True, settings={"metric": "success"}
    )
    assert report.empirical.errors == 10


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", b"", "empty"),
        ("header.csv", b"pred,label\n", "no examples"),
        ("torn.csv", b"pred,label\n1,1\n1\n", "CSV"),
        ("no.parquet", b"not parquet at all", "parquet"),
        ("bad.npz", b"zip?", "npz"),
        ("bad.jsonl", b'{"pred": 1, "label": 1}\n{"pred": 1', "line 2"),
        ("short.jsonl", b'{"pred": 1, "label": 1}\n{"pred": 1}', "line 2"),
        ("hole.csv", b"pred,label\n1,1\n,1\n", "1 missing or infinite.* Leave the row out"),
        (
            "holes.csv",
            b"pred,label\na,a\n,a\n,b\n",
            "2 missing .*line 3 of .*s.csv. Give them a",
        ),
        ("words.xlsx", b"x", "are read"),
    ],
)
def test_damaged_files_are_explained(tmp_path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadInput, match=words):
        nv.evaluate(data=path, predictions="pred", labels="label")
    with pytest.raises(BadInput, match="no file"):
        nv.evaluate(data=tmp_path / "missing.csv", predictions="pred", labels="label")


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.csv", 'site,loss\na,0\nb,0\nb,"2"\n', 4),
        ("blank.csv", 'site,loss\n\na,0\n\n"b\nb",0\nb,0\nb,2\n', 8),
        ("a.tsv", "site\tloss\nb\t0\nb\t2\n", 3),
        ("a.jsonl", '{"site": "a", "loss": 0}\n\n{"site": "b", "loss": 2}\n', 3),
    ],
)
def test_a_bad_row_is_named_as_an_editor_shows_it(
    tmp_path, name: str, content: str, line: int
) -> None:
    path = tmp_path / name
    path.write_text(content)
    for where in ((), ("site=b",)):
        settings = {"metric": "loss", "where": where}
        with pytest.raises(BadInput, match=f"declared: line {line} of {path} has"):
            nv.evaluate(data=path, losses="loss", settings=settings)


def test_rows_of_arrays_are_counted_over_all_batches(monkeypatch) -> None:
    monkeypatch.setattr(tables, "BATCH", 3)
    with pytest.raises(BadInput, match=r"the first in row 7 \(counted from 0\)"):
        nv.evaluate(losses=[0.0] * 7 + [np.nan], settings={"metric": "loss"})


BALANCED = {"metric": "balanced error", "classes": ("pear", "fig", "apple")}


@pytest.mark.parametrize("settings", [{}, BALANCED, {"metric": "event"}])
def test_names_and_clusters_count_alike_in_every_format(tmp_path, settings: dict) -> None:
    """Words come in another order from arrow than from numpy: no number may depend on it."""
    import pyarrow.parquet as parquet

    generator = np.random.default_rng(0)
    labels = generator.choice(["pear", "apple", "fig"], 300)
    predictions = np.where(generator.random(300) < 0.1, "fig", labels)
    patients = generator.choice([f"patient {i}" for i in range(90)], 300)
    columns = {"p": predictions, "y": labels, "c": patients}
    columns["e"] = (predictions != labels).astype(int)
    call = {"predictions": "p", "labels": "y", "unseen": True, "settings": settings}
    if settings.get("metric") == "event":
        call = {"losses": "e", "clusters": "c", "unseen": True, "settings": settings}
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(columns), path, row_group_size=70)
    report = nv.evaluate(data=path, **call, folder=tmp_path / "run")
    again = nv.evaluate(data=columns, **call)
    assert again.risk_upper == report.risk_upper and again.baseline == report.baseline
    assert nv.verify(tmp_path / "run").verified


def test_a_table_without_a_row_is_not_printed() -> None:
    table = {"a": [0, 1] * 500, "b": [0, 1] * 500, "site": ["north", "south"] * 500}
    call = {"data": table, "predictions": "a", "labels": "b", "unseen": True}
    with pytest.raises(BadInput, match=r"^the table has no row with site=west") as caught:
        nv.evaluate(**call, settings={"where": ("site=west",)})
    assert len(str(caught.value)) < 80
