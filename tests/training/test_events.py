"""The event log: appended, cut back on resume, whole lines only."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

import pytest

from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.training.events import EventLog, TensorBoard, read_events


def test_events_carry_time_phase_epoch_and_metrics(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "run" / "events.jsonl")
    log.append("prior", "epoch", epoch=0, metrics={"loss": 0.5})
    log.append("posterior", "start")
    first, second = read_events(log.path)
    assert datetime.fromisoformat(first.pop("time")).utcoffset() is not None
    assert first == {"phase": "prior", "event": "epoch", "epoch": 0, "metrics": {"loss": 0.5}}
    assert second["event"] == "start" and "epoch" not in second


def test_cutting_back_forgets_later_events_only(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    assert log.position() == 0
    log.append("prior", "one")
    position = log.position()
    log.append("prior", "two")
    EventLog(log.path).cut_back(position)
    log.append("prior", "three")
    assert [event["event"] for event in read_events(log.path)] == ["one", "three"]
    log.cut_back(10**6)
    assert len(read_events(log.path)) == 2


@pytest.mark.parametrize("torn", [b"{", b'{"time": "2026', b'{"event": "two"}'])
def test_a_torn_last_line_is_not_read_and_does_not_spoil_the_next(
    tmp_path: Path, torn: bytes
) -> None:
    path = tmp_path / "events.jsonl"
    EventLog(path).append("prior", "one")
    with path.open("ab") as file:
        file.write(torn)
    assert [event["event"] for event in read_events(path)] == ["one"]
    EventLog(path).append("prior", "three")
    assert [event["event"] for event in read_events(path)] == ["one", "three"]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_damaged_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "one"}\n{"event"\n{"event": "three"}\n')
    with pytest.raises(BadInput, match=r"Line 2 .*events\.jsonl"):
        read_events(path)


def test_numbers_that_json_does_not_know_are_refused(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        log.append("prior", "epoch", metrics={"loss": float("nan")})


def test_tensorboard_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(Unsupported, match="pip install tensorboard"):
        TensorBoard(tmp_path)


def test_tensorboard_files_hold_the_metrics(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = TensorBoard(tmp_path)
    board.write("prior", 0, {"loss": 0.5, "note": "not a number"})
    board.write("prior", 1, {"loss": 0.25})
    board.close()
    reader = EventAccumulator(str(tmp_path))
    reader.Reload()
    assert reader.Tags()["scalars"] == ["prior/loss"]
    assert [(entry.step, entry.value) for entry in reader.Scalars("prior/loss")] == [
        (0, 0.5),
        (1, 0.25),
    ]
