"""The table of runs: what is found in folders, and how it is chosen from."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.locks import Claim, Lock
from nonvacuous.records import Observation
from nonvacuous.study.runs import columns_of, figures_of, ordered, read_runs, select
from tests.certificates import BROKEN, sealed

CELL = {"format": "nonvacuous-cell/1", "settings": {"width": 8}, "seed": 4, "seconds": 1.5}
CONFIG = "mode = 1\nsplit = 1\nexamples = 1\nweights = 1\nseed = 6\n"


def make(root: Path) -> None:
    """One run of every kind."""
    (root / "plain").mkdir(parents=True)
    sealed().save(root / "plain/certificate.json")
    (root / "deep/er").mkdir(parents=True)
    sealed("holdout", risk_upper=0.5).save(root / "deep/er/certificate.json")
    (root / "begun").mkdir()
    (root / "begun/config.toml").write_text(CONFIG)
    (root / "edited").mkdir()
    text = (root / "plain/certificate.json").read_text()
    (root / "edited/certificate.json").write_text(text.replace("mlp:32", "mlp:64"))
    cells = root / "sweep/cells"
    for name in ("done", "failed", "under-way", "killed"):
        (cells / name).mkdir(parents=True)
    result = {**CELL, "state": "done", "result": {"loss": 0.5, "width": 9}}
    (cells / "done/result.json").write_text(json.dumps(result))
    failed = {**CELL, "state": "failed", "error": {"message": "no luck"}}
    (cells / "failed/error.json").write_text(json.dumps(failed))
    names = ("done", "failed", "under-way", "killed", "to-come")
    planned = [{"name": name, "settings": {"width": 8}, "seed": 4} for name in names]
    record = {"format": "nonvacuous-sweep/1", "run": "m:f", "cells": planned}
    (root / "sweep/sweep.json").write_text(json.dumps(record))
    # What other programs keep: not ours.
    (root / "other").mkdir()
    (root / "other/result.json").write_text('{"format": "theirs"}')
    (root / "other/config.toml").write_text("a = 1")
    (root / "odd").mkdir()
    (root / "odd/sweep.json").write_text(json.dumps({**record, "cells": [{"settings": {}}]}))
    (root / "odd/result.json").write_text(json.dumps({**result, "result": ["no", "names"]}))


def test_every_kind_of_run_is_found(tmp_path: Path) -> None:
    make(tmp_path)
    lock = Lock.take(tmp_path / "sweep/cells/under-way", Claim("s"))
    assert lock is not None
    with lock:
        runs = {run.name: run for run in read_runs(tmp_path)}
    assert {name: run.state for name, run in runs.items()} == {
        "plain": "done",
        "deep/er": "done",
        "begun": "unfinished",
        "edited": "invalid",
        "sweep/done": "done",
        "sweep/failed": "failed",
        "sweep/under-way": "running",
        "sweep/killed": "unfinished",
        "sweep/to-come": "waiting",
    }
    assert runs["plain"].row()["risk_upper"] == 0.25
    assert runs["plain"].row()["seed"] == 3
    assert runs["edited"].certificate is None
    assert "digest" in runs["edited"].error
    assert runs["begun"].seed == 6
    assert runs["sweep/failed"].row()["error"] == "no luck"
    row = runs["sweep/done"].row()
    assert (row["width"], row["result_width"], row["loss"]) == (8, 9, 0.5)


def test_a_sweep_and_a_run_can_be_named_directly(tmp_path: Path) -> None:
    make(tmp_path)
    assert [run.name for run in read_runs(tmp_path / "plain")] == ["plain"]
    assert "done" in [run.name for run in read_runs(tmp_path / "sweep")]
    with pytest.raises(BadInput, match="is not a folder"):
        read_runs(tmp_path / "absent")


def test_a_refused_certificate_promises_no_number() -> None:
    figures = figures_of(sealed(status="refused", assumptions=(BROKEN,)))
    assert figures["risk_upper"] is None and figures["twin"] is None
    assert figures["status"] == "refused" and figures["vacuous"]
    assert figures["test_error"] == 9 / 360


def test_the_test_error_is_that_of_the_certified_predictor() -> None:
    mean = Observation(
        name="the network with the mean weights on the test examples", errors=1, trials=100
    )
    own = Observation(name="the randomized network on the test examples", errors=7, trials=100)
    figures = figures_of(sealed(observed=(mean, own)))
    assert (figures["test_error"], figures["tested"]) == (0.07, "randomized network")
    figures = figures_of(sealed(observed=(mean,)))
    assert (figures["test_error"], figures["tested"]) == (0.01, "mean weights")
    figures = figures_of(sealed(observed=()))
    assert (figures["test_error"], figures["tested"]) == (None, None)


ROWS: list[dict[str, Any]] = [
    {"name": "a", "risk_upper": 0.3, "model": "mlp:8", "vacuous": False, "error": None},
    {"name": "b", "risk_upper": 0.1, "model": "cnn:8", "vacuous": True, "error": "no luck"},
    {"name": "c", "model": "CNN", "vacuous": None},
]


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        (["risk_upper<0.3"], "b"),
        (["risk-upper <= 0.3"], "ab"),
        (["risk_upper>=0.3"], "a"),
        (["risk_upper!=0.3"], "bc"),
        (["risk_upper=none"], "c"),
        (["risk_upper!=none"], "ab"),
        (["model~cnn"], "bc"),
        (["model=mlp:8"], "a"),
        (["model~cnn", "risk_upper<1"], "b"),
        (["vacuous=yes"], "b"),
        (["vacuous=false"], "a"),
        (["error~LUCK"], "b"),
        (["risk_upper=high"], ""),
        ([], "abc"),
    ],
)
def test_conditions(conditions: list[str], names: str) -> None:
    assert "".join(row["name"] for row in select(ROWS, conditions)) == names


def test_conditions_that_mean_nothing() -> None:
    with pytest.raises(BadInput, match="did you mean risk_upper"):
        select(ROWS, ["risk_uper<1"])
    with pytest.raises(BadInput, match="is not a condition"):
        select(ROWS, ["small ones please"])


def test_order() -> None:
    assert [row["name"] for row in ordered(ROWS, "risk_upper")] == ["b", "a", "c"]
    assert [row["name"] for row in ordered(ROWS, "risk_upper", reverse=True)] == ["a", "b", "c"]


@given(st.lists(st.one_of(st.none(), st.integers(), st.floats(allow_nan=False)), max_size=20))
def test_filters_agree_with_python(values: list[float | None]) -> None:
    rows = [{"x": value} for value in values]
    kept = [row["x"] for row in select(rows, ["x<0.5"])] if rows else []
    assert kept == [value for value in values if value is not None and value < 0.5]
    if rows:
        numbers = [row["x"] for row in ordered(rows, "x") if row["x"] is not None]
        assert numbers == sorted(value for value in values if value is not None)


class TestSql:
    @pytest.fixture
    def ask(self) -> Any:
        pytest.importorskip("duckdb", reason="duckdb is not installed: pip install '.[sql]'")
        from nonvacuous.study.runs import query

        return query

    def test_questions_about_runs(self, ask: Any) -> None:
        assert ask(ROWS, "select name from runs where risk_upper < 0.2") == [{"name": "b"}]
        assert ask(ROWS, "select avg(risk_upper) m, count(*) n from runs") == [{"m": 0.2, "n": 3}]
        assert ask(ROWS, "select vacuous from runs order by name") == [
            {"vacuous": False},
            {"vacuous": True},
            {"vacuous": None},
        ]

    def test_it_agrees_with_the_plain_filters(self, ask: Any, tmp_path: Path) -> None:
        make(tmp_path)
        rows = [run.row() for run in read_runs(tmp_path)]
        by_sql = ask(rows, "select name from runs where risk_upper < 0.4 order by name")
        by_hand = ordered(select(rows, ["risk_upper<0.4"]), "name")
        assert [row["name"] for row in by_sql] == [row["name"] for row in by_hand]
        assert list(ask(rows, "select * from runs")[0]) == columns_of(rows)

    def test_hostile_names_are_names(self, ask: Any) -> None:
        rows = [{'a"; drop table runs; --': "'); drop table runs; --", "list": [1, "x"]}]
        (row,) = ask(rows, "select * from runs")
        assert row == {'a"; drop table runs; --': "'); drop table runs; --", "list": '[1, "x"]'}

    def test_many_rows(self, ask: Any) -> None:
        rows = [{"x": number, "y": str(number)} for number in range(1003)]
        assert ask(rows, "select sum(x) s from runs") == [{"s": 1003 * 1002 / 2}]

    @pytest.mark.parametrize("sql", ["select", "select nothing from runs", "drop table absent"])
    def test_what_cannot_be_answered(self, ask: Any, sql: str) -> None:
        with pytest.raises(BadInput, match="The table is called runs"):
            ask(ROWS, sql)

    def test_names_that_capitals_alone_tell_apart(self, ask: Any) -> None:
        with pytest.raises(BadInput, match=r"capitals do not count\) are lr, LR"):
            ask([{"lr": 0.1, "LR": 1}], "select * from runs")

    def test_a_column_without_a_name(self, ask: Any) -> None:
        assert ask([{"a": 1, "": 2}], "select * from runs") == [{"a": 1}]

    def test_names_that_are_no_unicode(self, ask: Any) -> None:
        rows = [{"name": '\udcff, \u00e9 \0 "q"', "a": 1}, {"name": "plain", "a": 2}]
        assert ask(rows, "select name, a from runs order by a") == [
            {"name": '?, \u00e9 \0 "q"', "a": 1},
            {"name": "plain", "a": 2},
        ]

    def test_it_reads_and_writes_no_files(self, ask: Any, tmp_path: Path) -> None:
        secret = tmp_path / "x.csv"
        secret.write_text("a,b\n1,2\n")
        for sql in (f"select * from '{secret}'", f"copy runs to '{tmp_path / 'out.csv'}'"):
            with pytest.raises(BadInput):
                ask(ROWS, sql)
        assert not (tmp_path / "out.csv").exists()


def test_without_duckdb_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from nonvacuous.study.runs import query

    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(Unsupported, match=r"nonvacuous\[sql\].*--where"):
        query(ROWS, "select 1")
