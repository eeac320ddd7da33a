"""An honest run folder for every test that wants one."""

from __future__ import annotations

from pathlib import Path

import pytest

from .runs import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_run(tmp_path / "run")
    return tmp_path / "run"
