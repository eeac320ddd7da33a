"""The drawings: labels that never overlap, names that never become code, the same bytes twice."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.comparison import compare
from nonvacuous.report import figures, view
from nonvacuous.report.curves import Curve
from nonvacuous.report.plots import Series
from nonvacuous.report.svg import COLORS, plain_settings, text_width
from nonvacuous.report.view import View
from tests.report import samples


def view_of(name: str) -> View:
    certificate = samples.SAMPLES[name]()
    return view.View(certificate, comparison=compare(certificate))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("text")]


labels = st.lists(st.tuples(st.floats(0, 1000), st.floats(10, 150)), min_size=1, max_size=6)


@given(labels)
def test_labels_never_overlap_and_stay_inside(drawn: list[tuple[float, float]]) -> None:
    drawn.sort()
    targets, widths = [x for x, _ in drawn], [w for _, w in drawn]
    centers = figures.spread(targets, widths, low=0.0, high=1000.0, gap=5.0)
    edges = [(c - w / 2, c + w / 2) for c, w in zip(centers, widths, strict=True)]
    for (_, right), (left, _) in pairwise(edges):
        assert left - right >= 5.0 - 1e-6
    assert edges[0][0] >= -1e-6
    assert edges[-1][1] <= 1000.0 + 1e-6


def test_labels_stay_where_they_are_if_nothing_is_in_the_way() -> None:
    centers = figures.spread([100.0, 300.0, 700.0], [50.0] * 3, low=0.0, high=1000.0, gap=5.0)
    assert centers == [100.0, 300.0, 700.0]
    assert figures.spread([], [], low=0.0, high=1.0, gap=0.0) == []


@pytest.mark.parametrize("name", [n for n in samples.SAMPLES if n != "hostile"])
@pytest.mark.parametrize("narrow", [False, True])
def test_no_two_texts_of_the_scale_overlap(name: str, narrow: bool) -> None:
    """Measured in the font that matplotlib draws with, which is wider than most."""
    root = ElementTree.fromstring(figures.scale(view_of(name), narrow=narrow))
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    boxes = [box_of(element) for element in root.iter("text")]
    assert len(boxes) > 8
    for left, top, right, bottom, words in boxes:
        assert left >= -0.5 and right <= width + 0.5, words
        assert top >= -0.5 and bottom <= height + 0.5, words
    for index, (left, top, right, bottom, words) in enumerate(boxes):
        for left2, top2, right2, bottom2, other in boxes[:index]:
            apart = right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top
            assert apart, f"{words!r} overlaps {other!r}"


@plain_settings()
def box_of(element: ElementTree.Element) -> tuple[float, float, float, float, str]:
    style = dict(part.split(": ", 1) for part in element.attrib["style"].split("; "))
    size = float(style["font-size"].removesuffix("px"))
    words = element.text or ""
    length = text_width(words, size=size, bold=style.get("font-weight") == "700")
    x, y = float(element.attrib["x"]), float(element.attrib["y"])
    anchor = {"middle": 0.5, "end": 1.0}.get(style.get("text-anchor", "start"), 0.0)
    return x - anchor * length, y - 0.75 * size, x + (1 - anchor) * length, y + 0.2 * size, words


def test_the_scale_names_everything_on_it() -> None:
    for narrow in (False, True):
        words = " ".join(texts(figures.scale(view_of("close"), narrow=narrow)))
        for part in ("Training error", "Test error", "not part of the promise", "Held-out twin"):
            assert part in words
        for part in ("2.10%", "≤ 2.49%", "≤ 3%", "0.766%", "Always “0”", "90.0%"):
            assert part in words


def test_small_risks_are_magnified_and_large_ones_are_not() -> None:
    assert any("magnified" in words for words in texts(figures.scale(view_of("close"))))
    assert not any("magnified" in words for words in texts(figures.scale(view_of("vacuous"))))


def test_the_scale_says_when_nothing_is_promised() -> None:
    assert "nothing is promised" in texts(figures.scale(view_of("refused")))
    assert "nothing is ruled out" in texts(figures.scale(view_of("vacuous")))
    assert "ruled out, with 95% confidence" in texts(figures.scale(view_of("posterior")))


def test_readers_who_cannot_see_it_hear_the_same() -> None:
    root = ElementTree.fromstring(figures.scale(view_of("posterior")))
    assert root.attrib["role"] == "img"
    named = [element.attrib.get("id") for element in root]
    assert all(part in named for part in root.attrib["aria-labelledby"].split())
    description = root.find("desc")
    assert description is not None and description.text is not None
    assert "Certificate ≤ 1.6%" in description.text


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_hostile_names_are_drawn_as_text(name: str) -> None:
    cleaned = view.clean(name)
    curve = Curve(cleaned, (Series(cleaned, (1.0, 2.0), (0.5, 0.25)),))
    svg = figures.training(curve, number=0)
    root = ElementTree.fromstring(svg)
    assert {element.tag for element in root.iter()} <= {
        *("svg", "title", "desc", "g", "path", "text", "defs", "clipPath", "rect", "use"),
    }
    assert any(cleaned[:15] in words for words in texts(svg))


def test_colors_are_the_page_s_own() -> None:
    svg = figures.scale(view_of("posterior"))
    for role in ("certificate", "twin", "test", "training", "guessing"):
        assert f"var(--{role}, {COLORS[role]})" in svg
    bare = svg
    for role, color in COLORS.items():
        bare = bare.replace(f"var(--{role}, {color})", "")
    assert "#" not in bare.replace('"#', "").replace("url(#", "")
    assert "font-family" not in svg and "DejaVu" not in svg


def test_a_users_matplotlibrc_changes_nothing() -> None:
    before = figures.scale(view_of("posterior"))
    unusual = {
        "font.size": 30,
        "font.family": "serif",
        "svg.fonttype": "path",
        "path.sketch": (3, 100, 2),
        "text.usetex": True,
        "lines.linewidth": 9,
    }
    with matplotlib.rc_context(unusual):
        assert figures.scale(view_of("posterior")) == before
        assert matplotlib.rcParams["font.size"] == 30


DIGEST = """
import hashlib, sys
from tests.report.test_figures import figures, view_of
svg = figures.scale(view_of("posterior"))
print(hashlib.sha256(svg.encode()).hexdigest(), "matplotlib.pyplot" in sys.modules)
"""


@pytest.mark.slow
def test_another_process_draws_the_same_bytes_and_no_global_figure() -> None:
    svg = figures.scale(view_of("posterior"))
    other = subprocess.run(
        [sys.executable, "-c", DIGEST],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
    )
    assert other.stdout.split() == [hashlib.sha256(svg.encode()).hexdigest(), "False"]
