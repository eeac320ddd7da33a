"""What the promise commands say about tiny runs, against what they said before.

`make goldens` writes those again that have become others; a commit that changes them says why.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from scripts.goldens import RUNS, SEEDS, write_goldens, write_run, write_words

STORED = Path(__file__).parent / "commands"
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")


def assert_same(now: Any, before: Any, where: str) -> None:
    """Numbers up to what processors round differently, numbers within sentences aside.

    A new check of the audit is no change: what the others say of a certificate must be as it was.
    Nor is the version of the audit that it brings.
    """
    if where.endswith("certificate.json.audit"):
        assert now >= before, where
        return
    if where.endswith(".assumptions"):
        now, before = ({check["name"]: check for check in checks} for checks in (now, before))
        now = {name: check for name, check in now.items() if name in before}
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


def words_of(text: str) -> str:
    """Help without its lines and frames, which move with every new kind of file that it lists.

    >>> words_of("│ a file .npz, .csv or .pt  │\n│ (arrays); a folder │")
    'a file ... (arrays); a folder'
    """
    words = " ".join(re.sub("[\u2500-\u257f]", " ", text).split())
    return re.sub(r"\ba file (\.\w+, )*\.\w+ or \.\w+", "a file ...", words)


def assert_as_stored(path: Path) -> None:
    name, (now, before) = path.name, (p.read_text("utf-8") for p in (path, STORED / path.name))
    if name.endswith(".json"):
        assert_same(json.loads(now), json.loads(before), name)
    elif name.startswith("help"):
        assert_same(words_of(now), words_of(before), name)
    else:
        assert_same(now, before, name)


def assert_all_as_stored(folder: Path, expected: set[str]) -> None:
    assert {path.name for path in folder.iterdir()} == expected
    for path in sorted(folder.iterdir()):
        assert_as_stored(path)


def files_of(name: str, seed: str) -> set[str]:
    return {f"{name}-{seed}{end}" for end in (".txt", "-certificate.json", "-verification.json")}


WORDS = {path.name for path in STORED.iterdir() if path.name.startswith(("bound", "help"))}


def test_the_calculator_and_the_help_say_what_they_said(tmp_path: Path) -> None:
    write_words(tmp_path)
    assert_all_as_stored(tmp_path, WORDS)


def test_there_is_a_stored_file_for_each_run_and_a_run_for_each_file() -> None:
    expected = set().union(*(files_of(name, seed) for name in RUNS for seed in SEEDS))
    assert {path.name for path in STORED.iterdir()} == expected | WORDS


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", pytest.param("1", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_says_what_it_said(tmp_path: Path, name: str, seed: str) -> None:
    write_run(tmp_path, name, seed)
    assert_all_as_stored(tmp_path, files_of(name, seed))


def write_changed() -> None:
    """Store again what a test would call another; numbers that are only rounded otherwise stay."""
    with tempfile.TemporaryDirectory() as folder:
        write_goldens(Path(folder))
        for path in Path(folder).iterdir():
            try:
                assert_as_stored(path)
            except (AssertionError, FileNotFoundError):
                shutil.copy(path, STORED / path.name)
        for path in STORED.iterdir():
            if not Path(folder, path.name).exists():
                path.unlink()


if __name__ == "__main__":
    write_changed()
