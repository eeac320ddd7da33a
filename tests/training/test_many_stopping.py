"""Networks that fit, diverge or run out of epochs, and the others that go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

from nonvacuous.training.many_jobs import Job, ManySettings
from tests.training.many_worlds import (
    convolutional,
    images,
    labelings,
    largest_difference,
    perceptron,
    train_many,
)

INPUTS, LABELS = [images()], labelings()


@pytest.mark.parametrize(
    ("build", "method"),
    [(perceptron, "matrices"), (convolutional, "one at a time")],
)
def test_a_network_that_diverges_harms_no_other(
    build: Callable[[int], nn.Module], method: str
) -> None:
    wild, tame = Job(seed=1, learning_rate=1e9), Job(seed=2, labels=1)
    settings = ManySettings(epochs=4, batch_size=30)
    options = {"settings": settings, "device": "cpu", "method": method}
    result = train_many(build, INPUTS, LABELS, [wild, tame], **options)
    alone = train_many(build, INPUTS, LABELS, [tame], **options)
    assert result.jobs[0].stopped == "diverged"
    assert result.jobs[0].history[-1].train_loss is None
    assert len(result.jobs[0].history) < 4
    assert result.jobs[1].stopped == "epochs"
    assert largest_difference(result.jobs[1].state, alone.jobs[0].state) < 1e-5


def test_networks_stop_once_they_fit_and_the_rest_go_on() -> None:
    jobs = [Job(seed=s, learning_rate=rate) for s, rate in ((1, 0.1), (2, 0.02), (3, 0.001))]
    settings = ManySettings(epochs=40, batch_size=30, stop_when_fit=True)
    result = train_many(perceptron, INPUTS, LABELS, jobs, settings=settings, device="cpu")
    assert [job.stopped for job in result.jobs] == ["fit", "fit", "epochs"]
    for job in result.jobs[:2]:
        assert job.fit_epoch == len(job.history)
        assert job.history[-1].train_errors == 0
        assert all(record.train_errors > 0 for record in job.history[:-1])
    assert result.jobs[2].fit_epoch is None
    # The state is that of the moment of stopping, as a run of so many epochs leaves it.
    epochs = len(result.jobs[0].history)
    alone = train_many(
        perceptron,
        INPUTS,
        LABELS,
        jobs[:1],
        settings=ManySettings(epochs=epochs, batch_size=30),
        device="cpu",
        method="one at a time",
    )
    assert largest_difference(alone.jobs[0].state, result.jobs[0].state) < 1e-4


def test_a_loss_and_patience_can_be_asked_for() -> None:
    settings = ManySettings(epochs=60, batch_size=30, stop_when_fit=True, fit_loss=0.02, patience=3)
    job = Job(seed=1, learning_rate=0.1)
    history = train_many(
        perceptron, INPUTS, LABELS, [job], settings=settings, device="cpu"
    ).jobs[0].history  # fmt: skip
    assert len(history) < 60
    good = [record.train_errors == 0 and record.train_loss <= 0.02 for record in history]
    assert good[-3:] == [True, True, True]
    assert not any(all(good[place : place + 3]) for place in range(len(good) - 3))


@pytest.mark.slow_if("one at a time")
@pytest.mark.parametrize("method", ["matrices", "one at a time"])
def test_networks_stop_at_a_loss_whatever_their_errors(method: str) -> None:
    jobs = [Job(seed=s, learning_rate=rate) for s, rate in ((1, 0.1), (2, 0.02), (3, 0.001))]
    settings = ManySettings(epochs=40, batch_size=30, stop_loss=0.5)
    result = train_many(
        perceptron, INPUTS, LABELS, jobs, settings=settings, device="cpu", method=method
    )
    assert [job.stopped for job in result.jobs] == ["loss", "loss", "epochs"]
    for job in result.jobs[:2]:
        assert job.history[-1].train_loss <= 0.5
        assert all(record.train_loss > 0.5 for record in job.history[:-1])
    assert result.jobs[0].history[-1].train_errors > 0 or result.jobs[0].fit_epoch is not None


def test_measuring_less_often_changes_no_network() -> None:
    every, some = (
        train_many(
            perceptron,
            INPUTS,
            LABELS,
            [Job(seed=1)],
            settings=ManySettings(epochs=7, batch_size=30, measure_every=often),
            device="cpu",
        ).jobs[0]
        for often in (1, 3)
    )
    assert [record.epoch for record in some.history] == [3, 6, 7]
    assert some.history == tuple(every.history[place] for place in (2, 5, 6))
    assert largest_difference(every.state, some.state) == 0.0


def test_progress_counts_every_step_of_every_network() -> None:
    told: list[tuple[str, int, int, str]] = []
    train_many(
        perceptron,
        INPUTS,
        LABELS,
        [Job(seed=1), Job(seed=2, learning_rate=1e9)],
        settings=ManySettings(epochs=3, batch_size=30),
        device="cpu",
        progress=lambda phase, done, total, message: told.append((phase, done, total, message)),
    )
    assert {(phase, total) for phase, _, total, _ in told} == {("networks", 18)}
    done = [done for _, done, _, _ in told]
    assert done == sorted(done)
    assert done[-1] == 18
    assert "epoch 3 of 3" in told[-1][3]
