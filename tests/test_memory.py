"""What can still be had is the least that machine and container allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from nonvacuous import memory
from nonvacuous.errors import BadInput
from nonvacuous.memorization.inputs import check_memory


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable: 2000000 kB\n")
    monkeypatch.setattr(memory, "_MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CONTAINER", tmp_path)
    (tmp_path / "memory.current").write_text("700000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 100000000\nactive_file 200000000")
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "left"),
    [("max", 2_048_000_000), ("1000000000", 600_000_000), ("300000000", 0), ("?", 2_048_000_000)],
)
def test_the_smaller_of_machine_and_container_counts(
    container: Path, limit: str, left: int
) -> None:
    (container / "memory.max").write_text(limit)
    assert memory.available_memory() == left


def test_half_of_the_machine_where_nobody_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_MACHINE", "_CONTAINER"):
        monkeypatch.setattr(memory, name, tmp_path / "missing")
    assert memory.available_memory() > 2**20


def test_memorizing_keeps_to_the_limit_of_a_container(container: Path) -> None:
    (container / "memory.max").write_text("500000000")
    with pytest.raises(BadInput, match=r"0\.1 GiB are free"):
        check_memory(1_000_000, 10)
