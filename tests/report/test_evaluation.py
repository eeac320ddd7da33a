"""The page of a test says one thing: every number on it is about what is promised, or says so."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nonvacuous as nv
from nonvacuous.report.evaluation import page_of
from nonvacuous.report.view import marks_of
from nonvacuous.study.runs import figures_of

SEXES = {"passenger class": ["first", "second"] * 600}


def sick(settings: dict, **more) -> nv.Certificate:
    """1,200 patients, 100 of them ill: 80 found, 34 others called ill too."""
    labels = np.array(["ill"] * 100 + ["well"] * 1100)
    predictions = np.array(["ill"] * 80 + ["well"] * 20 + ["ill"] * 34 + ["well"] * 1066)
    call = {"predictions": predictions, "labels": labels, "unseen": True, **more}
    return nv.evaluate(**call, settings=settings)


@pytest.mark.parametrize(
    ("metric", "measured", "counted"),
    [("f1", 54 / 214, 134), ("jaccard", 54 / 134, 134), ("precision", 34 / 114, 114),
     ("recall", 20 / 100, 100)],
)  # fmt: skip
def test_what_was_measured_is_what_is_promised(metric, measured, counted) -> None:
    report = sick({"metric": metric, "positive": "ill"})
    page = page_of(report)
    assert f"In the test: {100 * measured:.1f}%" in page.badges
    assert f"{counted} of 1,200 examples count" in page.badges
    svg = page.sections[0].figures[0].svg
    assert f"everybody: measured {measured:.4g}." in svg
    assert report.loss.name in re.sub("<[^>]*>", "", svg)
    assert report.risk_lower < measured < report.risk_upper
    shown = (marks_of(report)[0].value, figures_of(report)["empirical_risk"])
    assert shown == pytest.approx((measured, measured))


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("recall", "misses fewer than 28 in 100 new examples that are “ill”."),
        ("precision", "is wrong on fewer than 38 in 100 new examples that it calls “ill”."),
    ],
)
def test_the_promise_about_one_class_is_a_frequency(metric: str, said: str) -> None:
    report = sick({"metric": metric, "positive": "ill"})
    assert page_of(report).lead == f"Predictor {said}"
    settings = {"metric": metric, "positive": 1}
    numbered = nv.evaluate(
        predictions=[1, 0] * 9, labels=[1, 0] * 9, unseen=True, settings=settings
    )
    assert "“1”." in page_of(numbered).lead


def test_the_axis_of_a_mean_over_classes_names_it() -> None:
    for metric in ("balanced error", "f1"):
        page = page_of(sick({"metric": metric, "classes": ("ill", "well")}))
        assert "1,200 examples" in page.badges
        svg = page.sections[0].figures[0].svg
        assert {"balanced error": "balanced error", "f1": "1 - mean F1"}[metric] in svg
        assert "share that is wrong" not in svg


def test_groups_are_measured_in_the_units_of_the_promise() -> None:
    report = sick({"metric": "f1", "positive": "ill"}, groups=SEXES)
    svg = page_of(report).sections[0].figures[0].svg
    for value, part in report.groups["passenger class"].items():
        share = part.errors / part.examples
        assert f"class {value}: measured {share / (2 - share):.4g}" in svg


def test_a_column_that_ends_like_ours_is_a_group_like_others() -> None:
    page = page_of(sick({}, groups=SEXES))
    section = next(s for s in page.sections if s.heading == "For whom?")
    assert "The worst of all groups, if it is in the test, is no worse than" in str(section)
    (table,) = section.tables
    assert table.headings[:3] == ("Passenger class", "Tested", "Wrong")
    assert {row[0] for row in table.rows} == {"first", "second"}
    svg = page.sections[0].figures[0].svg
    assert "passenger class first" in svg and "share that is wrong" in svg


def test_losses_are_summed_and_not_wrong() -> None:
    losses, settings = [0.02, 0.1] * 300, {"metric": "loss"}
    groups = {"site": ["A", "A", "B"] * 200}
    report = nv.evaluate(losses=losses, groups=groups, unseen=True, settings=settings)
    table = page_of(report).sections[1].tables[0]
    assert table.headings[:3] == ("Site", "Tested", "Sum of losses")


def test_many_errors_are_counted_to_the_last() -> None:
    wrong = [1] * 12_345 + [0] * 20_000
    groups = {"site": ["A"] * len(wrong)}
    settings = {"metric": "event"}
    report = nv.evaluate(losses=wrong, groups=groups, unseen=True, settings=settings)
    assert page_of(report).sections[1].tables[0].rows[0][2] == "12,345"


def test_the_command_to_count_again_asks_for_columns_that_are_not_kept(tmp_path) -> None:
    def command(report: nv.Certificate, where: str) -> str:
        said = next(s for s in page_of(report, where=where).sections if s.heading.startswith("Can"))
        return said.paragraphs[0].partition("again: ")[2]

    assert command(sick({}), "a b") == "nonvacuous verify 'a b' --data FILE"
    assert command(sick({}, folder=tmp_path / "kept"), "kept") == "nonvacuous verify kept"


def test_losses_have_no_classes_to_confuse() -> None:
    report = nv.evaluate(losses=[0.02, 0.1] * 300, unseen=True, settings={"metric": "loss"})
    said = {a.name: a for a in report.assumptions}[
        "predictions and labels name their classes alike"
    ]
    assert (said.status, said.detail) == ("checked", "there are no classes.")


def test_older_reports_of_losses_still_verify(tmp_path) -> None:
    """They said that there was no table to compare: less, and true."""
    report = nv.evaluate(
        losses=[0.02, 0.1] * 300, unseen=True, settings={"metric": "loss"}, folder=tmp_path / "r"
    )
    older = {"status": "not checkable", "detail": "there is no table of classes to compare."}
    assumptions = tuple(
        a.model_copy(update=older) if a.detail == "there are no classes." else a
        for a in report.assumptions
    )
    fields = {name: getattr(report, name) for name in type(report).model_fields if name != "digest"}
    old = type(report).sealed(**fields | {"assumptions": assumptions})
    assert nv.verify(old, tmp_path / "r").verified


def test_no_confidence_is_rounded_up_to_certainty() -> None:
    report = sick({}, confidence=1.0 - 1e-11)
    assert report.statement.startswith("With confidence 0.99999999999 over the draw of 1200 ")
    assert report.lines()[1].startswith("with confidence 0.99999999999 over the draw of 1200 ")


def test_one_example_is_not_some() -> None:
    one = nv.evaluate(predictions=["a", "b"], labels=["a", "a"], unseen=True,
                      settings={"metric": "recall", "positive": "a"})  # fmt: skip
    assert "over the draw of 2 examples;" in one.lines()[1]
    one = nv.evaluate(predictions=["a", "b"], labels=["a", "b"], unseen=True,
                      settings={"metric": "recall", "positive": "a"})  # fmt: skip
    assert "over the draw of 1 example;" in one.lines()[1]
