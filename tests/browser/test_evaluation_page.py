"""The page of a test in a real browser: three screens, a telephone, and words for strangers."""

from __future__ import annotations

import pytest

import nonvacuous as nv
from tests.evaluation.worlds import classes

pytestmark = pytest.mark.browser
GLOSSARY = ("Clopper", "posterior", "KL", "delta", "δ", "supermartingale", "i.i.d.")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    predictions, labels, sites = classes(1500, errors=0.05, count=10)
    report = nv.evaluate(
        predictions=predictions, labels=labels, groups={"site": sites}, unseen=True
    )
    return nv.report(report, tmp_path_factory.mktemp("page") / "report.html")


def test_three_screens_and_a_first_one_without_glossary(visit_file, page_file) -> None:
    page = visit_file(page_file, width=1280, height=900).page
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height <= 3 * 900, height
    first = page.evaluate(
        "() => [...document.querySelectorAll('main h1, main p, main li')].filter(e =>"
        " e.getBoundingClientRect().top < 900).map(e => e.textContent).join(' ')"
    )
    assert "is wrong on fewer than" in first and "95% confidence" in first
    assert "Better than always answering" in first
    assert not [word for word in GLOSSARY if word in first]
    assert len(page.inner_text("body").split()) <= 500


def test_a_telephone_does_not_scroll_sideways(visit_file, page_file) -> None:
    page = visit_file(page_file, width=390, height=844).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("document.documentElement.scrollHeight") <= 3 * 844
    top = page.evaluate("document.querySelector('main figure').getBoundingClientRect().top")
    assert top < 844, "promise, confidence and picture are on the first screen"


def test_paper_shows_what_the_screen_folds(visit_file, page_file, tmp_path) -> None:
    page = visit_file(page_file, width=794, height=1123).page
    conditions = page.locator("details.folded td").first
    assert not conditions.is_visible()
    page.locator("details.folded summary").click()
    assert conditions.is_visible()
    page.reload()
    page.emulate_media(media="print")
    assert conditions.is_visible()
    assert page.evaluate("document.documentElement.scrollHeight") <= 1123


def test_a_comparison_on_one_page(visit_file, tmp_path) -> None:
    """Verdict, intervals, groups and the other predictors; hostile names are shown as names."""
    labels = [0, 1] * 300
    old = [1, 0] * 30 + labels[60:]
    others = {"<b>new</b>$": labels, "same": old}
    result = nv.compare(old, others, labels, groups={"site": ["A", "B", "C"] * 200})
    file = nv.report(result, tmp_path / "compare.html")
    for width in (1280, 390):
        page = visit_file(file, width=width, height=900).page
        assert page.inner_text("h1") == f"{result.verdict}."
        assert result.verdict.startswith("<b>new</b>$ errs less, by ")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.documentElement.scrollHeight") <= 3 * 900
        ticks = page.locator("svg.figure text").all_text_contents()
        assert {"all examples", "site A", "site B", "site C", "same"} <= set(ticks)
        assert "not told apart" in page.locator("tbody tr").last.inner_text()
