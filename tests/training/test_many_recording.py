"""The bookkeeping around recorded steps, with a stand-in that needs no GPU.

The stand-in does what a recording does to its surroundings: trial runs that leave no trace, then
replays of the same work. What only a GPU can do is tested where there is one (test_many.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from nonvacuous.errors import Unsupported
from nonvacuous.training import many
from nonvacuous.training import many_stacked as stacked
from nonvacuous.training.many_jobs import Job, ManyResult, ManySettings
from nonvacuous.training.many_trainer import build_trainer
from tests.training.many_worlds import (
    convolutional,
    images,
    labelings,
    largest_difference,
    perceptron,
    train_many,
)

JOBS = (
    Job(seed=1, learning_rate=0.1, dropout=0.1),
    Job(seed=2, labels=1, learning_rate=1e9),
    Job(seed=3, augmentation="full", weight_decay=0.01),
)


class StandIn:
    """See `nonvacuous.training.graphs.Recordings`."""

    def __init__(self, device: torch.device) -> None:
        self.works: dict[tuple[str, int], Callable[[int], None]] = {}
        self.recorded = 0

    def record(
        self, name: str, size: int, work: Callable[[int], None], *, changing: Sequence[Tensor]
    ) -> None:
        if (name, size) in self.works:
            return
        kept = [tensor.detach().clone() for tensor in changing]
        for _ in range(3):
            work(size)
        with torch.no_grad():
            for tensor, value in zip(changing, kept, strict=True):
                tensor.copy_(value)
        self.works[name, size] = work
        self.recorded += 1

    def replay(self, name: str, size: int) -> None:
        self.works[name, size](size)

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def forget(self) -> None:
        self.works.clear()


class Refusing(StandIn):
    """A network that cannot be recorded."""

    def record(self, *_: object, **__: object) -> None:
        raise Unsupported("no")


def trained(
    build: Callable[[int], nn.Module], count: int, method: str, settings: ManySettings
) -> ManyResult:
    return train_many(
        build,
        [images(count)],
        labelings(count),
        JOBS,
        test=[(images(7, seed=5), labelings(7)[0])],
        settings=settings,
        method=method,
        device="cpu",
    )


@pytest.mark.slow_if("convolutional-streams-90")
@pytest.mark.parametrize("count", [20, 90])
@pytest.mark.parametrize(
    ("build", "method"),
    [(perceptron, "streams"), (convolutional, "streams"), (perceptron, "matrices")],
)
def test_recorded_training_is_the_plain_one(
    build: Callable[[int], nn.Module], count: int, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ManySettings(epochs=3, batch_size=32)
    plain = trained(build, count, "one at a time", settings)
    monkeypatch.setattr(stacked, "Recordings", StandIn)
    monkeypatch.setattr(many, "resolved", lambda *_: method)
    made = []

    def recording(chosen: str, *arguments: object) -> object:
        trainer = build_trainer(chosen, *arguments)  # type: ignore[arg-type]
        if chosen != "streams":
            trainer.stacks[0].recordings = StandIn(torch.device("cpu"))  # type: ignore[assignment]
        assert all(isinstance(stack.recordings, StandIn) for stack in trainer.stacks)
        made.append(trainer)
        return trainer

    monkeypatch.setattr(many, "build_trainer", recording)
    recorded = trained(build, count, method, settings)
    assert len(made) == 1
    assert [job.stopped for job in recorded.jobs] == ["epochs", "diverged", "epochs"]
    for one, other in zip(plain.jobs, recorded.jobs, strict=True):
        if one.stopped != "diverged":
            assert largest_difference(one.state, other.state) < 1e-5
            assert one.history[-1].train_errors == other.history[-1].train_errors
            assert one.history[-1].test_errors == other.history[-1].test_errors


@pytest.mark.slow
def test_networks_that_ended_stay_where_leaving_means_recording_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = (0.2, 1e9, 0.15, 0.1, 0.08, 0.06, 0.05, 0.04)
    jobs = [Job(seed=seed, learning_rate=rate) for seed, rate in enumerate(rates)]
    told: list[tuple[int, int]] = []

    def run(method: str) -> ManyResult:
        return train_many(
            perceptron,
            [images(60)],
            labelings(60),
            jobs,
            settings=ManySettings(epochs=40, batch_size=20, decay=1.0, stop_loss=0.2),
            method=method,
            device="cpu",
            progress=lambda phase, done, total, message: told.append((done, total)),
        )

    plain = run("one at a time")
    ends = {len(job.history) for job in plain.jobs}
    assert len(ends) >= 4
    stand_in = StandIn(torch.device("cpu"))
    kept: list[int] = []

    def recording(chosen: str, *arguments: object) -> object:
        trainer = build_trainer(chosen, *arguments)  # type: ignore[arg-type]
        (stack,) = trainer.stacks
        stack.recordings = stand_in  # type: ignore[assignment]
        keep = trainer.keep
        monkeypatch.setattr(
            trainer, "keep", lambda places: (kept.append(len(places)), keep(places))
        )
        return trainer

    monkeypatch.setattr(many, "build_trainer", recording)
    told.clear()
    recorded = run("matrices")
    # Fewer leave-takings than moments at which networks end, and each takes a quarter along.
    assert len(kept) < len(ends)
    assert all(after <= 0.75 * before for before, after in zip([8, *kept], kept, strict=False))
    for one, other in zip(plain.jobs, recorded.jobs, strict=True):
        assert one.stopped == other.stopped
        assert len(one.history) == len(other.history)
        if one.stopped != "diverged":
            assert largest_difference(one.state, other.state) < 1e-3
    done = [entry for entry, _ in told]
    assert done == sorted(done)
    assert done[-1] == told[-1][1]


def test_auto_falls_back_where_nothing_can_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ManySettings(epochs=1, batch_size=32)
    plain = trained(convolutional, 40, "one at a time", settings)
    monkeypatch.setattr(stacked, "Recordings", Refusing)
    monkeypatch.setattr(many, "resolved", lambda *_: "streams")
    fallen = trained(convolutional, 40, "auto", settings)
    assert fallen.method == "one at a time"
    assert largest_difference(plain.jobs[0].state, fallen.jobs[0].state) == 0.0
    with pytest.raises(Unsupported):
        trained(convolutional, 40, "streams", settings)
