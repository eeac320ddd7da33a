"""The page of a study in a real browser: tables and pictures fit screens, telephones and paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nonvacuous.report import plots
from nonvacuous.report.study import Figure, Section, StudyPage, Table, write_study
from tests.browser.conftest import Visit
from tests.test_house import script

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
access = script("check-access")

OUTSIDE = """() => [...document.querySelectorAll('main *')]
  .filter(e => e.checkVisibility()
    && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"""
SENTENCE = "the same for true and for random labels; a bound needs far more than n = 1,437"
THEOREMS = tuple(f"{theorem} {kind}" for theorem in "ADEF" for kind in ("dense", "sparse"))
WIDE = Table(
    ("network", "test error", "held-out twin", *THEOREMS, "best", "prototype"),
    tuple((f"2x20, 30 %, λ {row}, robust", *(["0.3405"] * 12)) for row in range(5)),
    caption="A long caption. " * 30 + "Its end.",
)
WORDS = Table(
    ("number", "value", "meaning"),
    (("VC dimension", "4,096 to 2,368,683", SENTENCE), ("this network", "memorizes", SENTENCE)),
    numeric=(False, True, False),
)
PAIR = Table(("training data", "what was done to it"), (("random-labels", SENTENCE),))
LABELS = ("over all pairs and then some (Kendall)", "one hyper-parameter at a time (granulated)")

Open = Callable[..., "Page"]


def study(tables: tuple[Table, ...] = (WIDE, WORDS, PAIR)) -> StudyPage:
    series = [plots.Series(label, [0.0, 1.0], [0.0, 1.0]) for label in LABELS]
    picture = plots.lines(series, title="Curves", x_label="x", y_label="y")
    section = Section("What classical capacity says", figures=(Figure(picture),), tables=tables)
    return StudyPage(title="t", lead="An answer.", sections=(section,))


@pytest.fixture
def visit(visit_file: Callable[..., Visit], tmp_path: Path) -> Open:
    def open_page(*, width: int, page: StudyPage | None = None) -> Page:
        return visit_file(write_study(page or study(), tmp_path / "study.html"), width=width).page

    return open_page


@pytest.mark.parametrize("width", [1280, 1000, 390])
def test_no_column_caption_or_legend_lies_outside(visit: Open, width: int) -> None:
    page = visit(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width != 1000:
        assert page.evaluate(OUTSIDE) == []
    caption = page.locator(".caption").bounding_box()
    assert caption is not None and caption["x"] + caption["width"] <= width


def test_a_telephone_shows_rows_as_cards_without_blank_screens(visit: Open) -> None:
    page = visit(width=390)
    heights = page.evaluate(
        "() => [...document.querySelectorAll('.cards tr')]"
        ".map(e => e.getBoundingClientRect().height).filter(h => h)"
    )
    assert len(heights) == 7 and max(heights) < 260
    label = "e => getComputedStyle(e, '::before').content"
    assert page.locator("td[data-label='meaning']").first.evaluate(label) == '"meaning"'
    # A word is not broken to make room for a sentence.
    name = page.get_by_role("rowheader", name="random-labels").bounding_box()
    assert name is not None and name["width"] > 70


def test_numbers_stay_whole_on_paper(visit: Open) -> None:
    page = visit(width=695)
    page.emulate_media(media="print")
    assert page.evaluate(OUTSIDE) == []
    lines = page.evaluate(
        "() => [...document.querySelectorAll('td.number bdi')].map(e => e.getClientRects().length)"
    )
    assert set(lines) == {1}


def test_a_table_that_must_scroll_says_so_and_can_be_reached_by_keys(visit: Open) -> None:
    headings = tuple(f"heading-{number}" for number in range(24))
    wide = Table(headings, (tuple(f"0.12345678{number}" for number in range(24)),))
    page = visit(width=1280, page=study((wide,)))
    scroller = page.locator(".wide")
    assert scroller.evaluate("e => e.scrollWidth > e.clientWidth")
    assert "gradient" in scroller.evaluate("e => getComputedStyle(e).backgroundImage")
    scroller.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(400)
    assert scroller.evaluate("e => e.scrollLeft") > 0


NAMES = (*LABELS, "a-word-that-is-much-longer-than-a-telephone-is-wide-" * 2, "short")


@pytest.fixture(scope="module")
def drawings() -> StudyPage:
    """Every kind of picture with names and numbers of every length."""
    x, values = [0.0, 25_000.0, 60_000.0], [3e-9, 0.4, 0.9]
    series = [plots.Series(name, x, values, values, [1.0, 1.0, 1.0]) for name in NAMES]
    level = ("what guessing would give", 0.9)
    small = [1e-18, 3e-9, 0.4, 0.9]

    def words(kind: str, **more: Any) -> dict[str, Any]:
        title = f"{kind}: a title that does not fit into one line, or into two"
        return {"title": title, "x_label": SENTENCE, **more}

    def axes(kind: str, **more: Any) -> dict[str, Any]:
        return words(kind, y_label=SENTENCE, level=level, **more)

    drawn = (
        plots.lines(series, **axes("lines", lowest=0.0)),
        plots.lines(series[:1], **axes("logarithms", log_x=True, log_y=True)),
        plots.lines([plots.Series("a", x, [2, 3, 5])], **axes("half a decade", log_y=True)),
        plots.bars(NAMES, {"first": small, "second": small}, **words("bars", level=level)),
        plots.bars(NAMES[3:], {"first": small[:1]}, **words("decades", log=True)),
        plots.bars(["a", "b"], {"": [0.00012, 0.00034]}, **words("short")),
        plots.intervals(NAMES, [-9.5, -3.0, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0], **words("intervals")),
        plots.histogram({NAMES[0]: small, NAMES[3]: small}, **words("histogram", level=level)),
    )
    section = Section("Pictures", figures=tuple(Figure(picture) for picture in drawn))
    return StudyPage(title="t", lead="l", sections=(section,))


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_every_picture_can_be_read(visit: Open, drawings: StudyPage, width: int) -> None:
    page = visit(width=width, page=drawings)
    assert page.locator("svg text").count() > 80
    assert page.evaluate(access.CRAMPED) == []
    assert page.evaluate(access.COVERED) == []
    assert page.evaluate(OUTSIDE) == []
