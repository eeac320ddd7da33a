"""The site of many runs in a real browser, opened as a file: it sorts, and it is only text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nonvacuous.study.runs import Run, figures_of, read_runs
from nonvacuous.study.site import page_name, write_site
from tests.browser.conftest import Visit
from tests.certificates import sealed
from tests.report import samples

pytestmark = pytest.mark.browser

Open = Callable[..., Visit]
RISKS = (0.25, 0.031, 0.9, 0.11, 0.0042)


def certified(name: str, risk: float, **settings: Any) -> Run:
    certificate = sealed(risk_upper=risk)
    return Run(
        name,
        Path("runs") / name,
        "done",
        settings,
        figures_of(certificate),
        3,
        1.5,
        "",
        certificate,
    )


def some_runs() -> list[Run]:
    runs = [
        certified(f"run{number}", risk, width=2**number, model=f"mlp:{2**number}")
        for number, risk in enumerate(RISKS)
    ]
    return [*runs, Run("broken", Path("runs/broken"), "failed", {"width": 3}, error="no luck")]


MAIN, REST = "table.runs:not(.flow)", "table.flow"


def column(seen: Visit, number: int, table: str = MAIN) -> list[str]:
    texts = seen.page.locator(f"{table} tbody tr > *:nth-child({number})").all_inner_texts()
    return [text.splitlines()[0].strip() for text in texts]


def test_it_opens_from_a_file_and_sorts_in_silence(visit_file: Open, tmp_path: Path) -> None:
    site = write_site(some_runs(), tmp_path, title="a sweep")
    seen = visit_file(site.index)
    heading = seen.page.locator(f"{MAIN} thead th", has_text="Certificate")
    button = heading.get_by_role("button")
    button.click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column(seen, 1) == ["run4", "run1", "run3", "run0", "run2", "broken"]
    button.click()
    assert heading.get_attribute("aria-sort") == "descending"
    # What has no number comes last in either direction.
    assert column(seen, 1) == ["run2", "run0", "run3", "run1", "run4", "broken"]
    seen.page.get_by_role("button", name="Run").click()
    assert heading.get_attribute("aria-sort") is None
    assert column(seen, 1)[0] == "broken"
    # Settings that differ are what is compared.
    seen.page.get_by_role("button", name="width").click()
    assert column(seen, 1) == ["run0", "run1", "broken", "run2", "run3", "run4"]
    assert seen.console == []
    assert seen.requests == [site.index.as_uri()]


def test_keys_reach_the_buttons(visit_file: Open, tmp_path: Path) -> None:
    seen = visit_file(write_site(some_runs(), tmp_path, title="a sweep").index)
    seen.page.get_by_role("button", name="Certificate").focus()
    seen.page.keyboard.press("Enter")
    assert column(seen, 1)[0] == "run4"


def test_the_first_screen_counts_and_picks_nothing(visit_file: Open, tmp_path: Path) -> None:
    page = visit_file(write_site(some_runs(), tmp_path, title="a sweep").index).page
    assert page.locator("h1").inner_text() == "5 certificates: 5 valid, none refused."
    for text in ("6 runs", "4 non-vacuous", "1 failed", "Picking the smallest is a search"):
        box = page.get_by_text(text).first.bounding_box()
        assert box is not None and box["y"] + box["height"] <= 800, text
    size = "e => parseFloat(getComputedStyle(e).fontSize)"
    assert page.get_by_text("Picking the smallest").evaluate(size) >= 16
    assert page.get_by_text("no luck").is_visible()


def test_each_certificate_has_its_page(visit_file: Open, tmp_path: Path) -> None:
    site = write_site(some_runs(), tmp_path, title="a sweep")
    assert len(site.pages) == len(RISKS)
    seen = visit_file(site.index)
    seen.page.get_by_role("link", name="run1").click()
    seen.page.wait_for_load_state()
    assert seen.page.url == (tmp_path / "certificates" / page_name("run1")).as_uri()
    assert "fewer than 31 in 1,000" in seen.page.locator("h1").inner_text()
    assert seen.page.get_by_text("nonvacuous verify runs/run1", exact=True).is_visible()
    strip = seen.page.get_by_role("img", name=re.compile("Certificate ≤ 3.1"))
    box = strip.bounding_box()
    assert box is not None and box["width"] > 500
    assert seen.console == []


def test_strips_have_one_scale(visit_file: Open, tmp_path: Path) -> None:
    """A mark at twice the error stands twice as far to the right, in every row."""
    page = visit_file(write_site(some_runs(), tmp_path, title="a sweep").index).page
    edges = page.evaluate(
        """() => [...document.querySelectorAll('table.runs svg.strip')].map(s => {
             const r = s.querySelector('.ruled').getBoundingClientRect();
             const m = s.querySelector('.mark-certificate').getBoundingClientRect();
             return ((m.left + m.right) / 2 - r.left) / r.width; })"""
    )
    assert edges == pytest.approx(sorted(RISKS), abs=0.004)  # best first


def test_it_can_be_read_without_scripts(visit_file: Open, tmp_path: Path) -> None:
    site = write_site(some_runs(), tmp_path, title="a sweep")
    page = visit_file(site.index, scripts=False).page
    assert page.get_by_role("button").count() == 0
    assert page.locator(f"{MAIN} tbody tr").count() == 6
    assert page.get_by_text("25.0%").first.is_visible()
    assert page.get_by_role("link", name="run1").is_visible()


# What a reader could not see: everything that ends beyond the edge of the page.
OUTSIDE = """() => [...document.querySelectorAll('main *')]
  .filter(e => e.checkVisibility() && !e.closest('.behind') && !e.closest('.first table')
    && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"""


def long_runs() -> list[Run]:
    """Names as sweeps give them, and more settings than a page has room for."""
    settings = {f"setting_number_{number}": number for number in range(12)}
    runs = [
        certified(
            f"experiment/model=mlp-{width},learning_rate=0.01,seed={width}-bc7f09b5d75f",
            risk,
            **{name: value + width for name, value in settings.items()},
        )
        for width, risk in enumerate(RISKS)
    ]
    return [*runs, Run("broken", Path("runs/broken"), "failed", {"width": 3}, error="no luck")]


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1000, "dark"), (800, "light"), (390, "dark")]
)
def test_nothing_that_decides_lies_off_the_screen(
    visit_file: Open, tmp_path: Path, width: int, scheme: str
) -> None:
    site = write_site(long_runs(), tmp_path, title="a sweep")
    page = visit_file(site.index, width=width, scheme=scheme).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE) == []
    for text, count in (("≤ 25.0%", 1), ("valid", 5), ("≤ 5.01%", 5), ("2.50%", 5), ("failed", 1)):
        found = page.locator(MAIN).get_by_text(text, exact=True).locator("visible=true")
        assert found.count() == count, text
        # Nobody has to scroll the table to see them.
        ends = [box["x"] + box["width"] for box in (e.bounding_box() for e in found.all()) if box]
        assert max(ends) <= width, text


def test_a_telephone_shows_cards_with_numbers_and_whole_strips(
    visit_file: Open, tmp_path: Path
) -> None:
    page = visit_file(write_site(long_runs(), tmp_path, title="a sweep").index, width=390).page
    strips = page.evaluate(
        f"""() => [...document.querySelectorAll('{MAIN} svg.strip .ruled')].map(e => {{
          const r = e.getBoundingClientRect(); return [r.left, r.right]; }})"""
    )
    assert len(strips) == 5
    assert all(left >= 0 and right <= 390 and right - left > 150 for left, right in strips)
    # Names of numbers stand beside them, and the headings are what one sorts by.
    label = "e => getComputedStyle(e, '::before').content"
    cell = page.locator(f"{MAIN} td[data-label='Held-out twin']").first
    assert cell.evaluate(label) == '"Held-out twin"'
    page.get_by_role("button", name="Certificate").click()
    first = page.locator(f"{MAIN} tbody tr").first
    assert "≤ 0.420%" in first.inner_text()


def test_paper_has_every_column(visit_file: Open, tmp_path: Path) -> None:
    """As wide as what an A4 page leaves between its margins."""
    site = write_site(long_runs(), tmp_path, title="a sweep")
    page = visit_file(site.index, width=695).page
    page.emulate_media(media="print")
    outside = OUTSIDE.replace("&& !e.closest('.behind') && !e.closest('.first table')", "")
    assert page.evaluate(outside) == []
    first = page.locator(f"{MAIN} tbody tr").first.locator("td").locator("visible=true")
    labels = {cell.get_attribute("data-label") for cell in first.all()}
    assert labels >= {"Certificate", "Status", "Held-out twin", "Test error", "setting_number_11"}


def test_hostile_names_are_only_text(visit_file: Open, tmp_path: Path) -> None:
    hostile = samples.SAMPLES["hostile"]()
    runs = [
        Run(
            name=f"{text}/../x",
            folder=Path("runs") / str(number),
            state="failed" if number % 2 else "done",
            settings={text: text, "model": text},
            figures=figures_of(hostile),
            error=text if number % 2 else "",
            certificate=None if number % 2 else hostile,
        )
        for number, text in enumerate(samples.HOSTILE)
    ]
    site = write_site(runs, tmp_path, title=samples.HOSTILE[0])
    assert all(path.parent == tmp_path / "certificates" for path in site.pages)
    seen = visit_file(site.index)
    assert seen.page.locator("img, b, iframe").count() == 0
    assert seen.page.locator("script").count() == 1
    assert seen.page.get_by_text("<script>alert(1)</script>").first.is_visible()
    seen.page.get_by_text("Everything else about these runs").click()
    for button in seen.page.get_by_role("button").all():
        button.click()
    assert seen.page.locator(f"{MAIN} tbody tr").count() == len(samples.HOSTILE)
    assert seen.console == []
    assert seen.requests == [site.index.as_uri()]
    for page in site.pages:
        other = visit_file(page)
        assert other.console == [] and other.requests == [page.as_uri()]


def test_an_injected_script_would_not_run(visit_file: Open, tmp_path: Path) -> None:
    """The policy of the page allows its own script by fingerprint, and no other."""
    site = write_site(some_runs(), tmp_path, title="a sweep")
    text = site.index.read_text()
    site.index.write_text(text.replace("</main>", "<script>document.title='owned'</script></main>"))
    seen = visit_file(site.index)
    assert seen.page.title() != "owned"
    assert any("Content Security Policy" in line for line in seen.console)


def test_results_of_functions_have_columns_of_their_own(visit_file: Open, tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / "s/cells" / f"c{number}"
        folder.mkdir(parents=True)
        record = {
            "format": "nonvacuous-cell/1",
            "state": "done",
            "settings": {"x": number},
            "seed": number,
            "seconds": 0.5,
            "result": {"loss": 10.0 - number, "note": "<i>fine</i>"},
        }
        (folder / "result.json").write_text(json.dumps(record))
    site = write_site(read_runs(tmp_path / "s"), tmp_path / "s", title="s")
    assert site.pages == ()
    seen = visit_file(site.index)
    assert "promises anything" in seen.page.locator("h1").inner_text()
    seen.page.get_by_role("button", name="loss").click()
    assert column(seen, 1) == ["cells/c2", "cells/c1", "cells/c0"]
    assert seen.page.get_by_text("<i>fine</i>").first.is_visible()
    assert seen.console == []


@pytest.mark.slow
def test_five_hundred_runs(visit_file: Open, tmp_path: Path) -> None:
    runs = [certified(f"run{n:03}", 0.05 + n / 1000, width=(n * 7919) % 500) for n in range(500)]
    site = write_site(runs, tmp_path, title="many")
    seen = visit_file(site.index)
    assert seen.page.locator(f"{MAIN} tbody tr").count() == 500
    seen.page.get_by_role("button", name="width").click()
    headings = [text.strip() for text in seen.page.locator(f"{MAIN} thead th").all_inner_texts()]
    widths = [int(text) for text in column(seen, 1 + headings.index("width"))]
    assert widths == list(range(500))
    assert seen.console == []


def test_every_varied_setting_is_a_column_and_scrolls_in_its_own_box(
    visit_file: Open, tmp_path: Path
) -> None:
    names = [f"setting_{number}" for number in range(9)]
    runs = [
        certified(f"run{row}", risk, **{name: row * 1_000 + 7 for name in names})
        for row, risk in enumerate(RISKS)
    ]
    index = write_site(runs, tmp_path, title="a wide sweep").index
    page = visit_file(index).page
    heads = page.locator("table.runs:not(.flow) thead th").all_inner_texts()
    assert set(names) <= {head.strip() for head in heads}
    overflow = "e => e.scrollWidth > e.clientWidth"
    assert not page.locator("html").evaluate(overflow)
    box = page.locator("div.first")
    assert box.evaluate(overflow)
    box.evaluate("e => { e.scrollLeft = e.scrollWidth }")
    name, last = page.get_by_role("link", name="run4").first, page.get_by_text("4007").last
    assert name.is_visible() or page.locator("tbody th").first.is_visible()
    right = last.bounding_box()
    assert right is not None and right["x"] + right["width"] <= 1280
    small = visit_file(index, width=390).page
    assert not small.locator("html").evaluate(overflow)
    few = visit_file(write_site(some_runs(), tmp_path / "few", title="a sweep").index).page
    assert few.locator("div.first").count() == 0
    assert "width" in {head.strip() for head in few.locator("thead th").all_inner_texts()}
