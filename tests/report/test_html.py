"""The page: well-formed, self-contained, the same twice, and deaf to what hostile names ask for."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from nonvacuous.comparison import compare
from nonvacuous.errors import BadInput
from nonvacuous.report import html, view, write_report
from tests.report import samples

VOID = {"meta", "br", "hr", "img", "link", "input"}
PAGES = list(samples.SAMPLES)


@cache
def page_of(name: str) -> str:
    return fresh_page_of(name)


def fresh_page_of(name: str) -> str:
    certificate = samples.SAMPLES[name]()
    shown = view.View(
        certificate,
        comparison=compare(certificate),
        history=samples.events(),
        run_folder=samples.HOSTILE[1] if name == "hostile" else "runs/one",
    )
    return view.render(shown)


class Walk(HTMLParser):
    """Checks that every element is closed in order, and notes what a browser would act on."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_well_formed(name: str) -> None:
    page = page_of(name)
    walk = Walk(page)
    assert page.startswith("<!DOCTYPE html>")
    assert walk.tags.count("h1") == 1 and walk.tags.count("main") == 1
    ids = [value for _, key, value in walk.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    for _, key, value in walk.attributes:
        if key in ("aria-labelledby", "aria-describedby"):
            assert set(value.split()) <= set(ids)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_runs_and_nothing_is_loaded(name: str) -> None:
    page = page_of(name)
    walk = Walk(page)
    assert not {"script", "link", "img", "iframe", "object", "a", "form"} & set(walk.tags)
    for tag, key, value in walk.attributes:
        assert not key.startswith("on"), (tag, key)
        assert key not in ("src", "srcset", "action", "formaction", "data", "poster"), (tag, key)
        if key in ("href", "xlink:href"):
            assert value.startswith("#")
        if key == "style":
            assert "http" not in value and "javascript" not in value
    style = page[page.index("<style>") : page.index("</style>")]
    assert "http" not in style and "@import" not in style and "url(" not in style
    policy = next(v for t, k, v in walk.attributes if t == "meta" and k == "content")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_the_policy_stands_before_anything_that_it_governs() -> None:
    page = page_of("posterior")
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<body")


def test_hostile_names_are_shown_and_nothing_else() -> None:
    page = page_of("hostile")
    words = Walk(page).words
    assert "<script>alert(1)</script>" in words
    assert '"><img src=x onerror=alert(1)>' in words
    numbers = re.sub(r"[0-9a-f]{32,}", "", words)  # a digest may hold anything
    assert "{{ 7 * 7 }}" in words and "49" not in numbers.replace("0.49", "")
    assert "]]></style><b>bold</b>" in words
    assert "$\\frac{1}{$ \\undefined $$" in words
    assert "&lt;already&gt; & <!-- open" in words
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", page)


@pytest.mark.slow_if("post_hoc", "hostile")
@pytest.mark.parametrize("name", PAGES)
def test_the_same_certificate_gives_the_same_bytes(name: str) -> None:
    assert fresh_page_of(name) == page_of(name)


def test_the_order_is_that_of_a_persons_questions() -> None:
    words = Walk(page_of("posterior")).words
    order = [
        "What is promised?",
        "How sure?",
        "Is that any good?",
        "About what exactly?",
        "Why believe it?",
        "Where the number comes from",
        "What it rests on",
        "Layers, worst first",
        "All bounds side by side",
        "Can I check it?",
        "nonvacuous verify runs/one --data SOURCE",
        "What this does not say",
    ]
    places = [words.index(part) for part in order]
    assert places == sorted(places)


def test_sections_without_content_are_left_out() -> None:
    words = Walk(page_of("holdout")).words
    assert "Layers, worst first" not in words and "Rescaling" not in words
    assert "All bounds side by side" not in Walk(page_of("refused")).words
    assert "Rescaling" in Walk(page_of("vacuous")).words


def test_bad_news_is_set_in_the_same_size_as_good_news() -> None:
    css = (Path(html.__file__).parent / "templates" / "certificate.css").read_text()
    sizes = [rule for rule in re.findall(r"([^{}]*h1[^{}]*)\{([^}]*)\}", css) if "font" in rule[1]]
    assert all(not selector.strip().startswith((".refused", ".empty")) for selector, _ in sizes)


def test_headings_do_not_skip_levels() -> None:
    for name in PAGES:
        levels = [int(t[1]) for t in Walk(page_of(name)).tags if re.fullmatch(r"h[1-6]", t)]
        assert levels[0] == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def palettes() -> dict[str, dict[str, str]]:
    css = (Path(html.__file__).parent / "templates" / "certificate.css").read_text()
    roots = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", r))
        for r in re.findall(r":root \{([^}]*)\}", css)
    ]
    return dict(zip(("light", "dark", "print"), roots, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_text_can_be_read_on_every_ground(scheme: str) -> None:
    """WCAG 2 AA: 4.5 to 1 for text."""
    colors = palettes()[scheme]
    roles = ("ink", "muted", "certificate", "twin", "test", "training", "guessing")
    for role in (*roles, "good", "doubt", "bad"):
        assert contrast(colors[role], colors["paper"]) >= 4.5, role
    for ground in ("panel", "ruled"):
        assert contrast(colors["muted"], colors[ground]) >= 4.5, ground
    assert contrast(colors["muted"], colors["possible"]) >= 4.0


def test_each_scheme_defines_every_color() -> None:
    schemes = palettes()
    assert schemes["light"].keys() == schemes["dark"].keys() == schemes["print"].keys()


def test_a_report_is_written_in_one_step(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    certificate = samples.posterior()
    assert write_report(certificate, target, comparison=compare(certificate)) == target
    first = target.read_bytes()
    assert b"fewer than 16 in 1,000" in first
    write_report(certificate, str(target), comparison=compare(certificate))
    assert target.read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"Cannot write the report .*missing.*report\.html"):
        write_report(samples.posterior(), tmp_path / "missing" / "report.html")
    with pytest.raises(BadInput, match="Cannot write the report"):
        write_report(samples.posterior(), tmp_path)
    with pytest.raises(BadInput, match=r"not of str.*Certificate\.load"):
        write_report("runs/one", tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
