"""The event log: appended, cut back on resume, whole lines only."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

import pytest
import torch

from nonvacuous.data import Examples
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.training.erm import TrainSettings, train
from nonvacuous.training.events import EventLog, read_events, tensorboard_writer
from nonvacuous.training.loop import Records


def test_events_carry_time_phase_epoch_and_metrics(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "run" / "events.jsonl")
    log.append("prior", 0, {"loss": 0.5})
    log.append("posterior", 1, {"kl": 2.0})
    first, second = read_events(log.path)
    assert datetime.fromisoformat(first.pop("time")).utcoffset() is not None
    assert first == {"phase": "prior", "event": "epoch", "epoch": 0, "metrics": {"loss": 0.5}}
    assert second["phase"] == "posterior" and second["metrics"] == {"kl": 2.0}


def test_cutting_back_forgets_later_events_only(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    assert log.position() == 0
    log.append("prior", 1, {})
    position = log.position()
    log.append("prior", 2, {})
    EventLog(log.path).cut_back(position)
    log.append("prior", 3, {})
    assert [event["epoch"] for event in read_events(log.path)] == [1, 3]
    log.cut_back(10**6)
    assert len(read_events(log.path)) == 2


@pytest.mark.parametrize("torn", [b"{", b'{"time": "2026', b'{"event": "two"}'])
def test_a_torn_last_line_is_not_read_and_does_not_spoil_the_next(
    tmp_path: Path, torn: bytes
) -> None:
    path = tmp_path / "events.jsonl"
    EventLog(path).append("prior", 1, {})
    with path.open("ab") as file:
        file.write(torn)
    assert [event["epoch"] for event in read_events(path)] == [1]
    EventLog(path).append("prior", 3, {})
    assert [event["epoch"] for event in read_events(path)] == [1, 3]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_damaged_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "one"}\n{"event"\n{"event": "three"}\n')
    with pytest.raises(BadInput, match=r"Line 2 .*events\.jsonl"):
        read_events(path)


def test_numbers_that_json_does_not_know_are_refused(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        log.append("prior", 0, {"loss": float("nan")})


def test_tensorboard_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(Unsupported, match="pip install tensorboard"):
        tensorboard_writer(tmp_path)


def test_tensorboard_files_hold_the_metrics(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained = train(
        torch.nn.Linear(2, 2),
        Examples.of((torch.rand(8, 2), [0, 1] * 4)),
        TrainSettings(epochs=2),
        records=Records(tensorboard=tmp_path),
    )
    reader = EventAccumulator(str(tmp_path))
    reader.Reload()
    shown = {name: reader.Scalars(f"prior/{name}") for name in ("epoch", "loss")}
    for name, entries in shown.items():
        kept = [metrics[name] for metrics in trained.history]
        assert [entry.step for entry in entries] == [0, 1]
        assert [entry.value for entry in entries] == pytest.approx(kept)
