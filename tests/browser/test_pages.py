"""Pages are used again by one test after another: none meets a trace of the one before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import Pages

pytestmark = pytest.mark.browser
LOOK = "() => ['print', '(prefers-color-scheme: dark)'].map((query) => matchMedia(query).matches)"
NOISY = "<!doctype html><script>console.log('loud'); alert('louder'); wrong()</script><h1>t</h1>"


def test_a_page_is_as_good_as_new(used_pages: Pages, tmp_path: Path) -> None:
    noisy, silent = tmp_path / "noisy.html", tmp_path / "silent.html"
    noisy.write_text(NOISY, "utf-8")
    silent.write_text("<!doctype html><title>silent</title>", "utf-8")
    first = used_pages.open(noisy, 390, 844, "dark")
    first.page.emulate_media(media="print")
    assert first.page.evaluate(LOOK) == [True, True]
    assert first.console[:2] == ["loud", "dialog louder"] and "wrong" in first.console[2]
    used_pages.give_back()
    second = used_pages.open(silent, 1280, 800, "light")
    assert second.page is first.page
    assert second.page.evaluate(LOOK) == [False, False]
    assert second.page.evaluate("[innerWidth, innerHeight]") == [1280, 800]
    assert second.console == [] and second.requests == [silent.as_uri()]
    used_pages.give_back()
    assert len(first.console) == 3
