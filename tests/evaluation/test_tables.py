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
        ("twice.csv", b"pred,label,label\n1,1,0\n", "2 columns 'label'"),
        ("twice.jsonl", b'{"pred": 1, "pred": 0, "label": 0}', "line 1.*'pred' occurs twice"),
        ("latin.jsonl", '{"pred": "\u00e9", "label": "b"}'.encode("latin-1"), "not UTF-8"),
        ("deep.jsonl", b'{"pred": ' + b"[" * 100_000, "line 1 is nested too deeply"),
        ("long.jsonl", b'{"pred": ' + b"1" * 5000 + b', "label": 1}', "line 1 is not JSON"),
        (
            "ragged.jsonl",
            b'{"pred": [1, 2], "label": 1}\n{"pred": [1], "label": 1}',
            "lists of 'pred' have different lengths",
        ),
        (
            "nan.jsonl",
            b'{"pred": "b", "label": "b"}\n{"pred": NaN, "label": NaN}\n' * 20,
            "missing value",
        ),
        (
            "mixed.jsonl",
            b'{"pred": 1, "label": 1}\n{"pred": "a", "label": "a"}\n',
            "mixes values of the kinds",
        ),
        ("nested.jsonl", b'{"pred": ["a", NaN], "label": "a"}\n', "mix words with other values"),
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


def test_a_header_with_spaces_after_its_commas(tmp_path) -> None:
    (path := tmp_path / "a.csv").write_text("pred, the label, c\n1,1,x\n0,0,y\n")
    call = {"predictions": "pred", "labels": "the label", "unseen": True}
    assert nv.evaluate(data=path, **call).empirical.errors == 0
    path.write_text('\npred,"the label","a, b"\n1,1,x\n0,0,y\n')
    report = nv.evaluate(data=path, **call, groups=["a, b"])
    assert set(report.groups["a, b"]) == {"x", "y"}
    path.write_text("pred,label, label\n1,1,0\n0,0,1\n")
    with pytest.raises(BadInput, match="2 columns 'label'"):
        nv.evaluate(data=path, predictions="pred", labels="label")


def test_two_conditions_on_one_column_are_refused() -> None:
    table = {"p": [0, 1] * 100, "y": [0, 1] * 100, "s": ["A"] * 150 + ["B"] * 50}
    with pytest.raises(BadInput, match="two conditions on 's', 'A' and 'B'"):
        nv.evaluate(
            data=table, predictions="p", labels="y", settings={"where": ("s=A", "s=B")}, unseen=True
        )


@pytest.mark.parametrize(
    ("predictions", "words"),
    [({0, 1}, "predictions is a set"), ({"a": 0, "b": 1}, "predictions is a dict")],
)
def test_columns_without_an_order_are_refused(predictions: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        nv.evaluate(predictions=predictions, labels=[0, 1])


@pytest.mark.parametrize("table", [5, [{"p": 1, "y": 1}], np.zeros((3, 2))])
def test_what_is_no_table_is_refused(table: object) -> None:
    with pytest.raises(BadInput, match="a file or a table of columns"):
        nv.evaluate(data=table, predictions="p", labels="y")


def test_series_that_name_their_rows_differently_are_not_paired_by_position() -> None:
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series([0, 1, 2] * 50)
    shuffled = labels.sample(frac=1, random_state=0)
    with pytest.raises(BadInput, match=r"predictions and labels name their rows.*\.loc\[a.index"):
        nv.evaluate(predictions=shuffled, labels=labels)
    for predictions in (shuffled.loc[labels.index], labels.copy(), labels.to_numpy()):
        assert nv.evaluate(predictions=predictions, labels=labels).empirical.errors == 0


@pytest.mark.parametrize("role", ["labels", "site", "clusters"])
def test_numbers_and_words_of_different_batches_have_no_common_names(
    tmp_path, monkeypatch, role: str
) -> None:
    monkeypatch.setattr(tables, "BATCH", 3)
    kinds = {"predictions": 1, "labels": 1, "site": 1, "clusters": 1}
    rows = [kinds] * 3 + [kinds | ({role: "1"} if role != "labels" else dict.fromkeys(kinds, "1"))]
    (path := tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = {"predictions": "predictions", "labels": "labels", "groups": ["site"]}
    with pytest.raises(BadInput, match="mixes numbers and words"):
        nv.evaluate(data=path, **call, clusters="clusters")
    with pytest.raises(BadInput, match="mixes numbers and words"):
        tables.read_columns(path, {name: name for name in kinds})


def test_groups_that_pandas_wrote_as_floats_are_named_alike_in_every_format(tmp_path) -> None:
    import pyarrow.parquet as parquet

    columns = {"p": [1, 0] * 20, "l": [1, 1] * 20, "g": [1.0, 2.0] * 20, "v": [1.1, 1.0] * 20}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    text = "1,1,1.0,1.1\n0,1,2.0,1.1\n" * 20
    (tmp_path / "a.csv").write_text("p,l,g,v\n" + text.replace("1,1,1.0,1.1", "1,1,1.0,1.10"))
    call = {"predictions": "p", "labels": "l", "groups": ["g", "v"], "unseen": True}
    first, second = (
        nv.evaluate(data=tmp_path / f"a.{kind}", **call) for kind in ("parquet", "csv")
    )
    assert set(first.groups["g"]) == set(second.groups["g"]) == {"1", "2"}
    assert first.evaluation.digests["group:g"] == second.evaluation.digests["group:g"]
    assert set(second.groups["v"]) == {"1.1", "1.10"}  # which are names, as of versions


LOST = {
    "a mask": (np.ma.array([0, 1] * 20, mask=[True] + [False] * 39), "1 missing or infinite"),
    "a float": (["a", float("nan")] + ["a"] * 38, "1 missing value"),
    "a number among words": (["a", 1] * 20, "mixes values of the kinds int, str"),
}


@pytest.mark.parametrize("name", LOST)
def test_a_condition_hides_no_value_that_is_missing(name: str) -> None:
    labels, words = LOST[name]
    table = {
        "y": labels,
        "p": ["a"] * 40 if isinstance(labels, list) else [0] * 40,
        "s": ["x"] * 40,
    }
    call = {"data": table, "labels": "y", "predictions": "p"}
    for where in ((), ("s=x",)):
        with pytest.raises(BadInput, match=words):
            nv.evaluate(**call, settings={"where": where})


def test_what_pandas_calls_missing_is_said_to_be_missing() -> None:
    pandas = pytest.importorskip("pandas")
    for values, kind in (([1, None], "Int64"), (["a", None], "string")):
        with pytest.raises(BadInput, match=r"labels has 1 missing .*the first in row 1"):
            nv.evaluate(predictions=["a", "a"], labels=pandas.Series(values, dtype=kind))


@pytest.mark.parametrize("harm", ["cut", "changed", "packed", "one array", "pages"])
def test_damaged_archives_are_no_tracebacks(tmp_path, harm: str) -> None:
    import pyarrow.parquet as parquet

    columns = {"pred": np.arange(2000) % 7, "label": np.arange(2000) % 7}
    path = tmp_path / ("rows.parquet" if harm == "pages" else "rows.npz")
    if harm == "pages":
        parquet.write_table(pa.table(columns), path, use_dictionary=False)
    elif harm == "one array":
        with open(path, "wb") as stream:
            np.save(stream, columns["pred"])
    else:
        (np.savez_compressed if harm == "packed" else np.savez)(path, **columns)
    content = bytearray(path.read_bytes())
    start, stop = {"pages": (60, 90), "changed": (200, 201), "packed": (60, 90)}.get(harm, (0, 0))
    content[start:stop] = b"\xff" * (stop - start)
    path.write_bytes(content[:200] if harm == "cut" else content)
    with pytest.raises(BadInput, match=r"rows\.\w+ (cannot be read as npz|is not parquet)"):
        nv.evaluate(data=path, predictions="pred", labels="label")


def test_long_texts_of_several_lines_swallow_nothing(tmp_path) -> None:
    """Documents beside the columns: longer than what Python's reader of CSV takes by itself."""
    document = '"' + "a line of it\n" * 20_000 + '"'
    rows = [f"{document if row == 3 else 'short'},{row % 2},{row % 2}" for row in range(60)]
    (path := tmp_path / "a.csv").write_text("\n".join(["text,pred,label", *rows]))
    call = {"data": path, "predictions": "pred", "labels": "label", "unseen": True}
    assert nv.evaluate(**call).empirical.trials == 60
    path.write_text("\n".join(["text,pred,label", *rows, "short,,1"]))
    with pytest.raises(BadInput, match=f"line 20062 of {path}"):
        nv.evaluate(**call)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_condition_is_written_as_the_file_writes_it(tmp_path, kind: str) -> None:
    import pyarrow.parquet as parquet

    columns = {"p": [1, 0] * 20, "y": [1, 1] * 20, "flag": [True, False] * 20}
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.table(columns), path)
    elif kind == "csv":
        path.write_text("p,y,flag\n" + "1,1,true\n0,1,false\n" * 20)
    else:
        rows = zip(*columns.values(), strict=True)
        path.write_text("\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows))
    call = {"data": path, "predictions": "p", "labels": "y", "unseen": True}
    for written in ("true", "True"):
        settings = {"where": (f"flag={written}",)}
        report = nv.evaluate(**call, settings=settings, folder=tmp_path / written / "run")
        assert (report.empirical.errors, report.empirical.trials) == (0, 20)
        assert nv.verify(report, data=path).verified


def test_a_frame_without_names_has_numbers_for_columns() -> None:
    pandas = pytest.importorskip("pandas")
    labels = np.arange(400) % 2
    frame = pandas.DataFrame(np.stack([labels, labels, labels], axis=1))
    report = nv.evaluate(data=frame, predictions=0, labels=1, unseen=True)
    assert report.empirical.errors == 0
    frame.columns = [0, 1, "1"]
    with pytest.raises(BadInput, match="2 columns '1'"):
        nv.evaluate(data=frame, predictions=0, labels=1)


def test_names_of_other_kinds_are_asked_for_as_words() -> None:
    pandas = pytest.importorskip("pandas")
    labels = np.arange(400) % 2
    for column in pandas.cut(labels, 2), pandas.to_datetime(labels, unit="D"):
        with pytest.raises(BadInput, match=r"g (has|holds) .* as in .astype\(str\)"):
            nv.evaluate(predictions=labels, labels=labels, groups={"g": column})


@pytest.mark.filterwarnings("error")
def test_half_precision_is_read_without_a_warning() -> None:
    labels = np.arange(400) % 2
    assert nv.evaluate(predictions=labels.astype(np.float16), labels=labels).risk_upper < 0.01
