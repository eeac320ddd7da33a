"""The page on extending: its recipes run as they are printed, and it leaves nothing out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
RECIPES = dict(
    re.findall(r"^## ([^\n]+)\n.*?^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
)
#: Runs each text on standard input, in a process of its own: recipes change tables for good.
RUN = """
import sys, traceback
for recipe in sys.stdin.read().split("\\0"):
    title, _, code = recipe.partition("\\n")
    try:
        exec(compile(code, title, "exec"), {"__name__": "recipe"})
        print("ran", title)
    except Exception:
        traceback.print_exc(file=sys.stdout)
"""


@pytest.fixture(scope="module")
def said() -> str:
    text = "\0".join(f"{title}\n{code}" for title, code in RECIPES.items())
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=text, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("title", RECIPES)
def test_the_recipe_runs_as_printed(said: str, title: str) -> None:
    assert f"ran {title}\n" in said, said


def test_there_is_a_recipe_for_everything_that_can_be_added() -> None:
    listed = re.findall(r"^\| (an? [a-z ]+?) \| ", PAGE.read_text("utf-8"), re.M)
    titles = " / ".join(RECIPES).lower()
    assert len(listed) == 12
    for name in listed:
        assert name.split()[1] in titles, name
