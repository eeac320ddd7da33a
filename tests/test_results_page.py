"""The pages of results and of papers say what the result files say."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_the_pages_are_what_the_files_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", ["show.py", "--check"])
    show = runpy.run_path(str(BENCHMARKS / "show.py"))
    assert show["main"]() == 0, capsys.readouterr().out
