"""The commands evaluate, compare, plan and monitor: results, gates, files, errors."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nonvacuous.bounds.rounding import shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.cli.app import main
from tests.evaluation.worlds import classes


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    predictions, labels, sites = classes(1200, errors=0.05)
    other, _, _ = classes(1200, errors=0.01)
    path = tmp_path / "rows.csv"
    columns = zip(predictions, labels, other, sites, range(1200), strict=True)
    lines = ["prediction,label,new,site,id", *(",".join(map(str, row)) for row in columns)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_evaluate_writes_verifies_and_reports(rows: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "runs" / "one"
    command = ["evaluate", str(rows), "--group", "site", "--id", "id", "--unseen"]
    assert main([*command, "--out", str(out), "--name", "net"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("VALID: error rate of net <= ")
    groups = Certificate.load(out / "certificate.json").groups["site"]
    parts = sorted(groups.items(), key=lambda item: -item[1].risk_upper)
    named = [f"{n} <= {shown_up(p.risk_upper)} ({p.errors:g} in {p.examples})" for n, p in parts]
    more = [f"{len(named) - 4} more"] if len(named) > 4 else []
    assert said.splitlines()[-1] == f"by site, each alone: {', '.join(named[:4] + more)}"
    page = (out / "report.html").read_text()
    assert "is wrong on fewer than" in page and "For whom?" in page
    assert main(["verify", str(out)]) == 0
    assert "VERIFIED" in capsys.readouterr().out
    assert main(["verify", str(out), "--data", str(rows)]) == 0
    assert main(["verify", str(out / "certificate.json")]) == 0
    (alone := tmp_path / "alone.json").write_bytes((out / "certificate.json").read_bytes())
    capsys.readouterr()
    assert main(["verify", str(alone)]) == 5
    assert capsys.readouterr().err == f"Next:  nonvacuous verify {alone} --data SOURCE\n"
    assert main(["report", str(out)]) == 0
    assert main([*command, "--out", str(out)]) == 2
    assert "already" in capsys.readouterr().err
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mode"] == "evaluate"


ALL = [word for name in range(5) for word in ("--classes", str(name))]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--max-risk", "0.09", "--unseen"], 0),
        (["--max-risk", "0.05", "--unseen"], 3),
        (["--max-risk", "0.09"], 3),
        (["--max-risk", "nan", "--unseen"], 2),
        (["--max-risk", "5", "--unseen"], 2),
        (["--max-group-risk", "nan", "--group", "site", "--unseen"], 2),
        (["--max-group-risk", "-0.1", "--group", "site", "--unseen"], 2),
        (["--max-risk", "0.09", "--allow-conditional"], 0),
        (["--max-group-risk", "0.12", "--group", "site", "--unseen"], 0),
        (["--max-group-risk", "0.06", "--group", "site", "--unseen"], 3),
        (["--max-group-risk", "0.06", "--unseen"], 2),
        (["--metric", "balanced error", *ALL, "--max-risk", "0.1", "--unseen"], 0),
        (["--metric", "balanced error", "--max-risk", "0.1", "--unseen"], 1),
        (["--metric", "recall"], 2),
        (["--metric", "auc"], 2),
        (["--metric", "Balanced-Accuracy", *ALL, "--max-risk", "0.1", "--unseen"], 0),
        (["--predictions", "predicton"], 2),
        (["--confidence", "1.5"], 2),
    ],
)
def test_gates_and_mistakes_have_their_exit_codes(rows: Path, flags: list[str], code: int) -> None:
    assert main(["evaluate", str(rows), *flags]) == code


@pytest.mark.slow
def test_scores_and_the_promise_inherited(rows: Path, tmp_path: Path, capsys) -> None:
    log = tmp_path / "samples.jsonl"
    log.write_text("".join(json.dumps({"acc": float(i % 20 > 0)}) + "\n" for i in range(400)))
    assert main(["evaluate", str(log), "--score", "acc", "--unseen", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["empirical"]["errors"] == 20
    out = tmp_path / "runs" / "two"
    assert main(["evaluate", str(rows), "--unseen", "--out", str(out)]) == 0
    capsys.readouterr()
    command = ["evaluate", str(rows), "--certified", str(out), "--predictions", "new"]
    assert main([*command, "--old", "prediction"]) == 0
    assert "they differ on" in (said := capsys.readouterr().out)
    named = ["evaluate", "--certified", str(out), "--unlabeled", str(rows), "--predictions", "new"]
    assert main([*named, "--old", "prediction"]) == 0
    assert capsys.readouterr().out == said
    assert main([*named, "--old", "prediction", "--max-risk", "0.001"]) == 3
    assert "above --max-risk 0.001" in capsys.readouterr().err
    assert main(["verify", str(out), "--data", str(rows), "--model", "my_model:build"]) == 2
    assert "Leave it out" in capsys.readouterr().err
    assert main(command) == 2
    assert main(["evaluate", str(rows), "--unlabeled", str(rows)]) == 2
    assert main(["evaluate"]) == 2


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--score", "acc"], 0),
        (["--score", "acc", "--metric", "score"], 0),
        (["--score", "acc", "--metric", "event"], 2),
        (["--score", "acc", "--metric", "loss"], 2),
        (["--score", "acc", "--metric", "f1"], 2),
        (["--loss", "acc", "--metric", "event"], 0),
        (["--loss", "acc", "--metric", "success"], 2),
        (["--loss", "acc", "--score", "acc"], 2),
    ],
)
def test_a_column_has_one_meaning(tmp_path: Path, flags: list[str], code: int) -> None:
    (log := tmp_path / "a.csv").write_text("acc\n" + "1\n" * 90 + "0\n" * 10)
    assert main(["evaluate", str(log), *flags, "--unseen"]) == code


def test_a_folder_with_a_space_can_be_verified(rows: Path, tmp_path: Path, capsys) -> None:
    assert main(["evaluate", str(rows), "--unseen", "--out", str(tmp_path / "my report")]) == 0
    following = capsys.readouterr().err.splitlines()[-1].removeprefix("Next:  nonvacuous ")
    assert main(shlex.split(following)) in (0, 5)


def test_what_is_inherited_is_about_the_same_rows(rows: Path, tmp_path: Path, capsys) -> None:
    command, out = ["evaluate", str(rows), "--where", "site=A"], tmp_path / "runs" / "one"
    assert main([*command, "--unseen", "--out", str(out)]) == 0
    assert main([*command, "--certified", str(out), "--predictions", "new", "--old", "label"]) == 0
    assert "About examples with site=A alone" in capsys.readouterr().out


def test_what_is_inherited_from_a_conditional_report_passes_no_gate(
    rows: Path, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "runs" / "two"
    assert main(["evaluate", str(rows), "--out", str(out)]) == 0
    command = ["evaluate", str(rows), "--certified", str(out), "--predictions", "new"]
    command += ["--old", "prediction"]
    assert main([*command, "--max-risk", "0.5"]) == 3
    assert "Gate: the certificate is conditional" in capsys.readouterr().err
    assert main([*command, "--max-risk", "0.5", "--allow-conditional"]) == 0
    assert main([*command, "--max-risk", "nan", "--allow-conditional"]) == 2
    capsys.readouterr()
    assert main([*command, "--max-group-risk", "0.5"]) == 2
    assert "--max-group-risk is not read where" in capsys.readouterr().err


def test_compare_one_file_and_two(rows: Path, tmp_path: Path, capsys) -> None:
    command = ["compare", str(rows), "--first", "prediction"]
    assert main([*command, "--second", "new", "--group", "site"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("new errs less, by ") and "site A" in out
    assert main([*command, "--second", "new", "--confidence", "0.9999999"]) == 0
    assert "with confidence 0.9999999, " in capsys.readouterr().out
    drawn = tmp_path / "compare.html"
    assert main([*command, "--second", "new", "--group", "site", "--page", str(drawn)]) == 0
    assert f"The page of this comparison: {drawn}" in capsys.readouterr().err
    assert main([*command, "--second", "new", "--page", str(drawn)]) == 2
    assert (
        main([*command, "--second", "new", "--group", "site", "--page", str(drawn), "--force"]) == 0
    )
    verdict = out.partition(" (")[0].removeprefix("new")
    assert f"<h1><bdi>New{verdict}.</bdi></h1>" in drawn.read_text("utf-8")
    assert capsys.readouterr().out == out
    other = tmp_path / "other.csv"
    lines = rows.read_text().splitlines()
    other.write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    paired = [*command[:2], str(other), "--first", "prediction", "--second", "new", "--id", "id"]
    assert main([*paired, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["examples"] == 1200 and record["names"] == ["rows", "other"]
    assert main(paired[:-2]) == 2
    other.write_text("\n".join(lines[:-1]) + "\n")
    assert main(paired) == 1
    assert "same examples" in capsys.readouterr().err


def test_compare_counts_no_example_twice(tmp_path: Path, capsys) -> None:
    """Each of 60 examples ten times told equal predictors apart in half of all tests."""
    path = tmp_path / "a.csv"
    path.write_text("id,a,b,label\n" + "".join(f"{i // 10},0,1,0\n" for i in range(200)))
    assert main(["compare", str(path), "--id", "id"]) == 1
    assert "an id is repeated (0, 10 times)" in capsys.readouterr().err
    assert main(["compare", str(path), "--cluster", "id", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 20


def test_compare_refuses_labels_that_contradict_each_other(tmp_path: Path, capsys) -> None:
    first, second = tmp_path / "x.csv", tmp_path / "y.csv"
    first.write_text("id,a,label\n" + "".join(f"{i},{i % 2},{i % 2}\n" for i in range(200)))
    second.write_text("id,a,label\n" + "".join(f"{i},{i % 2},{i < 3}\n" for i in range(200)))
    command = ["compare", str(first), str(second), "--id", "id"]
    assert main(command) == 1
    assert "101 of 200 differ, the first at id 0" in capsys.readouterr().err
    second.write_text("id,a\n" + "".join(f"{i},{i % 2}\n" for i in range(200)))
    assert main(command) == 0, "labels that are not repeated contradict nothing"
    assert main([*command, "--score", "a", "--metric", "event"]) == 2
    assert "--score reads 1 as right, --metric event" in capsys.readouterr().err


def test_compare_asks_for_the_columns_by_their_flags(rows: Path, capsys) -> None:
    assert main(["compare", str(rows)]) == 2
    said = capsys.readouterr().err
    assert "Name the columns to compare with --first and --second." in said
    assert "Its columns are 'prediction', 'label', 'new', 'site', 'id'." in said
    assert f"Next:  nonvacuous compare {rows} --first COLUMN --second COLUMN" in said
    assert main(["compare", str(rows), "--first", "prediction"]) == 2
    said = capsys.readouterr().err
    assert "no column 'b'" in said and "with --second." in said and "--first and" not in said


def test_compare_logs_of_evaluation_harnesses(tmp_path: Path, capsys) -> None:
    """Scores are better when larger: the one with more of them errs less."""
    names = ["old", "new", "best"]
    for name, every in zip(names, (4, 6, 40), strict=True):
        log = [{"doc_id": i, "doc": {"q": "?"}, "acc": float(i % every > 0)} for i in range(800)]
        lines = [json.dumps(row) for row in (log if name == "old" else reversed(log))]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    files = [str(tmp_path / f"{name}.jsonl") for name in names]
    assert main(["compare", *files[:2], "--score", "acc", "--id", "doc_id", "--json"]) == 0
    pair = json.loads(capsys.readouterr().out)
    assert pair["verdict"].startswith("new errs less") and pair["wins"] + pair["losses"] > 0
    assert main(["compare", *files, "--score", "acc", "--id", "doc_id", "--json"]) == 0
    three = json.loads(capsys.readouterr().out)
    assert three["names"] == ["old", "best"] and three["verdict"].startswith("best errs less")
    (other,) = three["others"]
    assert other["names"] == ["old", "new"]
    assert other["difference_lower"] < pair["difference_lower"], "choosing is paid for"
    assert main(["compare", *files]) == 2
    assert main(["compare", files[0], "--score", "acc"]) == 2


def test_rows_of_one_filter_are_chosen_and_verified(tmp_path: Path, capsys) -> None:
    """Harnesses write a line for each filter of an answer: one of them is declared."""
    for name, every in (("old", 4), ("new", 10)):
        lines = [
            json.dumps({"doc_id": i, "filter": kind, "exact_match": float(i % (every + more) > 0)})
            for i in range(300)
            for kind, more in (("strict", 0), ("flexible", 1))
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    old, new = str(tmp_path / "old.jsonl"), str(tmp_path / "new.jsonl")
    score = ["--score", "exact_match", "--id", "doc_id"]
    one = ["--where", "filter=strict"]
    out = tmp_path / "runs" / "old"
    assert main(["evaluate", old, *score, *one, "--unseen", "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["empirical"]["errors"] == 75 and report["empirical"]["trials"] == 300
    assert report["status"] == "valid"
    monitored = ["monitor", old, "--promise", str(out), "--loss", "exact_match"]
    assert main([*monitored, "--state", str(tmp_path / "s.json")]) == 1
    assert "about examples with filter=strict alone" in capsys.readouterr().err
    assert main(["verify", str(out)]) == 0
    assert main(["verify", str(out), "--data", old]) == 0
    assert main(["verify", str(out), "--data", new]) == 4
    capsys.readouterr()
    assert main(["compare", old, new, *score]) == 1
    assert "--where" in capsys.readouterr().err
    assert main(["compare", old, new, *score, *one]) == 0
    assert capsys.readouterr().out.startswith("new errs less")
    assert main(["evaluate", old, *score, "--where", "filter=none"]) == 1
    assert main(["evaluate", old, *score, "--where", "filter:none"]) == 2


@pytest.mark.parametrize(
    ("flags", "code", "words", "more"),
    [
        (["--metric", "absolute error"], 2, "declared range", "--range 0 20"),
        (["--metric", "recall"], 2, "one class", "--positive CLASS"),
        (["--metric", "selective error"], 2, "no answer", "--abstain VALUE"),
        (["--metric", "f1"], 1, "mean over all", "--classes 0,1,2,3,4"),
        (["--max-group-risk", "0.1"], 2, "name their column", "--group COLUMN"),
        (["--loss", "new", "--range", "0", "20", "--max-group-risk", "3"], 2, "3 is 0.15", ""),
        (["--loss", "new", "--range", "0", "20", "--max-risk", "3"], 2, "3 is 0.15", ""),
        (["--predictor", "json:dumps", "--inputs", "label"], 2, "told the labels", ""),
        (["--predictor", "json:dumps", "--loss", "new"], 2, "--loss is about answers", ""),
        (["--predictor", "json:dumps", "--where", "site=A"], 2, "--where is about answers", ""),
        (["--classes", "0", "1"], 2, "once for each", ""),
    ],
)
def test_what_is_missing_is_named_as_a_flag_before_the_test_is_made(
    rows: Path, tmp_path: Path, capsys, flags: list[str], code: int, words: str, more: str
) -> None:
    out = ["--out", str(tmp_path / "runs" / "one")]
    assert main(["evaluate", str(rows), *flags, *out]) == code
    said = capsys.readouterr().err
    assert words in said and said.endswith(f"{more}\n")
    assert not (tmp_path / "runs").exists()


def test_probabilities_of_classes_with_names_ask_for_the_names(tmp_path: Path, capsys) -> None:
    (file := tmp_path / "p.csv").write_text("prediction,label\n" + "0.8,cat\n0.1,dog\n" * 50)
    command = ["evaluate", str(file), "--metric", "brier", "--unseen"]
    assert main(command) == 1
    assert capsys.readouterr().err.endswith(" --unseen --classes A --classes B\n")
    assert main([*command, "--classes", "dog,cat"]) == 0


def test_classes_may_be_written_in_one_word(rows: Path, capsys) -> None:
    command = ["evaluate", str(rows), "--metric", "f1", "--unseen"]
    assert main([*command, *ALL]) == 0
    each = capsys.readouterr().out
    assert main([*command, "--classes", "0,1, 2,3,4"]) == 0
    assert capsys.readouterr().out == each


def test_verify_says_whose_fault_it_is(rows: Path, tmp_path: Path, capsys) -> None:
    """What is missing is asked for; what is changed has failed, whatever else is missing."""
    out = tmp_path / "runs" / "one"
    assert main(["evaluate", str(rows), "--unseen", "--out", str(out)]) == 0
    assert main(["verify", str(out), "--data", str(tmp_path / "nowhere.csv")]) == 2
    assert "there is no file" in capsys.readouterr().err
    certificate = out / "certificate.json"
    (sent := tmp_path / "sent").mkdir()
    (sent / "certificate.json").write_bytes(certificate.read_bytes())
    assert main(["verify", str(sent)]) == 5
    assert capsys.readouterr().err == f"Next:  nonvacuous verify {sent} --data SOURCE\n"
    assert main(["verify", str(sent), "--data", str(rows)]) == 0
    record = json.loads(certificate.read_text())
    changed = certificate.read_text().replace(str(record["risk_upper"]), "0.01")
    certificate.write_text(changed)
    for data in (str(rows), str(tmp_path / "nowhere.csv"), str(out)):
        capsys.readouterr()
        assert main(["verify", str(out), "--data", data]) == 4
        said = capsys.readouterr()
        assert "FAILED  the promise follows from its counts" in said.out
    record["digest"] = 1
    certificate.write_text(json.dumps(record))
    assert main(["verify", str(out), "--data", str(rows)]) == 4


def test_a_corrected_command_pays_for_one_test(rows: Path, tmp_path: Path, capsys) -> None:
    command = ["evaluate", str(rows), "--metric", "f1", "--unseen"]
    out = ["--out", str(tmp_path / "runs" / "one")]
    assert main([*command, "--positive", "11", *out]) == 1
    assert "there is no class '11'. Did you mean '1'?" in (said := capsys.readouterr().err)
    assert "Next:  nonvacuous evaluate" in said and "--unseen --positive 1 --out" in said
    assert main([*command, "--positive", "1", "--out", str(rows)]) == 1
    assert "is not a folder" in capsys.readouterr().err
    assert main([*command, "--positive", "1", *out]) == 0
    assert capsys.readouterr().out.startswith("VALID: ")
    assert main(["evaluate", str(rows), "--predictions", "label"]) == 2
    assert "--predictions COLUMN" in capsys.readouterr().err


def test_plan(capsys, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    assert main(["plan", "--target", "0.05", "--risk", "0.03", "--page", str(page)]) == 0
    assert f"The page of this plan: {page}" in capsys.readouterr().err
    assert main(["plan", "--target", "0.05", "--risk", "0.03", "--page", str(page)]) == 2
    assert "--force to overwrite" in capsys.readouterr().err
    again = ["plan", "--target", "0.05", "--risk", "0.03", "--page", str(page), "--force"]
    assert main(again) == 0
    assert main(["plan", "--target", "0.05", "--risk", "0.03", "--labeled", "5000"]) == 2
    assert "--labeled 5000 --point 400:0.12 --point 800:0.08\n" in capsys.readouterr().err
    assert "How many examples does it take?" in page.read_text()
    assert "<bdi>risk of at most 0.05</bdi>" in page.read_text()
    capsys.readouterr()
    assert main(["plan", "--target", "0.05", "--risk", "0.03", "--chance", "0.8"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("694 examples promise")
    assert "tells two models apart whose risks differ by 0.0" in shown
    assert " 0.0044 " in shown.splitlines()[8], "no error in 694 promises 0.00431, rounded up"
    assert main(["plan", "--target", "0.05", "--risk", "0.06"]) == 1
    assert main(["plan", "--target", "0.05", "--risk", "0.03", "--confidence", "95"]) == 2
    assert "--confidence must lie" in capsys.readouterr().err
    capsys.readouterr()
    divided = ["plan", "--target", "0.1", "--risk", "0.05", "--labeled", "4000"]
    points = ["--point", "100:0.2", "--point", "400:0.12", "--point", "1600:0.08"]
    assert main([*divided, *points, "--page", str(page), "--force"]) == 0
    assert "Of 4,000 labeled examples hold out" in capsys.readouterr().out
    assert "Which method?" in page.read_text()
    assert main([*divided, "--point", "100"]) == 2
    assert main([*divided, *points, "--curve", "0.01", "1", "0.5"]) == 2
    assert main(["plan", "--target", "0.1", "--risk", "0.05", *points]) == 2
    assert "with --labeled" in capsys.readouterr().err
    assert main(["plan", "--target", "0.05", "--risk", "0.03", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] > 694


@pytest.mark.slow
def test_monitor_reads_new_rows_only_and_raises_the_alarm(tmp_path: Path, capsys) -> None:
    stream, state = tmp_path / "labels.csv", tmp_path / "watch.json"
    stream.write_text("error\n" + "0\n0\n1\n0\n" * 20)
    page = tmp_path / "watch.html"
    command = ["monitor", str(stream), "--promise", "0.3", "--state", str(state)]
    assert main([*command, "--page", str(page)]) == 0
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.split("\n", 1)[1])["seen"] == 80
    assert "No alarm" in page.read_text()
    with stream.open("a") as more:
        more.write("1\n" * 40)
    assert main(command) == 3
    assert capsys.readouterr().out.startswith("ALARM")


def test_a_wrong_call_starts_no_watch(tmp_path: Path, capsys) -> None:
    stream, state = tmp_path / "labels.csv", tmp_path / "watch.json"
    stream.write_text("wrong\n" + "0\n" * 20)
    assert main(["monitor", str(stream), "--promise", "0.3", "--state", str(state)]) == 2
    assert "no column 'error'" in capsys.readouterr().err and not state.exists()
    assert main(["monitor", str(stream), "--promise", "absent", "--state", str(state)]) == 2
    assert "--promise absent is neither a number nor" in capsys.readouterr().err
    right = ["monitor", str(stream), "--loss", "wrong", "--state", str(state), "--promise"]
    assert main([*right, "0.2"]) == 0
    assert main([*right, "0.3"]) == 1
    assert "another file (--state" in capsys.readouterr().err


def test_missing_labels_are_counted_not_guessed(tmp_path: Path, capsys) -> None:
    stream = tmp_path / "labels.csv"
    stream.write_text("prediction,label\na,a\na,b\nb,\nb,b\n")
    command = ["monitor", str(stream), "--promise", "0.3", "--predictions", "prediction"]
    for _ in range(2):
        assert main([*command, "--state", str(tmp_path / "s.json")]) == 0
        out = capsys.readouterr().out
        assert "1 errors in 3 labels" in out
        assert out.endswith("0 labels late, 1 missing (rows 2, counted from 0)\n")
    stream.write_text("prediction,label\na,a\na,b\nb,a\nb,b\n")
    assert main([*command, "--state", str(tmp_path / "s.json")]) == 0
    assert "2 errors in 4 labels" in (out := capsys.readouterr().out)
    assert out.endswith("1 labels late, 0 missing\n")


@pytest.mark.parametrize(
    ("prediction", "label"), [("1", "1.0"), ("True", "1"), ("1.0", "1"), ("a", "a")]
)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_one_answer_in_two_forms_is_no_error(
    tmp_path: Path, capsys, prediction: str, label: str, kind: str
) -> None:
    """As pandas writes a column of whole numbers of which some are missing: as floats."""
    stream = tmp_path / "labels.csv"
    stream.write_text("prediction,label\n" + f"{prediction},{label}\n" * 99 + f"{prediction},\n")
    if kind != "csv":
        arrow_csv, parquet = (pytest.importorskip(f"pyarrow.{m}") for m in ("csv", "parquet"))
        table = arrow_csv.read_csv(stream)
        stream = tmp_path / f"labels.{kind}"
        if kind == "parquet":
            parquet.write_table(table, stream)
        else:
            stream.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    command = ["monitor", str(stream), "--promise", "0.05", "--predictions", "prediction"]
    assert main([*command, "--state", str(tmp_path / "s.json")]) == 0
    assert "0 errors in 99 labels" in (out := capsys.readouterr().out)
    assert "1 missing (rows 99" in out


def test_scores_and_losses_are_numbers_however_they_are_written(tmp_path: Path, capsys) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for path in (first, second):
        path.write_text("id,acc\n1,1.0\n2,0\n3,1\n")
    assert main(["compare", str(first), str(second), "--score", "acc", "--id", "id"]) == 0
    watch = ["monitor", str(first), "--promise", "0.9", "--state", str(tmp_path / "w.json")]
    assert main([*watch, "--loss", "acc"]) == 0
    assert "2 errors in 3 labels" in capsys.readouterr().out


def test_groups_are_known_where_pandas_makes_floats_of_them(tmp_path: Path, capsys) -> None:
    (test := tmp_path / "test.csv").write_text("site,prediction,label\n" + "1,0,0\n2,0,0\n" * 50)
    out = ["--out", str(tmp_path / "run"), "--group", "site", "--unseen"]
    assert main(["evaluate", str(test), *out]) == 0
    (later := tmp_path / "later.csv").write_text("site,loss\n1.0,0\n2.0,0\n,0\n")
    watch = ["monitor", str(later), "--promise", str(tmp_path / "run"), "--group", "site"]
    capsys.readouterr()
    assert main([*watch, "--loss", "loss", "--state", str(tmp_path / "w.json")]) == 0
    assert "missing; 1 labels without a site, about which" in (said := capsys.readouterr().out)
    assert said.count("nothing was promised") == 1


def test_words_are_not_compared_with_numbers(tmp_path: Path, capsys) -> None:
    stream = tmp_path / "labels.csv"
    stream.write_text("prediction,label\n" + "0,cat\n" * 20)
    command = ["monitor", str(stream), "--promise", "0.05", "--predictions", "prediction"]
    assert main([*command, "--state", str(tmp_path / "s.json")]) == 1
    assert "labels are words and predictions numbers" in capsys.readouterr().err
    stream.write_text("prediction,label\n0,1\n\n0,\n0,1\n1,inf\n")
    assert main([*command, "--state", str(tmp_path / "s.json")]) == 1
    assert f"the first in line 6 of {stream}" in capsys.readouterr().err


def test_two_files_have_two_states(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, loss in ("a", 0), ("b", 1):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "live.csv").write_text("error\n" + f"{loss}\n" * 500)
    assert main(["monitor", "a/live.csv", "--promise", "0.05"]) == 0
    assert main(["monitor", "b/live.csv", "--promise", "0.05"]) == 1
    assert "500 rows of a/live.csv, not of b/live.csv" in capsys.readouterr().err
    assert main(["monitor", str(tmp_path / "a" / "live.csv"), "--promise", "0.05"]) == 0
    assert main(["monitor", "b/live.csv", "--promise", "0.05", "--state", "b.json"]) == 3


@pytest.mark.slow
def test_a_column_of_words_is_no_column_of_losses(tmp_path: Path, capsys) -> None:
    stream = tmp_path / "labels.csv"
    stream.write_text("error\nyes\nno\n")
    command = ["monitor", str(stream), "--promise", "0.3", "--state", str(tmp_path / "s.json")]
    assert main(command) == 1
    assert "losses are numbers in [0, 1], got 'yes'" in capsys.readouterr().err
    stream.write_text("error\n0\nfoo\n1\n")
    assert main(command) == 1
    assert "losses are numbers in [0, 1], got 'foo'" in capsys.readouterr().err


def test_monitor_watches_the_groups_of_a_report(rows: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "runs" / "three"
    assert main(["evaluate", str(rows), "--group", "site", "--unseen", "--out", str(out)]) == 0
    stream, page = tmp_path / "stream.csv", tmp_path / "watch.html"
    lines = ["prediction,label,site"] + [*["a,a,A"] * 30, "a,b,B", "a,a,B"] * 15 + ["a,a,Z"]
    stream.write_text("\n".join(lines) + "\n")
    command = ["monitor", str(stream), "--promise", str(out), "--predictions", "prediction"]
    command += ["--group", "site", "--page", str(page), "--state", str(tmp_path / "s.json")]
    capsys.readouterr()
    assert main([*command, "--json"]) == 3
    record = json.loads(capsys.readouterr().out)
    assert set(record["alarms"]) == {"site=B"} and record["unwatched"] == {"site=Z": 1}
    assert "Alarm for site=B after" in page.read_text() and "Group" in page.read_text()
    assert main(command) == 3
    said = f"ALARM after {record['alarms']['site=B']} labels of site=B: in all 15 errors in "
    assert capsys.readouterr().out.startswith(said)
    stream.write_text("\n".join([*lines, *["a,b,A"] * 40]) + "\n")
    assert main([*command, "--json"]) == 3
    alarms = json.loads(capsys.readouterr().out)["alarms"]
    assert set(alarms) == {"", "site=A", "site=B"}
    assert main(command) == 3
    after = [f"{at} labels{f' of {name}' if name else ''}" for name, at in alarms.items()]
    assert capsys.readouterr().out.startswith(f"ALARM after {', '.join(after)}: in all ")
    assert main([*command[:-4], "--group", "ward"]) == 1


def test_errors_are_not_watched_for_a_promise_about_another_loss(tmp_path: Path, capsys) -> None:
    stream, out = tmp_path / "rows.csv", tmp_path / "runs" / "one"
    stream.write_text("prediction,label\n" + "0.8,1\n0.2,0\n" * 50)
    assert main(["evaluate", str(stream), "--metric", "brier", "--unseen", "--out", str(out)]) == 0
    command = ["monitor", str(stream), "--promise", str(out), "--predictions", "prediction"]
    assert main([*command, "--state", str(tmp_path / "s.json")]) == 2
    said = capsys.readouterr().err
    assert "--predictions watches errors" in said and "half the Brier score" in said


def test_advice_about_measurements_can_be_followed(tmp_path: Path, capsys) -> None:
    stream, out = tmp_path / "rows.csv", tmp_path / "runs" / "one"
    lines = (f"0.8{k % 7},1.5,{k % 3 / 10},{k % 5 / 10}" for k in range(200))
    stream.write_text("\n".join(["prediction,label,a,b", *lines]) + "\n")
    command = ["evaluate", str(stream), "--metric", "absolute error", "--range", "0", "2"]
    assert main([*command, "--unseen", "--out", str(out)]) == 0
    # A promise about clipped losses is watched as a number: no column of losses would do.
    watch = ["monitor", str(stream), "--promise", str(out), "--state", str(tmp_path / "s.json")]
    assert main([*watch, "--predictions", "prediction"]) == 1
    said = capsys.readouterr().err
    assert "against the number" in said and "--loss" not in said
    compare = ["compare", str(stream), "--first", "a", "--second", "b"]
    assert main([*compare, "--labels", "label"]) == 1
    assert "without labels (--metric loss)" in capsys.readouterr().err
    assert main([*compare, "--metric", "loss"]) == 0


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A watch over a file of one label, which it has said to have read."""
    stream = tmp_path / "labels.csv"
    stream.write_text("error\n0\n")
    command = ["monitor", str(stream), "--promise", "0.05", "--state", str(tmp_path / "s.json")]
    process = subprocess.Popen(
        [sys.executable, "-m", "nonvacuous.cli.app", *command, "--watch", "--every", "0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "0 errors in 1 labels" in process.stderr.readline()
    yield process, stream
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_watch_follows_a_growing_file(watching) -> None:
    process, stream = watching
    with stream.open("a") as more:
        more.write("1\n" * 30)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3 and out.startswith("ALARM after ")


@pytest.mark.slow
def test_a_watch_says_what_is_new_and_ends_well_with_ctrl_c(watching) -> None:
    process, stream = watching
    with stream.open("a") as more:
        more.write("0\n1\n")
    assert process.stderr.readline().startswith("no alarm: 1 errors in 3 labels")
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0 and error == ""
    assert out.startswith("no alarm: 1 errors in 3 labels")


@pytest.mark.parametrize(
    ("command", "more"),
    [
        (["evaluate", "--labels", "new"], "--predictions COLUMN"),
        (
            ["evaluate", "--predictions", "neww", "--labels", "site"],
            "--predictions new --labels site",
        ),
        (["compare", "--first", "old", "--second", "new"], "--labels COLUMN"),
        (["monitor", "--promise", "0.1", "--predictions", "new"], "--labels COLUMN"),
    ],
)
def test_a_column_that_is_missing_is_asked_for_by_its_flag(
    command: list[str], more: str, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("old,new,site\n0,1,A\n1,1,B\n")
    assert main([command[0], "rows.csv", *command[1:]]) == 2
    assert more in capsys.readouterr().err.splitlines()[-1]
