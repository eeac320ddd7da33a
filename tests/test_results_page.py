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


def test_asking_a_benchmark_for_help_writes_no_result() -> None:
    writers = [path for path in BENCHMARKS.glob("*.py") if "write_result(" in path.read_text()]
    silent = [path.name for path in writers if "ArgumentParser(" not in path.read_text()]
    assert len(writers) > 10 and silent == ["provenance.py"]
