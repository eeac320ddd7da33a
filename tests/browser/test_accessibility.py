"""Every kind of page that the library writes can be read by everybody; planted faults are found."""

from __future__ import annotations

from pathlib import Path

import pytest

import nonvacuous as nv
from nonvacuous.comparison import compare
from nonvacuous.report import write_report
from nonvacuous.report.plots import histogram
from nonvacuous.report.study import Figure, Section, StudyPage, Table, write_study
from tests.report import samples
from tests.test_house import script

pytestmark = pytest.mark.browser
access = script("check-access")


def certificate(folder: Path, name: str) -> Path:
    made = samples.SAMPLES[name]()
    return write_report(
        made, folder / "page.html", comparison=compare(made), history=samples.events()
    )


def evaluation(folder: Path, name: str) -> Path:
    report = nv.evaluate(
        predictions=[0, 1, 1, 0] * 50,
        labels=[0, 1, 0, 0] * 50,
        groups={"site": ["A", "B"] * 100},
        unseen=True,
    )
    return nv.report(report, folder / "page.html")


def comparison(folder: Path, name: str) -> Path:
    groups = {"site": ["A", "B"] * 100}
    result = nv.compare([0, 1, 1, 0] * 50, [0, 1, 0, 0] * 50, [0, 1, 0, 0] * 50, groups=groups)
    return nv.report(result, folder / "page.html")


def study(folder: Path, name: str) -> Path:
    picture = histogram({"a": [1, 2, 2, 3]}, title="Counts", x_label="x", level=("true", 0.5))
    tables = (Table(("what", "number", "why"), (("a", "1", "since it is so"),)),)
    sections = (Section("One", ("Words.",), (Figure(picture, "A picture."),), tables, "All"),)
    return write_study(StudyPage("T", "It is so.", sections=sections), folder / "page.html")


PAGES = {
    **{f"certificate-{name}": certificate for name in ("posterior", "vacuous", "refused")},
    "certificate-post_hoc": certificate,
    "evaluation": evaluation,
    "comparison": comparison,
    "study": study,
}


@pytest.mark.parametrize("name", PAGES)
def test_everybody_can_read_it(visit_file, tmp_path: Path, name: str) -> None:
    seen = visit_file(PAGES[name](tmp_path, name.partition("-")[2]))
    assert access.visited(seen.page, seen.file) == []


FAULTS = {
    "contrast": "<p style='color:#aaa'>pale words</p>",
    "no alternative text": "<img src='data:,'>",
    "a picture without a name": "<svg width=9 height=9><rect width=9 height=9 /></svg>",
    "not exactly one h1": "<h1>another</h1>",
    "is followed by": "<h2>a</h2><h4>b</h4>",
    "a field without a label": "<input id=x>",
    "a link without a name": "<a href='#x'></a>",
    "ids that occur twice": "<p id=y></p><p id=y></p>",
    "scrolls sideways": "<div style='width:5000px'>wide</div>",
    "a mark covers words: here": "<svg role=img aria-label=x viewBox='0 0 99 40'>"
    "<text x=9 y=20>here</text><circle cx=20 cy=16 r=6 /></svg>",
    "a line covers words: struck": "<svg role=img aria-label=x viewBox='0 0 99 40'>"
    "<text x=9 y=20>struck</text><path d='M0 15H90' fill=none stroke=black /></svg>",
    "words of 7.0 px: small": "<svg role=img aria-label=x viewBox='0 0 200 40' width=100>"
    "<text x=9 y=20 font-size=14>small</text></svg>",
    "words on words: two / one": "<svg role=img aria-label=x viewBox='0 0 99 40' width=99>"
    "<text x=9 y=20>one</text><text x=19 y=24>two</text></svg>",
    "words cut off: too long": "<svg role=img aria-label=x viewBox='0 0 99 40' width=99>"
    "<text x=70 y=20>too long</text></svg>",
    "focus cannot be seen": "<a href='#z' style='outline:none'>link</a>",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(visit_file, tmp_path: Path, fault: str) -> None:
    file = tmp_path / "page.html"
    file.write_text(
        f"<!doctype html><html lang=en><title>t</title><h1>t</h1>{FAULTS[fault]}</html>", "utf-8"
    )
    said = access.findings(visit_file(file).page)
    assert any(fault in line for line in said), said
