"""Promises about classes and groups of which the test has no row, and classes called by numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.cli.app import main
from nonvacuous.errors import BadInput

MEANS = ("balanced error", "f1", "jaccard")


def world(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two classes always answered right, and a rare one that is always answered wrong."""
    labels = generator.choice(3, 200, p=[0.4975, 0.5, 0.0025])
    return np.where(labels == 2, 0, labels), labels


@pytest.mark.parametrize("metric", MEANS)
def test_a_mean_over_classes_needs_all_their_names(metric: str) -> None:
    answers, labels = world(np.random.default_rng(0))
    with pytest.raises(BadInput, match="declare them"):
        nv.evaluate(predictions=answers, labels=labels, unseen=True, settings={"metric": metric})
    settings = {"metric": metric, "positive": 1}
    if metric != "balanced error":
        one = nv.evaluate(predictions=answers, labels=labels, unseen=True, settings=settings)
        assert one.status == "valid"


@pytest.mark.parametrize("metric", MEANS)
def test_declared_classes_count_whether_they_turn_up_or_not(metric: str) -> None:
    generator, false = np.random.default_rng(1), 0
    settings = {"metric": metric, "classes": (0, 1, 2)}
    for _ in range(60):
        answers, labels = world(generator)
        report = nv.evaluate(
            predictions=answers, labels=labels, unseen=True, settings=settings, confidence=0.8
        )
        false += report.risk_upper < 1 / 3  # the rare class alone
    assert false <= 20  # of 60, 12 are allowed on average


def test_classes_that_are_numbers_are_no_positions(tmp_path: Path, capsys) -> None:
    rows = ["prediction,label", *["1,1"] * 30, *["0,1"] * 10, *["0,0"] * 200]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(rows))
    said = []
    for classes in ([], ["--classes", "1", "--classes", "0"]):
        words = ["evaluate", str(path), "--metric", "recall", "--positive", "1", "--unseen"]
        assert main([*words, *classes, "--json"]) == 0
        said.append(nv.Certificate.model_validate_json(capsys.readouterr().out).risk_upper)
    assert said[0] == said[1] > 0.25


def test_a_score_is_promised_as_what_it_lacks() -> None:
    scores = np.random.default_rng(0).uniform(8, 10, 300)
    settings = {"metric": "score", "range": (0, 10)}
    report = nv.evaluate(losses=scores, unseen=True, settings=settings)
    assert "the 1 - mean score, clipped to [0, 10]" in report.statement


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "better than every constant answer"),
        ({"metric": "f1", "positive": 1}, "errs less often than every constant answer"),
        ({"metric": "top-k", "top": 2, "classes": (0, 1)}, ""),
    ],
)
def test_what_is_said_beside_a_constant_answer(settings: dict, said: str) -> None:
    labels = np.arange(400) % 2
    answers: np.ndarray = labels
    if settings.get("metric") == "top-k":
        answers = np.eye(2)[labels]
    report = nv.evaluate(predictions=answers, labels=labels, unseen=True, settings=settings)
    lines = report.lines()[1]
    assert said in lines if said else "constant" not in lines
