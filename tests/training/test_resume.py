"""Killed and resumed runs end with the same bits as undisturbed ones."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nonvacuous import files
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.training import loop
from nonvacuous.training.checkpoint import CorruptCheckpoint, OtherConfiguration
from nonvacuous.training.events import EventLog, read_events
from tests.processes import PATIENCE, forked
from tests.training import killable
from tests.training.calls import train, train_posterior

from .worlds import blobs, same_tensors, small_mlp


class Killed(BaseException):
    """Stands for a kill within this process."""


def events_without_time(folder: Path) -> list[dict[str, object]]:
    events = read_events(folder / "events.jsonl")
    return [{key: value for key, value in event.items() if key != "time"} for event in events]


def assert_same_end(first: Path, second: Path) -> None:
    # The tensors, bit by bit; the bytes of the file also hold metadata in an order of chance.
    one, other = (load_file(folder / "result.safetensors") for folder in (first, second))
    assert same_tensors(one, other)
    assert events_without_time(first) == events_without_time(second)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    killable.run(folder, epochs=4)
    return folder


@pytest.mark.parametrize("moment", ["before the rename", "after the rename"])
def test_a_kill_at_any_checkpoint_changes_nothing(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Every process survives one checkpoint and dies around the next."""
    replace = os.replace
    survived, deaths = 0, 0

    def perhaps_killed(source: Path, target: Path) -> None:
        nonlocal survived
        survived += 1
        if survived % 2 == 0 and moment == "before the rename":
            raise Killed
        replace(source, target)
        if survived % 2 == 0 and moment == "after the rename":
            raise Killed

    while not (tmp_path / "result.safetensors").exists():
        with monkeypatch.context() as patch:
            patch.setattr(files.os, "replace", perhaps_killed)
            try:
                killable.run(tmp_path, epochs=4)
            except Killed:
                deaths += 1
        assert deaths < 100
    assert deaths >= 5
    assert_same_end(tmp_path, undisturbed)


def test_a_kill_at_any_step_changes_nothing(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process does a few more steps than the last checkpoint is old, then dies."""
    chance, deaths, left = random.Random(0), 0, 0

    original = loop.set_rate

    def counting(*arguments: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        original(*arguments)

    monkeypatch.setattr(loop, "set_rate", counting)
    while not (tmp_path / "result.safetensors").exists():
        left = chance.randint(3, 11)
        try:
            killable.run(tmp_path, epochs=4)
        except Killed:
            deaths += 1
        assert deaths < 100
    assert deaths >= 4
    assert_same_end(tmp_path, undisturbed)


def test_a_finished_phase_returns_at_once_and_leaves_the_log_alone(tmp_path: Path) -> None:
    events = EventLog(tmp_path / "events.jsonl")
    options = {"epochs": 3, "checkpoint": tmp_path / "c", "events": events}
    first = train(small_mlp(), blobs(), **options)
    content, written = (tmp_path / "c").read_bytes(), (tmp_path / "events.jsonl").read_bytes()
    second = train(small_mlp(), blobs(), **options)
    assert (tmp_path / "c").read_bytes() == content
    assert (tmp_path / "events.jsonl").read_bytes() == written
    assert first.history == second.history and first.train == second.train
    assert all(
        torch.equal(one, other)
        for one, other in zip(first.module.parameters(), second.module.parameters(), strict=True)
    )


def test_checkpoints_do_not_change_the_result(tmp_path: Path) -> None:
    plain = train(small_mlp(), blobs(), epochs=3, batch_size=16)
    kept = train(small_mlp(), blobs(), epochs=3, batch_size=16, checkpoint=tmp_path / "c")
    assert plain.history == kept.history
    assert torch.equal(plain.module[0].weight, kept.module[0].weight)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"learning_rate": 0.01}, "learning_rate was 0.05 and is now 0.01"),
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"model": small_mlp(seed=1)}, "initial_weights"),
        ({"examples": blobs(seed=1)}, "examples"),
        ({"epochs": 4}, "epochs was 2 and is now 4"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    tmp_path: Path, change: dict[str, object], word: str
) -> None:
    base = {"model": small_mlp(), "examples": blobs(), "epochs": 2, "checkpoint": tmp_path / "c"}
    train(**base)
    with pytest.raises(OtherConfiguration, match=word):
        train(**(base | change))


def test_a_posterior_checkpoint_knows_its_prior(tmp_path: Path) -> None:
    model = small_mlp()
    base = {"model": model, "examples": blobs(), "epochs": 1, "checkpoint": tmp_path / "c"}
    train_posterior(prior=DiagonalGaussian.around(model, scale=0.1), **base)
    with pytest.raises(OtherConfiguration, match="prior was"):
        train_posterior(prior=DiagonalGaussian.around(model, scale=0.2), **base)
    with pytest.raises(OtherConfiguration, match="kind"):
        train(model, blobs(), epochs=1, checkpoint=tmp_path / "c")


def test_a_posterior_is_trained_with_one_kind_of_noise(tmp_path: Path, monkeypatch) -> None:
    """A release that draws otherwise does not go on where an earlier one stopped."""
    model = small_mlp()
    base = {"model": model, "examples": blobs(), "epochs": 1, "checkpoint": tmp_path / "c"}
    prior = DiagonalGaussian.around(model, scale=0.1)
    monkeypatch.setattr("nonvacuous.training.posterior.DRAWS", "0")
    train_posterior(prior=prior, **base)
    monkeypatch.undo()
    with pytest.raises(OtherConfiguration, match="draws was '0' and is now"):
        train_posterior(prior=prior, **base)


def test_a_checkpoint_inside_an_epoch_is_refused(tmp_path: Path, monkeypatch) -> None:
    """Earlier releases wrote them; going on at the start of the epoch would take steps twice."""
    save, base = loop.save_checkpoint, {"epochs": 1, "checkpoint": tmp_path / "c"}

    def in_the_middle(path: Path, *, facts, **rest) -> None:
        save(path, facts={**facts, "step": 1}, **rest)

    monkeypatch.setattr(loop, "save_checkpoint", in_the_middle)
    train(small_mlp(), blobs(), **base)
    with pytest.raises(OtherConfiguration, match="inside an epoch"):
        train(small_mlp(), blobs(), **base)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    train(small_mlp(), blobs(), epochs=1, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CorruptCheckpoint, match="Delete the file"):
        train(small_mlp(), blobs(), epochs=1, checkpoint=path)


@pytest.mark.slow
def test_real_kills_of_a_real_process_change_nothing(tmp_path: Path) -> None:
    folder, calm = tmp_path / "killed", tmp_path / "calm"
    folder.mkdir()
    calm.mkdir()
    killable.run_stretched(calm, 0.0)
    chance, landed = random.Random(1), 0
    for _ in range(5):
        before = _newest_change(folder)
        process = forked(killable.run_stretched, folder, 0.05)
        # Wait until this process has written something, then kill it at a random moment.
        while _newest_change(folder) == before and process.is_alive():
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.4))
        landed += process.is_alive()
        process.kill()
        process.join(PATIENCE)
    assert landed >= 3
    last = forked(killable.run_stretched, folder, 0.0)
    last.join(PATIENCE)
    assert last.exitcode == 0
    assert_same_end(folder, calm)


def _newest_change(folder: Path) -> int:
    times = []
    for path in folder.iterdir():
        try:
            times.append(path.stat().st_mtime_ns)
        except FileNotFoundError:
            continue
    return max(times, default=0)
