"""A bound for a group is about the metric that the report is about."""

from __future__ import annotations

import numpy as np
import pytest

import nonvacuous as nv


def sick_at_two_sites(seed: int, examples: int = 2_000) -> dict[str, np.ndarray]:
    """A tenth is sick; at A 95 in 100 of them are recognized, at B 70; hardly a false alarm."""
    generator = np.random.default_rng(seed)
    site = np.where(generator.random(examples) < 0.5, "A", "B")
    sick = generator.random(examples) < 0.1
    found = generator.random(examples) < np.where(site == "A", 0.95, 0.7)
    alarm = np.where(sick, found, generator.random(examples) < 0.01)
    return {"predictions": alarm.astype(int), "labels": sick.astype(int), "site": site}


def report_of(columns: dict[str, np.ndarray], metric: str) -> nv.Certificate:
    answers = {name: columns[name] for name in ("predictions", "labels")}
    settings = {"metric": metric, "positive": 1}
    return nv.evaluate(**answers, groups={"site": columns["site"]}, unseen=True, settings=settings)


def test_no_group_is_worse_by_the_metric_of_the_report() -> None:
    false = 0
    for seed in range(100):
        report = report_of(sick_at_two_sites(seed), "recall")
        assert report.evaluation is not None
        worst = report.evaluation.worst_group_upper
        assert worst is not None
        false += worst < 0.3  # 1 - recall at B; the errors there are 3.9 %
    assert false <= 12


@pytest.mark.parametrize("metric", ["recall", "precision", "f1", "jaccard"])
def test_a_group_is_tested_as_its_rows_alone_are(metric: str) -> None:
    columns = sick_at_two_sites(0)
    together = report_of(columns, metric)
    for value, part in together.groups["site"].items():
        rows = columns["site"] == value
        alone = report_of({name: column[rows] for name, column in columns.items()}, metric)
        assert (part.risk_upper, part.risk_lower) == (alone.risk_upper, alone.risk_lower)
    assert together.groups["site"].keys() == {"A", "B"}


def test_a_group_that_shows_nothing_may_be_anything(tmp_path) -> None:
    columns = sick_at_two_sites(0)
    columns["site"] = np.where((columns["labels"] == 0) & (columns["site"] == "B"), "C", "A")
    report = report_of(columns, "recall")
    assert report.evaluation is not None and report.evaluation.worst_group_upper == 1.0
    part = report.groups["site"]["C"]
    assert (part.examples, part.risk_upper, part.risk_lower, part.sufficient) == (
        0,
        1.0,
        0.0,
        False,
    )
    nv.report(report, tmp_path / "page.html")
    report.save(tmp_path / "test.json")
    assert nv.verify(tmp_path / "test.json").passed


def test_means_over_classes_have_no_groups() -> None:
    columns = sick_at_two_sites(0)
    answers = {name: columns[name] for name in ("predictions", "labels")}
    settings = {"metric": "balanced error", "classes": (0, 1)}
    with pytest.raises(nv.errors.BadInput, match="no bound for groups"):
        nv.evaluate(**answers, groups={"site": columns["site"]}, unseen=True, settings=settings)
