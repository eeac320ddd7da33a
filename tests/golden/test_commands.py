"""What the promise commands say about tiny runs, against what they said before.

`make goldens` writes the stored ones again; a commit that changes them says why.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.goldens import write_goldens

STORED = Path(__file__).parent / "commands"
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("goldens")
    write_goldens(folder)
    return folder


def assert_same(now: Any, before: Any, where: str) -> None:
    """Numbers up to what processors round differently, numbers within sentences aside."""
    if isinstance(before, dict):
        assert now.keys() == before.keys(), where
        for key in before:
            assert_same(now[key], before[key], f"{where}.{key}")
    elif isinstance(before, list):
        assert len(now) == len(before), where
        for index, pair in enumerate(zip(now, before, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    elif isinstance(before, float) and isinstance(now, float):
        assert now == pytest.approx(before, rel=1e-4, abs=1e-9), where
    elif isinstance(before, str):
        assert NUMBER.sub("#", now) == NUMBER.sub("#", before), where
    else:
        assert now == before, where


@pytest.mark.slow
def test_the_same_files(written: Path) -> None:
    names = [{path.name for path in folder.iterdir()} for folder in (written, STORED)]
    assert names[0] == names[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in STORED.glob("*")))
def test_nothing_changed(written: Path, name: str) -> None:
    now, before = ((folder / name).read_text(encoding="utf-8") for folder in (written, STORED))
    if name.endswith(".json"):
        assert_same(json.loads(now), json.loads(before), name)
    else:
        assert NUMBER.sub("#", now) == NUMBER.sub("#", before)
