"""A forger who renews the seal of a test report: whatever columns or ledger contradict fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.evaluation.audit import ASKED, FUNCTION, PAID, UNSEEN
from nonvacuous.verification.numbers import Unsealed
from tests.evaluation.worlds import classes

Change = Callable[[dict[str, Any]], None]


def _set(path: str, value: Any) -> Change:
    def change(record: dict[str, Any]) -> None:
        *above, last = path.split(".")
        for key in above:
            record = record[key]
        record[last] = value

    return change


def _said(name: str, **words: str) -> Change:
    def change(record: dict[str, Any]) -> None:
        for assumption in record["assumptions"]:
            if name in (assumption["name"], "all"):
                assumption.update(words)

    return change


def _sentence(record: dict[str, Any]) -> None:
    number = record["statement"].rsplit(" ", 1)[1]
    record["statement"] = "With confidence 0.999999 over the draw of 4,000,000 examples, the death "
    record["statement"] += f"rate of every hospital on all future patients is at most {number}"


def _forged(folder: Path, *changes: Change) -> nv.Certificate:
    record = json.loads((folder / "certificate.json").read_text())
    for change in changes:
        change(record)
    loose = Unsealed.model_validate_json(json.dumps(record))
    names = (n for n in type(loose).model_fields if n != "digest" and n in loose.model_fields_set)
    return nv.Certificate.sealed(**{name: getattr(loose, name) for name in names})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    predictions, labels, sites = classes(400)
    nv.evaluate(
        predictions=predictions,
        labels=labels,
        groups={"site": sites},
        unseen=True,
        folder=folder / "classes" / "run",
    )
    nv.evaluate(
        losses=np.random.default_rng(0).random(300) * 0.2,
        unseen=True,
        settings={"metric": "loss"},
        folder=folder / "losses" / "run",
    )
    nv.evaluate(
        predictions=np.argsort(np.random.default_rng(0).random((400, 5)), 1),
        labels=labels,
        unseen=True,
        settings={"metric": "top-k", "top": 4},
        folder=folder / "ranked" / "run",
    )
    return folder


#: What is changed, and whether the file alone shows it.
FORGERIES: dict[str, tuple[str, Change, bool]] = {
    "another sentence": ("classes", _sentence, True),
    "the n that is shown": ("classes", _set("data.bound.examples", 4_000_000), True),
    "the theorem": ("classes", _set("bound.theorem", "a theorem without assumptions"), True),
    "the bound's name": ("classes", _set("bound.name", "betting"), True),
    "the loss": ("classes", _set("loss.name", "expected calibration error"), True),
    "another predictor": ("classes", _set("model.architecture", "GPT-7"), True),
    "other data": ("classes", _set("data.name", "ImageNet"), True),
    "more classes": ("classes", _set("data.classes", 1000), False),
    "a randomized predictor": ("classes", _set("predictor", "stochastic"), True),
    "a smaller empirical risk": ("classes", _set("empirical.risk_upper", 0.0), True),
    "the seed": ("classes", _set("seed", 99), True),
    "the seed of the counts": ("classes", _set("empirical.seed", 99), True),
    "the digest of the labels": ("classes", _set("data.bound.content_digest", "0" * 64), True),
    "the digest of the answers": ("classes", _set("model.fixed_digest", "0" * 64), True),
    "the reason of a line": (
        "classes",
        lambda record: record["budget"]["entries"][0].update(reason="nothing was searched"),
        True,
    ),
    "another observation": (
        "classes",
        _set("observed", [{"name": "errors on MNIST", "errors": 0, "trials": 10**6}]),
        True,
    ),
    "a twin": (
        "classes",
        _set(
            "held_out_twin",
            {
                "description": "x",
                "errors": 0,
                "examples": 100_000,
                "failure": 0.05,
                "risk_upper": 0.0001,
            },
        ),
        True,
    ),
    "more losses": ("losses", _set("empirical.trials", 3_000_000), True),
    "more losses in the bound": ("losses", _set("bound.inputs.examples", 3_000_000), True),
    "more losses everywhere": (
        "losses",
        lambda record: [
            _set(path, 3_000_000)(record)
            for path in ("empirical.trials", "bound.inputs.examples", "data.bound.examples")
        ],
        True,
    ),
    "one of four answers is the answer": (
        "ranked",
        lambda record: record.update(
            loss={**record["loss"], "name": "zero-one"},
            statement=record["statement"].replace("top-4 error", "error rate"),
        ),
        True,
    ),
    "a laboratory": (
        "classes",
        _said("all", status="checked", detail="checked by an independent laboratory."),
        True,
    ),
    "a laboratory, in words alone": (
        "classes",
        _said(UNSEEN, detail="checked by an independent laboratory."),
        True,
    ),
    "answers that a laboratory tried again": (
        "classes",
        _said(FUNCTION, status="checked", detail="a laboratory tried all of them again."),
        True,
    ),
    "groups that nobody declared": (
        "classes",
        _said("no group was chosen by its errors", status="checked", detail="there are no groups."),
        False,
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_columns_or_record_contradict_fails(runs: Path, name: str) -> None:
    kind, change, alone = FORGERIES[name]
    forged = _forged(runs / kind / "run", change)
    assert not nv.verify(forged, runs / kind / "run").passed
    assert nv.verify(forged).passed != alone


def test_the_same_reports_verify_untouched(runs: Path) -> None:
    for kind in ("classes", "losses", "ranked"):
        whole = nv.verify(_forged(runs / kind / "run"), runs / kind / "run")
        assert whole.verified, str(whole)
        assert all(finding.passed for finding in whole.findings[:-1])


def test_every_question_has_its_sentences() -> None:
    from nonvacuous.evaluation.audit import sayable

    assert tuple(sayable(1, named=True)) == ASKED


def _tests(folder: Path, count: int, **settings: Any) -> list[nv.Certificate]:
    labels = classes(400)[1]
    return [
        nv.evaluate(
            predictions=np.where(_wrong(seed), 0, labels),
            labels=labels,
            unseen=True,
            settings=settings,
            folder=folder / str(seed),
        )
        for seed in range(count)
    ]


def _wrong(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(400) < 0.1


_ALONE = (
    _said(
        PAID,
        status="checked",
        effect="none",
        detail="one test is paid for, and the ledger agrees.",
    ),
    _set("status", "valid"),
)


def test_a_third_test_that_hides_the_others(tmp_path: Path) -> None:
    """The ledger beside the folder has the first two."""
    reports = _tests(tmp_path, 3)
    assert [report.status for report in reports] == ["valid", "conditional", "conditional"]
    for number in range(3):
        assert nv.verify(tmp_path / str(number)).verified
    forged = nv.verify(_forged(tmp_path / "2", *_ALONE), tmp_path / "2")
    assert [f.name for f in forged.failures] == ["the ledger of attempts knows this test"]
    no_ledger = _said(
        PAID,
        status="asserted",
        effect="none",
        detail="one test is paid for; no ledger was kept (give a folder).",
    )
    hidden = _forged(tmp_path / "2", no_ledger, _ALONE[1])
    assert not nv.verify(hidden, tmp_path / "2").passed


def test_a_test_beside_a_ledger_that_lost_its_line(tmp_path: Path) -> None:
    """Without any ledger nothing contradicts; one that knows other tests of the examples does."""
    _tests(tmp_path, 2)
    ledger = tmp_path / "attempts.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(line for line in lines if line.strip())[: len(lines[1]) + 1])
    forged = _forged(tmp_path / "1", *_ALONE)
    assert "none of this test" in nv.verify(forged, tmp_path / "1").failures[0].detail
    ledger.unlink()
    assert nv.verify(tmp_path / "1").verified
    assert nv.verify(tmp_path / "0").verified


def test_fewer_predictors_than_paid(tmp_path: Path) -> None:
    """Reports that are valid because they share stay so, and need their shares."""
    reports = _tests(tmp_path, 2, attempts=2)
    assert [report.status for report in reports] == ["valid", "valid"]
    for number in range(2):
        assert nv.verify(tmp_path / str(number)).verified
    labels = classes(400)[1]
    alone = nv.evaluate(predictions=np.where(_wrong(1), 0, labels), labels=labels, unseen=True)
    columns = {"predictions": np.where(_wrong(1), 0, labels), "labels": labels}
    assert nv.verify(alone, data=columns).verified
    beside = nv.verify(alone, data=columns, ledger=tmp_path / "attempts.jsonl")
    assert "the ledger has it with 2" in beside.failures[0].detail


def test_reports_of_older_versions_verify(tmp_path: Path, monkeypatch) -> None:
    """Losses of which no ledger can know whose they are were called checked."""
    losses = np.random.default_rng(0).random(300)
    nv.evaluate(losses=losses, unseen=True, settings={"metric": "loss"}, folder=tmp_path / "run")
    older = _forged(tmp_path / "run", _ALONE[0], lambda record: record["evaluation"].pop("beside"))
    assert nv.verify(older, tmp_path / "run").verified


def test_a_score_that_an_older_version_called_by_its_name_is_not_verified(tmp_path: Path) -> None:
    """It left "1 -" out of the sentence: nothing was forged, and the sentence is false."""
    scores = np.random.default_rng(0).random(300) * 5
    settings = {"metric": "score", "range": (0, 5)}
    nv.evaluate(losses=scores, unseen=True, settings=settings, folder=tmp_path / "run")

    def older(record: dict[str, Any]) -> None:
        record["statement"] = record["statement"].replace("1 - mean score", "score")
        record["loss"]["name"] = record["loss"]["name"].replace("1 - mean score", "score")

    found = nv.verify(_forged(tmp_path / "run", older), tmp_path / "run")
    assert found.passed and not found.verified
    lower = _set("loss.name", "score")
    assert not nv.verify(_forged(tmp_path / "run", older, lower), tmp_path / "run").passed
