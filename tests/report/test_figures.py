"""The drawings: everything on one scale, names that never become code, the same bytes twice."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest

from nonvacuous.comparison import compare
from nonvacuous.report import html, view
from nonvacuous.report.plots import Series
from nonvacuous.report.svg import COLORS
from nonvacuous.report.view import View, curves, drawn
from nonvacuous.report.wording import clean
from tests.report import samples

KINDS = ("training", "test", "twin", "certificate", "guessing")


def view_of(name: str) -> View:
    certificate = samples.SAMPLES[name]()
    return view.View(certificate, comparison=compare(certificate))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("text")]


def scale_of(name: str) -> str:
    """The scale on the page, with its words."""
    page = view.render(view_of(name))
    return page[page.index('<figure class="scale">') : page.index("</figure>")]


def test_the_scale_names_everything_on_it() -> None:
    words = scale_of("close")
    for part in ("Training error", "Test error", "not part of the promise", "Held-out twin"):
        assert f"{part}</" in words
    for part in ("2.10%", "≤ 2.49%", "≤ 2.92%", "0.766%", "90.0%"):
        assert f">{part}</strong>" in words


def test_small_risks_are_magnified_and_large_ones_are_not() -> None:
    close = scale_of("close")
    assert "25 times magnified" in close and close.count('class="axis"') == 2
    whole, corner = close.split('class="corner"')
    # Each mark stands once: on the whole axis, or in its corner.
    assert [f"#mark-{kind}" in whole for kind in KINDS] == [False, False, False, False, True]
    promised = samples.SAMPLES["close"]().risk_upper
    assert f'style="left:{100 * promised / 0.04:.2f}%"' in corner
    assert "magnified" not in scale_of("vacuous") and scale_of("vacuous").count('"axis"') == 1


def test_a_lens_holds_all_that_is_of_interest() -> None:
    for highest in (1e-5, 0.0009, 0.0101, 0.019, 0.08, 0.1, 0.15, 0.199):
        limit = view.lens([view.Mark("twin", "", highest, ""), view.Mark("guessing", "", 0.9, "")])
        assert limit is not None and 1.15 * highest <= limit <= 3 * highest
    assert view.lens([view.Mark("certificate", "", 0.2, "")]) is None
    assert view.lens([view.Mark("certificate", "", 0.0, "")]) is None


def test_the_scale_says_when_nothing_is_promised() -> None:
    assert "nothing is promised" in scale_of("refused") and "possible" not in scale_of("refused")
    assert "nothing is ruled out" in scale_of("vacuous")
    assert "ruled out, with 95% confidence" in scale_of("posterior")


def test_readers_who_cannot_see_it_hear_the_same() -> None:
    assert 'role="img" aria-label="Error rates on one scale. On a scale' in scale_of("posterior")
    assert "Certificate ≤ 1.59%;" in scale_of("posterior")


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_hostile_names_are_drawn_as_text(name: str) -> None:
    cleaned = clean(name)
    svg = drawn(1, cleaned, [Series(cleaned, (1.0, 2.0), (0.5, 0.25))])
    root = ElementTree.fromstring(svg)
    assert {element.tag for element in root.iter()} <= {
        *("svg", "title", "desc", "g", "path", "text", "defs", "clipPath", "rect", "use"),
    }
    assert any(cleaned[:15] in words for words in texts(svg))


def training() -> str:
    return drawn(1, *next(iter(curves(samples.events()).items())))


def test_colors_are_the_page_s_own() -> None:
    svg = training()
    for role in ("certificate", "muted", "line"):
        assert f"var(--{role}, {COLORS[role]})" in svg
    bare = svg
    for role, color in COLORS.items():
        bare = bare.replace(f"var(--{role}, {color})", "")
    assert "#" not in bare.replace('"#', "").replace("url(#", "")
    assert "font-family" not in svg and "DejaVu" not in svg
    css = html.page("certificate.css")
    for kind in KINDS:
        assert f".mark-{kind}" in css and f"--{kind}: {COLORS[kind]};" in css


def test_a_users_matplotlibrc_changes_nothing() -> None:
    before = training()
    unusual = {
        "font.size": 30,
        "font.family": "serif",
        "svg.fonttype": "path",
        "path.sketch": (3, 100, 2),
        "text.usetex": True,
        "lines.linewidth": 9,
    }
    with matplotlib.rc_context(unusual):
        assert training() == before
        assert matplotlib.rcParams["font.size"] == 30


DIGEST = """
import hashlib, sys
from tests.report.test_figures import training
svg = training()
print(hashlib.sha256(svg.encode()).hexdigest(), "matplotlib.pyplot" in sys.modules)
"""


@pytest.mark.slow
def test_another_process_draws_the_same_bytes_and_no_global_figure() -> None:
    svg = training()
    other = subprocess.run(
        [sys.executable, "-c", DIGEST],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
    )
    assert other.stdout.split() == [hashlib.sha256(svg.encode()).hexdigest(), "False"]
