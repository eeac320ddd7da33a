"""Names read as other ones: true and false as positions, codes as numbers, rows as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.cli.app import main
from nonvacuous.errors import BadInput

pa = pytest.importorskip("pyarrow")
WORDS = ("True", "False")


def from_file(path: Path, rows: list[str], **call: Any) -> nv.Certificate:
    path.write_text("\n".join(rows) + "\n")
    columns = {"predictions": "prediction", "labels": "label", "unseen": True}
    return nv.evaluate(data=path, **(columns | call))


def test_true_and_false_are_names_and_no_positions(tmp_path: Path) -> None:
    labels = np.arange(600) % 2 == 0
    answers = labels & (np.arange(600) % 5 < 2)  # a recall of true of 0.4
    answers |= ~labels & (np.arange(600) % 300 == 1)
    expected = nv.evaluate(
        predictions=answers * 1,
        labels=labels * 1,
        settings={"metric": "recall", "positive": 1},
        unseen=True,
    ).risk_upper
    for classes in (WORDS, WORDS[::-1], ("false", "true")):
        positive = next(name for name in classes if name.lower() == "true")
        settings = {"metric": "recall", "positive": positive, "classes": classes}
        call = {"settings": settings, "unseen": True}
        report = nv.evaluate(predictions=answers, labels=labels, **call, folder=tmp_path / "run")
        assert report.risk_upper == expected > 0.5
        assert nv.verify(tmp_path / "run").verified
        rows = [f"{a},{b}".lower() for a, b in zip(answers, labels, strict=True)]
        again = from_file(tmp_path / "a.csv", ["prediction,label", *rows], settings=settings)
        assert again.risk_upper == expected
    with pytest.raises(BadInput, match="of which 1 would be another one than true"):
        nv.evaluate(predictions=answers, labels=1 - labels, settings={"classes": WORDS})
    for names in (("yes", "no"), ("a", "true")):
        with pytest.raises(BadInput, match="true or false, which are not among the declared"):
            nv.evaluate(predictions=answers, labels=labels, settings={"classes": names})


def test_true_and_false_beside_a_third_word(tmp_path: Path) -> None:
    rows = ["prediction,label,p", *["true,false,1", "false,true,1"] * 100, "true,unknown,0"]
    settings = {"classes": ("true", "false", "unknown")}
    report = from_file(tmp_path / "a.csv", rows, settings=settings)
    assert report.empirical.errors == 201


def test_true_and_false_beside_numbers_and_in_conditions(tmp_path: Path) -> None:
    rows = ["prediction,label,odd", *["true,1,True", "false,0,True", "true,0,False"] * 50]
    assert from_file(tmp_path / "a.csv", rows).empirical.errors == 50
    report = from_file(tmp_path / "a.csv", rows, settings={"where": ("odd=True",)})
    assert (report.empirical.errors, report.empirical.trials) == (0, 100)
    losses = nv.evaluate(data=tmp_path / "a.csv", losses="odd", settings={"metric": "event"})
    assert losses.empirical.errors == 100


@pytest.mark.parametrize(
    ("answers", "labels"), [("007", "7"), ("12E3", "12000"), ("0x1F", "31"), ("-0", "0")]
)
def test_codes_are_not_the_numbers_that_they_look_like(
    tmp_path: Path, answers: str, labels: str
) -> None:
    rows = ["prediction,label", *[f"{answers},{labels}", "5,5"] * 50]
    with pytest.raises(BadInput, match="predictions are words and labels numbers"):
        from_file(tmp_path / "a.csv", rows)
    settings = {"classes": (answers, labels, "5")}
    assert from_file(tmp_path / "a.csv", rows, settings=settings).empirical.errors == 50


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_one_number_written_in_several_ways_is_refused(tmp_path: Path, kind: str) -> None:
    mark = "," if kind == "csv" else "\t"
    rows = [f"prediction{mark}label", *[f"1{mark}1", f"1.0{mark}1"] * 50]
    with pytest.raises(BadInput, match=r"'prediction' writes one number as '1' and as '1.0'"):
        from_file(tmp_path / f"a.{kind}", rows)


@pytest.mark.parametrize("names", [["007", "7", "07"], ["1.1", "1.10"], ["1E2", "100"]])
def test_groups_and_clusters_keep_their_names(tmp_path: Path, names: list[str]) -> None:
    rows = [f"1,1,{name}" for name in names for _ in range(20)]
    rows = ["prediction,label,site", *rows]
    report = from_file(tmp_path / "a.csv", rows, groups=["site"])
    assert set(report.groups["site"]) == set(names)
    report = from_file(tmp_path / "a.csv", rows, clusters="site", ids="site")
    assert report.empirical.trials == len(names)
    report = from_file(tmp_path / "a.csv", rows, settings={"where": (f"site={names[0]}",)})
    assert report.empirical.trials == 20


def test_large_whole_numbers_stay_apart(tmp_path: Path) -> None:
    patients = [2**64 + i for i in range(60)]
    rows = ["prediction,label,patient", *[f"1,1,{patient}" for patient in patients]]
    report = from_file(tmp_path / "a.csv", rows, clusters="patient", ids="patient")
    assert report.empirical.trials == 60
    rows = ["prediction,label", *[f"{patient},{patient + 1}" for patient in patients]]
    with pytest.raises(BadInput, match="is not one of the declared classes"):
        from_file(tmp_path / "a.csv", rows, settings={"classes": (str(patients[0]),)})
    large = np.array(patients, dtype=float)
    ones = {"predictions": np.ones(60, dtype=int), "labels": np.ones(60, dtype=int)}
    for role in ("clusters", "ids", "groups"):
        column = {"patient": large} if role == "groups" else large
        with pytest.raises(BadInput, match=r"2\^53 and more as floats"):
            nv.evaluate(**ones, **{role: column})
    for column in (large, [1e20, 2e20] * 10, [-1, 2**63] * 10):
        with pytest.raises(BadInput, match=r"2\^53 and more as floats"):
            nv.evaluate(predictions=column, labels=column)


def test_a_missing_group_is_no_name(tmp_path: Path) -> None:
    for site in ("1.0", "1.5", "3"):
        with pytest.raises(BadInput, match="missing"):
            from_file(
                tmp_path / "a.csv",
                ["prediction,label,site", *[f"1,1,{site}", "1,1,NaN"] * 20],
                groups=["site"],
            )


def test_later_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    rows = ["prediction,label,text", *["1,1," + "x" * 1000] * 17_000, "007,1,y"]
    with pytest.raises(BadInput, match="column 'prediction' begins with whole numbers, and"):
        from_file(tmp_path / "a.csv", rows)


def test_texts_swallow_no_rows(tmp_path: Path) -> None:
    """Every fourth text begins with a quotation mark, and so the next line belongs to it."""
    texts = ['"so', 'good" he', "fine", "bad"] * 100
    right = [int(at % 4 in (0, 2)) for at in range(400)]
    rows = [f"{text}\t1\t{own}" for text, own in zip(texts, right, strict=True)]
    with pytest.raises(BadInput, match="400 lines, which read as 300 rows"):
        from_file(tmp_path / "a.tsv", ["text\tprediction\tlabel", *rows])
    rows = [f'"{i} so,1,1\n{i} good" he,1,0' for i in range(200)]
    with pytest.raises(BadInput, match="texts that begin with a quotation mark"):
        from_file(tmp_path / "a.csv", ["text,prediction,label", *rows])


def test_line_breaks_in_other_columns_are_read(tmp_path: Path) -> None:
    text = "a line\n" * 200
    rows = ["text,prediction,label", *[f'"{text}",1,1', f'"{text}",1,0'] * 8000]
    report = from_file(tmp_path / "a.csv", rows)
    assert (report.empirical.errors, report.empirical.trials) == (8000, 16_000)


def test_votes_are_no_ranked_answers() -> None:
    labels = np.arange(900) % 3
    votes = np.eye(3, dtype=int)[(labels + 1) % 3]
    for count, given in ((3, votes), (2, np.eye(2, dtype=int)[1 - labels % 2])):
        settings = {"metric": "top-k", "classes": tuple(range(count))}
        call = {"labels": labels % count, "unseen": True, "settings": settings}
        with pytest.raises(BadInput, match="may be votes or scores, as in row 0"):
            nv.evaluate(predictions=given, **call)
        for scores in (given.astype(float), given.astype(bool)):
            assert nv.evaluate(predictions=scores, **call).empirical.errors > 600 * (count == 3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"prediction;label\n1;1\n", "separated by ';': save it with commas"),
        (b"prediction\tlabel\n1\t1\n", "separated by tabs: call it .tsv"),
        ("prediction,label\n\u00e9,a\n".encode("latin-1"), "not UTF-8: save it as 'CSV UTF-8'"),
        ("prediction,label\n1,1\n".encode("utf-16"), "not UTF-8: save it as 'CSV UTF-8'"),
        (b"prediction,label\n" + b"a,a\n" * 9000 + b"\xe9,a\n", "save it as 'CSV UTF-8'"),
        (b"prediction,label\n1.5,2.5\n", "--metric 'absolute error' --range LOW HIGH"),
    ],
)
def test_files_from_spreadsheets_are_explained(
    tmp_path: Path, content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "a.csv").write_bytes(content)
    assert main(["evaluate", str(path)]) > 0
    assert said in " ".join(capsys.readouterr().err.split())


def test_measurements_may_be_written_in_any_way(tmp_path: Path) -> None:
    """What is measured has no names: -0, 0012.5 and 1e1 are numbers, 3 and 3.0 the same one."""
    rows = ["prediction,label", *["-0,0", "0012.5,12.5", "1e1,10", "3,3.0", "3.0,3"] * 40]
    settings = {"metric": "absolute error", "range": (0, 50)}
    report = from_file(tmp_path / "a.csv", rows, settings=settings)
    assert report.empirical.amount == 0.0
    report.save(tmp_path / "test.json")
    assert nv.verify(tmp_path / "test.json", data=tmp_path / "a.csv").verified
    later = ["loss", *["0"] * 300, *["0.5"] * 300]
    (tmp_path / "b.csv").write_text("\n".join(later))
    losses = nv.evaluate(data=tmp_path / "b.csv", losses="loss", settings={"metric": "loss"})
    assert losses.empirical.amount == 150.0
