"""The page of papers: every row with a verdict, nothing named in vain."""

from __future__ import annotations

import importlib
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from nonvacuous.cli.app import app

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))  # its sections are files of their own
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "show_papers.py"))
ROWS = SCRIPT["rows"]()


def test_no_row_without_a_verdict() -> None:
    assert len(ROWS) >= 65
    assert {row.verdict for row in ROWS} <= set(SCRIPT["VERDICTS"])
    assert all(all(field.strip() for field in row) for row in ROWS)
    assert len({row.item for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("name", sorted({row.lives for row in ROWS}))
def test_what_a_row_names_can_be_imported(name: str) -> None:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            owner = getattr(owner, attribute)
        return
    pytest.fail(f"{name} is nowhere")


@pytest.mark.parametrize("command", sorted({row.command for row in ROWS}))
def test_commands_are_commands(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "nonvacuous"
    # What cannot be parsed, or is left over, would be raised.
    app.parse_args(words, print_error=False, exit_on_error=False)
