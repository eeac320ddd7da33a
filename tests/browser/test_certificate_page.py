"""The certificate page in a real browser, opened as a file, on screens and on paper."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from PIL import Image

from nonvacuous.records import Observation
from tests.browser.conftest import Visit
from tests.report import samples

pytestmark = pytest.mark.browser

Open = Callable[..., Visit]
REALISTIC = [name for name in samples.SAMPLES if name != "hostile"]

OUTSIDE = """() => [...document.querySelectorAll('body *')]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"""
UNFOLD = "() => document.querySelectorAll('details').forEach(e => { e.open = true; })"
# What a reader could see cut off or on top of another text: every number and name of the scale.
OVERLAPS = """() => {
  const texts = [...document.querySelectorAll('.scale .ticks span, .scale li')], found = [];
  const boxes = texts.map(e => {
    const range = document.createRange();
    range.selectNodeContents(e);
    return [range.getBoundingClientRect(), e.textContent];
  });
  boxes.forEach(([a, one], i) => {
    if (a.left < -1 || a.right > innerWidth + 1) found.push('cut off: ' + one);
    boxes.slice(0, i).forEach(([b, other]) => {
      const beside = a.right <= b.left || b.right <= a.left;
      const apart = beside || a.bottom <= b.top || b.bottom <= a.top;
      if (!apart) found.push(one + ' / ' + other);
    });
  });
  return [boxes.length, found];
}"""


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_it_opens_from_a_file_in_silence(visit: Open, name: str) -> None:
    seen = visit(name)
    assert seen.console == []
    assert seen.requests == [seen.file.as_uri()]
    assert seen.page.locator("h1").is_visible()
    assert seen.page.evaluate(OUTSIDE) == []


def test_the_first_screen_answers_the_first_four_questions(visit: Open) -> None:
    page = visit("posterior").page
    for text in (
        "fewer than 16 in 1,000",
        "95%",
        "of 20 training samples",
        "on average at most one would yield a false claim",
        "better than always answering “0”",
        "About what exactly?",
        "Non-vacuous",
        "≤ 1.59%",
        "not part of the promise",
    ):
        found = page.get_by_text(text, exact=False).locator("visible=true").first
        box = found.bounding_box()
        assert box is not None and box["y"] + box["height"] <= 800, text


def test_a_phone_shows_the_given_network_first(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = samples.post_hoc()
    own = Observation(
        name="the network with the mean weights on the bound examples", errors=3, trials=1437
    )
    told = certificate.model_copy(update={"observed": (own, *certificate.observed)})
    monkeypatch.setitem(samples.SAMPLES, "post_hoc", lambda: told)
    page = visit("post_hoc", width=390).page
    box = page.get_by_text("And your network itself?").locator("xpath=..").bounding_box()
    assert box is not None and box["y"] + box["height"] <= 844


def test_bad_news_is_as_large_as_good_news(visit: Open) -> None:
    size = "() => getComputedStyle(document.querySelector('h1')).fontSize"
    sizes = {visit(name).page.evaluate(size) for name in ("posterior", "vacuous", "refused")}
    assert len(sizes) == 1
    assert visit("refused").page.get_by_text("was found false: 40 bound examples").is_visible()


@pytest.mark.parametrize("name", REALISTIC)
def test_it_is_short_and_the_rest_is_folded(visit: Open, name: str) -> None:
    page = visit(name).page
    assert len(page.locator("body").inner_text().split()) <= 500
    assert page.evaluate("document.documentElement.scrollHeight") <= 3 * 800
    folded = page.locator("details > summary").all_inner_texts()
    assert {"Every check, with what it found", "Words on this page"} <= set(folded)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("details").first.get_attribute("open") is not None


@pytest.mark.parametrize("name", REALISTIC)
def test_it_is_three_screens_of_a_telephone(visit: Open, name: str) -> None:
    page = visit(name, width=390).page
    assert page.evaluate("document.documentElement.scrollHeight") <= 3 * 844


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", REALISTIC)
def test_labels_on_the_scale_keep_apart(visit: Open, name: str, width: int) -> None:
    count, found = visit(name, width=width).page.evaluate(OVERLAPS)
    assert count > 8
    assert found == []


def test_a_telephone_sees_the_list_and_no_sideways_scrolling(visit: Open) -> None:
    for name in samples.SAMPLES:
        page = visit(name, width=390).page
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator(".scale .legend li").count() >= 3


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["vacuous", "hopeless", "post_hoc"])
def test_labels_of_the_rescaling_columns_keep_apart(visit: Open, name: str, width: int) -> None:
    page = visit(name, width=width).page
    page.evaluate(UNFOLD)
    rows = page.locator(".rescaling table.bars tbody tr:not(.group)")
    assert rows.count() >= 8
    boxes = [rows.nth(k).bounding_box() for k in range(rows.count())]
    for above, below in pairwise(boxes):
        assert above and below and above["y"] + above["height"] <= below["y"] + 0.5


def test_the_certified_column_is_marked_in_picture_and_table(visit: Open) -> None:
    page = visit("post_hoc").page
    page.evaluate(UNFOLD)
    marked = page.locator("table.numbers tr.marked")
    assert marked.count() == 1
    assert "this is the certificate" in marked.inner_text()
    color = "() => getComputedStyle(document.querySelector('table.numbers tr.marked th')).color"
    assert page.evaluate(color) == "rgb(11, 88, 166)"
    page.emulate_media(media="print")
    assert page.locator(".rescaling table.bars tr.marked").is_visible()


@pytest.mark.parametrize("name", REALISTIC)
def test_it_prints_on_two_pages_of_a4_at_most(visit: Open, name: str) -> None:
    document = visit(name).page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", document)) in (1, 2)
    width, height = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)", document)[0]
    assert float(width) == pytest.approx(595, abs=2)
    assert float(height) == pytest.approx(842, abs=2)


def test_paper_is_white_even_for_a_reader_in_the_dark(visit: Open) -> None:
    page = visit("posterior", scheme="dark").page
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(20, 23, 27)"
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_something_is_drawn(visit: Open, scheme: str) -> None:
    """The figure has the colors of its five shapes, in either scheme."""
    page = visit("posterior", scheme=scheme).page
    picture = Image.open(io.BytesIO(page.locator(".scale").screenshot())).convert("RGB")
    colors = picture.getcolors(maxcolors=1 << 24)
    assert colors is not None
    present = {color for _, color in colors}
    for role in ("certificate", "twin", "test", "training", "guessing", "possible"):
        value = page.evaluate(
            "r => getComputedStyle(document.documentElement).getPropertyValue('--' + r)", role
        )
        assert tuple(bytes.fromhex(value.strip().removeprefix("#"))) in present, role


def test_it_can_be_read_without_scripts(visit: Open) -> None:
    page = visit("posterior", scripts=False).page
    assert page.locator("h1").inner_text().startswith("Wrong on fewer than 16 in 1,000")
    assert page.get_by_text("nonvacuous verify runs/one --data SOURCE", exact=True).is_visible()


def test_hostile_names_are_only_text(visit: Open) -> None:
    page = visit("hostile").page
    assert page.locator("script, img, b, iframe").count() == 0
    assert page.get_by_text("<script>alert(1)</script>").first.is_visible()
    assert "<script>" in page.title()


def test_screen_readers_get_names_for_the_figures(visit: Open) -> None:
    page = visit("posterior").page
    figure = page.get_by_role("img", name="Error rates on one scale")
    assert figure.count() >= 1
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("region", name="What it rests on").count() == 1
