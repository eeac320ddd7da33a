"""The site: examples print what it shows, the reference leaves nothing out."""

from __future__ import annotations

import importlib
import re
from difflib import unified_diff
from pathlib import Path

import pytest

import nonvacuous
from scripts.examples import agree, run_page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [DOCS / "index.md", DOCS / "validity.md", *sorted((DOCS / "questions").glob("*.md"))]
QUESTIONS = 11  # and validity.md


@pytest.mark.slow_if("leaks", "choose", "no-test-set", "reading", "test-set", "ci-gate")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_print_what_the_page_shows(page: Path) -> None:
    shown = page.read_text("utf-8")
    now = run_page(shown)
    changed = "\n".join(unified_diff(shown.splitlines(), now.splitlines(), lineterm="", n=0))
    assert agree(shown, now), f"make examples would change {page.name}:\n{changed}"


def test_every_question_has_an_example_with_its_output() -> None:
    assert len(PAGES) == QUESTIONS + 2
    for page in PAGES:
        text = page.read_text("utf-8")
        assert re.search(r"^```\n\n```text\n.", text, re.M), page
        assert "```text\n```" not in text, f"{page} shows an empty output"


def test_what_the_page_on_reading_explains_stands_in_its_output() -> None:
    text = (DOCS / "questions" / "reading.md").read_text("utf-8")
    shown = text.split("```text\n")[1].partition("```")[0]
    quoted = re.findall(r"^\*\*`([^`]+)`", text, re.M)
    assert len(quoted) >= 6
    assert [words for words in quoted if words not in shown] == []


def test_outputs_that_differ_are_noticed() -> None:
    assert agree("at most 0.0457 (7 in 285)", "at most 0.0458 (7 in 285)")
    assert not agree("at most 0.0457 (7 in 285)", "at most 0.0557 (7 in 285)")
    assert not agree("VALID: at most 0.0457", "CONDITIONAL: at most 0.0457")
    assert agree("took 3.2 seconds", "took 13 seconds")


def test_an_example_that_fails_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        run_page("```python\n1 / 0\n```\n")


def test_the_reference_has_every_public_name() -> None:
    pages = "\n".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md"))
    for name, target in nonvacuous._EXPORTS.items():
        module, _, attribute = target.partition(":")
        if not attribute:
            assert module in pages, f"the reference lacks the module {name}"
        elif not re.search(rf"nonvacuous\.{name}$", pages, re.M):
            # On the page of a submodule, whose public names are all drawn.
            room = importlib.import_module(module)
            assert f"automodule:: {module}\n" in pages and attribute in room.__all__, name


def test_notebooks_ask_questions_and_name_their_pictures() -> None:
    """They are run when the site is built; a cell that draws says in words what it shows."""
    notebooks = [page for page in (DOCS / "notebooks").glob("*.md") if page.stem != "index"]
    assert len(notebooks) == 6
    for page in notebooks:
        text = page.read_text("utf-8")
        cells = re.findall(r"^```{code-cell} ipython3\n(.*?)^```", text, re.S | re.M)
        drawing = [cell for cell in cells if "plt.show()" in cell]
        assert drawing and text.count("<details><summary>Answer") >= 2, page
        assert all("alt: " in cell for cell in drawing), page
        assert f"notebook <{page.stem}.ipynb>`" in text, f"{page} cannot be downloaded"
