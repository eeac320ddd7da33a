"""Doctests are looked for where there are some: files without any are not even imported."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """The library holds no tests but its doctests, and some modules need packages of others."""
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(ROOT / "src"):
        return None
    return True if ">>>" not in collection_path.read_text(encoding="utf-8") else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """The tests hold no doctests."""
    collectors = yield
    if file_path.is_relative_to(ROOT / "tests"):
        return [each for each in collectors if type(each) is pytest.Module]
    return collectors
