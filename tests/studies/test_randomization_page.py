"""The page of a randomization study: what it says first, and which pictures there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nonvacuous.randomization import study
from nonvacuous.randomization.results import Finding, Permutations
from nonvacuous.report.study import render
from nonvacuous.studies.randomization_figures import figures
from nonvacuous.studies.randomization_page import lead, page
from nonvacuous.study.study import Single
from tests.randomization.study_worlds import SMALL, clouds


@pytest.fixture(scope="module")
def result():
    settings = SMALL.changed(seeds=2, permutations=3, epochs=12, regularization=True)
    return study("mlp:48", clouds(), settings=settings)


def test_the_answer_comes_first(result):
    many = replace(result, permutations=Permutations(0.1, (0.6,) * 19))
    assert lead(many).startswith("It learns")
    problem = Finding("the test set has leaked", "problem", "...")
    assert lead(replace(result, findings=(problem,))) == (
        "Something is wrong: the test set has leaked."
    )
    unlucky = replace(result, permutations=Permutations(0.5, (0.4, 0.5, 0.6)))
    assert lead(unlucky).startswith("No sign of learning")


@pytest.mark.slow
def test_the_headline_does_not_say_more_than_the_test(result):
    """Three permutations cannot give p below 0.25, however well the network does."""
    assert result.permutations.is_smallest and result.permutations.p_value == 0.25
    assert lead(result).startswith("Whether it learns is not shown")
    assert "(p = 0.25; 19 could)" in lead(result)
    one = replace(result, permutations=Permutations(0.1, (0.6,)))
    assert "1 permutation of the labels cannot tell" in lead(one)
    text = render(page(Single(record=one.to_dict()), "x"))
    assert "1 more network was trained" in text and "1 permutation cannot give" in text


def test_without_permutations_the_interval_decides(result):
    alone = replace(result, permutations=None)
    assert alone.condition("true").test_error.high < alone.guessing
    assert lead(alone).startswith("It learns")
    few = replace(
        alone,
        conditions=tuple(
            replace(entry, test_error=replace(entry.test_error, high=1.0))
            for entry in alone.conditions
        ),
    )
    assert lead(few).startswith("Whether it learns is not shown")
    assert "no permutations were trained" in lead(few)
    error = alone.condition("true").test_error
    constant = replace(alone, largest_class=error.value)
    assert lead(constant).endswith(
        f"and always answering the largest class errs on {100 * error.value:.1f} %; "
        "no permutations were trained."
    )


@pytest.mark.slow
def test_every_question_has_its_section(result):
    shown = page(Single(record=result.to_dict()), "nonvacuous randomize --data <clouds>")
    assert [section.heading for section in shown.sections] == [
        "What was found",
        "The same training, other data",
        "Signal first, noise later?",
        "Could the test error be luck?",
        "Has the test set leaked?",
        "What classical capacity says",
        "Is it the regularization?",
        "Was anything else changed?",
    ]
    text = render(shown)
    assert "&lt;clouds&gt;" in text and "<clouds>" not in text
    assert result.configuration[:12] in text


@pytest.mark.slow
def test_pictures_need_numbers(result):
    assert {"figure-1a", "figure-1c", "clean-and-corrupted", "permutations"} <= set(figures(result))
    unwatched = replace(
        result,
        permutations=None,
        conditions=tuple(
            replace(
                entry,
                relative_time=None,
                outcomes=tuple(replace(outcome, curve=()) for outcome in entry.outcomes),
            )
            for entry in result.conditions
        ),
    )
    assert set(figures(unwatched)) == {"figure-1c"}
    assert figures(result) == figures(result), "the same numbers give the same pictures"


def test_the_largest_class_is_named_where_it_does_better_than_a_guess(result):
    def said(largest: float | None) -> str:
        return render(page(Single(record=replace(result, largest_class=largest).to_dict()), "x"))

    guess = f"{100 * result.guessing:.0f} %"
    assert f"Guessing errs on {guess}, always answering the largest class on 10 %." in said(0.1)
    for nothing in (None, result.guessing):
        assert f"Guessing errs on {guess}." in said(nothing)
    assert result.largest_class is not None and result.largest_class <= result.guessing


def test_one_of_a_thing_is_one(result):
    one = replace(result, settings=result.settings.changed(seeds=1), networks=1)
    text = render(page(Single(record=one.to_dict()), "x"))
    assert "In every condition 1 network starts from the same weights" in text
    assert "; 1 network trained by" in text and "Means over 1 seed." in text
