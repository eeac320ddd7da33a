"""``nonvacuous sweep`` and ``nonvacuous runs``, and the site of a folder of runs."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from nonvacuous.cli import exits

GRID = """
[command]
run = "certify"
[fixed]
data = "x.npz"
trials = 500
epochs = 2
prior-epochs = 3
[grid]
model = ["mlp:4", "mlp:8"]
seed = [0, 1]
"""
FUNCTION = '[command]\nrun = "cells_cli:f"\n[grid]\nx = [1, 2, 3]\n'


@pytest.mark.slow
def test_certificates_of_a_grid_from_the_file_to_the_site(place, invoke):
    Path("grid.toml").write_text(GRID)
    done = invoke("sweep", "grid.toml", "--jobs", "1")
    assert done.code == exits.DONE, done.err
    assert done.out == "4 of 4 cells done: runs/grid\n"
    assert done.next == "nonvacuous runs runs/grid"
    again = json.loads(invoke("sweep", "grid.toml", "--jobs", "1", "--json").out)
    assert (again["done"], again["computed"]) == (4, 0)

    listed = json.loads(invoke("runs", "runs/grid", "--sort", "risk_upper", "--json").out)["runs"]
    assert [row["status"] for row in listed] == ["valid"] * 4
    assert {(row["model"], row["seed"]) for row in listed} == {
        (model, seed) for model in ("mlp:4", "mlp:8") for seed in (0, 1)
    }
    risks = [row["risk_upper"] for row in listed]
    assert risks == sorted(risks)
    # Whoever picks the best of four has paid for four.
    folder = place / "runs/grid/cells" / listed[0]["name"]
    ledger = json.loads((folder / "certificate.json").read_text())["budget"]["entries"]
    assert any("4 certificates" in entry["reason"] for entry in ledger)
    assert "training the posterior" in (folder / "log.txt").read_text()

    site = invoke("report", "runs/grid")
    assert site.out == "runs/grid/index.html\n"
    page = (place / "runs/grid/index.html").read_text()
    assert all(row["name"] in page for row in listed)
    assert len(list((place / "runs/grid/certificates").glob("*.html"))) == 4
    one = invoke("report", folder, "--json")
    assert json.loads(one.out) == {"report": str(folder / "report.html")}


@pytest.mark.slow
def test_a_cell_is_the_certificate_of_the_same_command(place, invoke):
    Path("grid.toml").write_text(GRID)
    assert invoke("sweep", "grid.toml", "--jobs", "1").code == exits.DONE
    words = ["certify", "--data", "x.npz", "--trials", "500", "--epochs", "2"]
    words += ["--prior-epochs", "3", "--model", "mlp:8", "--seed", "1", "--attempts", "4"]
    assert invoke(*words, "--no-report", "--threads", "1", "--out", "alone/run").code == exits.DONE
    (cell,) = Path("runs/grid/cells").glob("model=mlp-8,seed=1-*")
    assert (cell / "config.toml").read_bytes() == Path("alone/run/config.toml").read_bytes()
    records = [json.loads((f / "certificate.json").read_text()) for f in (cell, Path("alone/run"))]
    for record in records:
        # How many certificates came before this one is a matter of order; nothing else is.
        told = [a for a in record["assumptions"] if not a["name"].startswith("earlier")]
        assert len(told) == len(record["assumptions"]) - 1
        record["assumptions"] = told
        del record["digest"]
    assert records[0] == records[1]


@pytest.mark.slow
def test_variables_do_not_change_a_cell(place, invoke, monkeypatch):
    Path("grid.toml").write_text(GRID.replace("seed = [0, 1]", "seed = [0]"))
    monkeypatch.setenv("NONVACUOUS_CONFIDENCE", "0.5")
    assert invoke("sweep", "grid.toml", "--jobs", "1").code == exits.DONE
    rows = json.loads(invoke("runs", "runs/grid", "--json").out)["runs"]
    assert {row["confidence"] for row in rows} == {0.95}


def test_cells_are_listed_before_anything_is_computed(place, invoke):
    Path("grid.toml").write_text(GRID)
    done = invoke("sweep", "grid.toml", "--dry-run")
    assert done.code == exits.DONE
    assert [line.split()[0] for line in done.out.splitlines()] == ["waiting"] * 4
    assert done.next == "nonvacuous sweep grid.toml"
    assert not (place / "runs").exists()


def test_a_grid_may_leave_a_switch_off(place, invoke):
    fixed = '[command]\nrun = "certify"\n[fixed]\ndata = "x.npz"\n'
    Path("grid.toml").write_text(f"{fixed}[grid]\nstandardize = [true, false]\n")
    done = invoke("sweep", "grid.toml", "--dry-run")
    assert done.code == exits.DONE and len(done.out.splitlines()) == 2


@pytest.fixture
def function(place, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("cells_cli", None)
    Path("cells_cli.py").write_text(
        "def f(*, x, seed):\n"
        "    if x == 2:\n        raise RuntimeError('no luck\\n today')\n"
        "    return {'square': x * x, 'seed_seen': seed}\n"
    )
    Path("f.toml").write_text(FUNCTION)
    yield
    sys.modules.pop("cells_cli", None)


def test_failures_are_told_and_kept(function, invoke):
    done = invoke("sweep", "f.toml", "--jobs", "1", "--out", "s")
    assert done.code == exits.FAILED
    assert (
        "1 of 3 cells failed, the first with: RuntimeError: no luck today. Each has" in done.error
    )
    assert done.next == "nonvacuous sweep f.toml --jobs 1 --out s --retry-failed"
    assert "2 of 3 cells done, 1 failed" in done.out
    failed = json.loads(invoke("runs", "s", "--state", "failed", "--json").out)["runs"]
    assert [(row["x"], row["error"]) for row in failed] == [(2, "no luck today")]
    retried = json.loads(
        invoke("sweep", "f.toml", "--out", "s", "--retry-failed", "--json", "--jobs", "1").out
    )
    assert (retried["failed"], retried["computed"]) == (1, 1)


def test_the_table_in_all_its_forms(function, invoke):
    invoke("sweep", "f.toml", "--jobs", "1", "--out", "s")
    text = invoke("runs", "s")
    assert text.code == exits.DONE
    assert "3 of 3 runs" in text.err and "no luck today" in text.out
    assert text.next == "nonvacuous report s"
    turned = invoke("runs", "s", "--csv", "--sort", "x", "--reverse")
    rows = list(csv.DictReader(io.StringIO(turned.out)))
    assert [(row["x"], row["square"]) for row in rows] == [("3", "9"), ("2", ""), ("1", "1")]
    some = invoke("runs", "s", "--where", "square>1", "--columns", "x,square", "--json")
    assert json.loads(some.out)["runs"] == [{"x": 3, "square": 9}]
    few = invoke("runs", "s", "--sort", "x", "--limit", "1", "--columns", "x", "--json")
    assert json.loads(few.out)["runs"] == [{"x": 1}]
    assert "x" in invoke("runs", "s", "--columns", "all").out


def test_sql(function, invoke):
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install '.[sql]'")
    invoke("sweep", "f.toml", "--jobs", "1", "--out", "s")
    question = "select count(*) as n, max(square) as best from runs where state = 'done'"
    assert json.loads(invoke("runs", "s", "--sql", question, "--json").out)["runs"] == [
        {"n": 2, "best": 9}
    ]
    assert "DuckDB does not understand" in invoke("runs", "s", "--sql", "select").error


def test_a_text_for_a_spreadsheet_is_no_formula(function, invoke):
    Path("formula_cli.py").write_text("def f(*, x):\n    return {'y': '=1+1'}\n")
    Path("f.toml").write_text(FUNCTION.replace("cells_cli", "formula_cli"))
    invoke("sweep", "f.toml", "--jobs", "1", "--out", "s")
    assert "'=1+1" in invoke("runs", "s", "--csv").out


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (None, [], "cannot be read"),
        ("x = ", [], "is not TOML"),
        ("", [], "does not say what to run"),
        ('[command]\nrun = "train"', [], "no command 'train'"),
        ('[command]\nrun = "no_module:f"', [], "cannot be imported"),
        (GRID, ["--address", "auto"], "--engine ray"),
        (GRID, ["--jobs", "0"], "at least 1"),
        (GRID, ["--gpus-per-task", "-1"], "--gpus-per-task"),
        (GRID.replace("epochs = 2", "epochs = 2.5"), [], "does not take the settings"),
        (GRID.replace("trials", "trails"), [], "--trails"),
        (GRID.replace("trials = 500", "resume = true"), [], "no place in a sweep"),
        (GRID.replace("trials = 500", "attempts = 3"), [], "computes 4 certificates"),
    ],
)
def test_errors_come_before_any_work(place, invoke, text, words, message):
    if text is not None:
        Path("bad.toml").write_text(text)
    done = invoke("sweep", "bad.toml", *words)
    assert done.code == exits.USAGE
    assert message in done.error
    assert done.next.startswith("nonvacuous ")
    assert not (place / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent"], "is not a folder"),
        (["."], "holds no run"),
        (["s", "--where", "y<1"], "no column 'y'"),
        (["s", "--columns", "y"], "no column 'y'"),
        (["s", "--sort", "y"], "no column 'y'"),
        (["s", "--csv", "--json"], "give one of them"),
        (["s", "--reverse"], "give both"),
    ],
)
def test_errors_of_the_table(function, invoke, words, message):
    if words[0] == "s":
        invoke("sweep", "f.toml", "--jobs", "1", "--out", "s")
    done = invoke("runs", *words)
    assert done.code in (exits.FAILED, exits.USAGE)
    assert words != ["absent"] or done.code == exits.USAGE
    assert message in done.error
    assert done.next.startswith("nonvacuous ")
    assert words != ["."] or done.next == "nonvacuous sweep --help"


def test_a_page_of_somebody_else_is_not_overwritten(function, invoke, place):
    invoke("sweep", "f.toml", "--jobs", "1", "--out", "s")
    (place / "s/index.html").write_text("mine")
    assert "is not overwritten" in invoke("report", "s").error
    assert (place / "s/index.html").read_text() == "mine"
