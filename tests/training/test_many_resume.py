"""A run that is killed and resumed ends as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from nonvacuous.progress import Reporter
from nonvacuous.training.checkpoint import OtherConfiguration
from nonvacuous.training.many_jobs import Job, ManySettings
from tests.training.many_worlds import (
    convolutional,
    images,
    labelings,
    largest_difference,
    perceptron,
    train_many,
)

JOBS = (
    Job(seed=1, learning_rate=0.1),
    Job(seed=2, labels=1, dropout=0.2),
    Job(seed=3, learning_rate=1e9),
    Job(seed=4, augmentation="crop"),
)
SETTINGS = ManySettings(epochs=6, batch_size=30, stop_when_fit=True)


class Killed(Exception):
    """Stands for the end of a process."""


def killing(epoch: int) -> Callable[[str, int, int, str], None]:
    def progress(phase: str, done: int, total: int, message: str) -> None:
        if message.startswith(f"epoch {epoch} of"):
            raise Killed

    return progress


@pytest.mark.slow_if("convolutional-one at a time")
@pytest.mark.parametrize(
    ("build", "method"),
    [(perceptron, "matrices"), (convolutional, "one at a time")],
)
def test_killed_and_resumed(build: Callable[[int], nn.Module], method: str, tmp_path: Path) -> None:
    file = tmp_path / "networks.safetensors"
    options = {"settings": SETTINGS, "method": method, "device": "cpu"}
    world = ([images()], labelings(), JOBS)
    undisturbed = train_many(build, *world, **options)
    for epoch in (3, 5):
        with pytest.raises(Killed):
            train_many(
                build,
                *world,
                checkpoint=file,
                checkpoint_seconds=0,
                progress=killing(epoch),
                **options,
            )
    resumed = train_many(build, *world, checkpoint=file, checkpoint_seconds=0, **options)
    # A finished run is read, not trained: nothing is left to report.
    again = train_many(build, *world, checkpoint=file, progress=killing(6), **options)
    for result in (resumed, again):
        for one, other in zip(undisturbed.jobs, result.jobs, strict=True):
            # nan is not equal to itself, but its text is.
            assert repr(one.history) == repr(other.history)
            assert (one.stopped, one.fit_epoch) == (other.stopped, other.fit_epoch)
            if one.stopped != "diverged":
                assert largest_difference(one.state, other.state) == 0.0


def test_the_time_left_after_a_resume_is_judged_by_the_steps_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A clock that goes on by a second whenever it is read, a few times a step.
    clock = iter(range(10_000))
    monkeypatch.setattr("nonvacuous.training.many.Reporter", _with_clock(lambda: next(clock)))
    file = tmp_path / "networks.safetensors"
    settings = ManySettings(epochs=10, batch_size=30)
    options = {"settings": settings, "device": "cpu", "checkpoint": file, "checkpoint_seconds": 0}
    with pytest.raises(Killed):
        train_many(perceptron, [images()], labelings(), JOBS[:1], progress=killing(9), **options)
    told: list[str] = []
    train_many(
        perceptron,
        [images()],
        labelings(),
        JOBS[:1],
        progress=lambda phase, done, total, message: told.append(message),
        **options,
    )
    # 24 of 30 steps lie behind: judged by all of them, the six left would take no time at all.
    lefts = [int(m.rsplit("about ", 1)[1].split(" s")[0]) for m in told if "left" in m]
    assert lefts[0] >= 5


def _with_clock(clock: Callable[[], float]) -> Callable[..., Reporter]:
    return lambda progress, phase, *, done=0: Reporter(
        progress, phase, done=done, every=0.0, clock=clock
    )


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "networks.safetensors"
    settings = ManySettings(epochs=1)
    options = {"settings": settings, "device": "cpu", "checkpoint": file}
    train_many(perceptron, [images()], labelings(), JOBS[:1], **options)
    with pytest.raises(OtherConfiguration, match="jobs was"):
        train_many(perceptron, [images()], labelings(), JOBS[1:2], **options)
    with pytest.raises(OtherConfiguration, match="examples was"):
        train_many(perceptron, [images(seed=9)], labelings(), JOBS[:1], **options)
    with pytest.raises(OtherConfiguration, match="prepared was"):
        train_many(
            perceptron, [images()], labelings(), JOBS[:1], prepare=lambda seen: seen / 2, **options
        )
    with pytest.raises(OtherConfiguration, match="method was"):
        train_many(perceptron, [images()], labelings(), JOBS[:1], method="one at a time", **options)


def test_training_leaves_the_callers_random_numbers_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    train_many(convolutional, [images()], labelings(), JOBS[:2], settings=SETTINGS, device="cpu")
    assert torch.equal(torch.rand(3), expected)
