"""The loop that every kind of training shares: epochs, batches, checkpoints, events, progress."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.training.checkpoint import load_checkpoint, save_checkpoint
from nonvacuous.training.checks import whole_number
from nonvacuous.training.events import EventLog, TensorBoard
from nonvacuous.training.failures import Diverged

# Randomness that needs no stored state.
#
# Every random choice of a training run is a function of (seed, purpose, epoch, step). A run that
# was killed and resumed therefore draws exactly what an undisturbed run draws, and two purposes
# never share a stream.


def shuffled(examples: int, *, seed: int, epoch: int) -> Tensor:
    """The order in which an epoch visits the examples, the same on every device."""
    generator = torch.Generator().manual_seed(derived_seed(seed, "order", epoch))
    return torch.randperm(examples, generator=generator)


def batch_edges(examples: int, batch_size: int) -> list[int]:
    """Where batches begin and end: as few as possible, sizes differing by at most one.

    A short last batch would weigh its examples more than the others, and one of a single example
    breaks batch normalization.

    >>> batch_edges(10, 4)
    [0, 4, 7, 10]
    >>> batch_edges(3, 100)
    [0, 3]
    """
    batches = -(-examples // batch_size)
    smaller, larger = divmod(examples, batches)
    edges = [0]
    for batch in range(batches):
        edges.append(edges[-1] + smaller + (1 if batch < larger else 0))
    return edges


@contextmanager
def borrowed_global_generator(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Lend the global generators to layers, such as dropout, that accept no other.

    Yields a function that seeds them. Their former state comes back at the end, so a caller's own
    random numbers are the same with and without the training in between.
    """
    generators = [torch.default_generator]
    if device.type == "cuda":
        torch.cuda.init()
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    states = [generator.get_state() for generator in generators]

    def reseed(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    try:
        yield reseed
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


class Learner(Protocol):
    """What the loop drives. All that changes between two steps is in `tensors` and `facts`."""

    facts: dict[str, Any]
    """Plain JSON that a checkpoint keeps; the loop reads and writes none of it."""

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that a checkpoint must keep, running sums of the epoch included."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""

    def step(self, *, epoch: int, step: int, batch: Tensor) -> None:
        """Learn from the examples whose indices are in `batch`, without waiting for the GPU."""

    def end_epoch(self, epoch: int) -> tuple[dict[str, Any], bool]:
        """The metrics of the epoch that ends, and whether training should stop here."""


@dataclass(frozen=True)
class Schedule:
    """How much there is to do, and in which order."""

    phase: str
    examples: int
    batch_size: int
    epochs: int
    seed: int
    device: torch.device

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return -(-self.examples // self.batch_size)


@dataclass(frozen=True)
class Records:
    """Where a run leaves its traces, all of them optional."""

    checkpoint: Path | None
    checkpoint_every: int | None
    events: EventLog | None
    progress: Progress | None
    tensorboard: str | os.PathLike[str] | None

    @classmethod
    def of(
        cls,
        *,
        checkpoint: str | os.PathLike[str] | None,
        checkpoint_every: int | None,
        events: EventLog | str | os.PathLike[str] | None,
        progress: Progress | None,
        tensorboard: str | os.PathLike[str] | None,
    ) -> Records:
        """Accept what callers like to give: paths as text, logs as paths."""
        if checkpoint_every is not None:
            whole_number("checkpoint_every", checkpoint_every, least=1)
        return cls(
            checkpoint=None if checkpoint is None else Path(checkpoint),
            checkpoint_every=checkpoint_every,
            events=EventLog.of(events),
            progress=progress,
            tensorboard=tensorboard,
        )


def run_epochs(
    learner: Learner,
    schedule: Schedule,
    records: Records,
    *,
    configuration: Mapping[str, Any],
    advice: str,
) -> None:
    """Drive `learner` from where its checkpoint stands, or from the start, to the end.

    `advice` completes the message of a divergence: what to try next.
    """
    place = _Place.find(learner, schedule, records, configuration)
    steps, total = schedule.steps, schedule.steps * schedule.epochs
    edges = batch_edges(schedule.examples, schedule.batch_size)
    done = place.epoch * steps + place.step
    reporter = Reporter(records.progress, schedule.phase, done=done)
    board = None
    if records.tensorboard is not None and not place.finished:
        board = TensorBoard(records.tensorboard, first_epoch=place.epoch)
    while not place.finished and place.epoch < schedule.epochs:
        epoch = place.epoch
        title = f"epoch {epoch + 1} of {schedule.epochs}"
        order = shuffled(schedule.examples, seed=schedule.seed, epoch=epoch).to(schedule.device)
        for step in range(place.step, steps):
            learner.step(epoch=epoch, step=step, batch=order[edges[step] : edges[step + 1]])
            done += 1
            reporter.report(done, total, title)
            every = records.checkpoint_every
            if every is not None and step + 1 < steps and done % every == 0:
                _insist_on_finite(learner, schedule, epoch, advice)
                place.step = step + 1
                place.keep(learner, records, configuration)
        _insist_on_finite(learner, schedule, epoch, advice)
        metrics, stop = learner.end_epoch(epoch)
        if any(isinstance(x, float) and not math.isfinite(x) for x in metrics.values()):
            raise _divergence(schedule, epoch, advice)
        if records.events is not None:
            records.events.append(schedule.phase, "epoch", epoch=epoch, metrics=metrics)
        if board is not None:
            board.write(schedule.phase, epoch, metrics)
        place.epoch, place.step = epoch + 1, 0
        place.finished = stop or place.epoch == schedule.epochs
        reporter.report(done, total, f"{title}{_told(metrics)}", always=True)
        place.keep(learner, records, configuration)
    if board is not None:
        board.close()
    if done < total:
        reporter.report(total, total, f"stopped after epoch {place.epoch}", always=True)


@dataclass
class _Place:
    """Where the run stands: whole epochs done and steps done in the current one."""

    epoch: int = 0
    step: int = 0
    finished: bool = False

    @classmethod
    def find(
        cls,
        learner: Learner,
        schedule: Schedule,
        records: Records,
        configuration: Mapping[str, Any],
    ) -> _Place:
        """Read the checkpoint, or write the first one, before the first event of the phase."""
        path = records.checkpoint
        if path is None or not path.exists():
            place = cls(finished=schedule.epochs == 0)
            place.keep(learner, records, configuration)
            return place
        checkpoint = load_checkpoint(path, configuration=configuration)
        facts = dict(checkpoint.facts)
        learner.restore(checkpoint.tensors)
        learner.facts = facts["learner"]
        place = cls(epoch=facts["epoch"], step=facts["step"], finished=facts["finished"])
        # A finished phase leaves the log alone: later phases may have written to it since.
        if records.events is not None and not place.finished:
            records.events.cut_back(facts["events"])
        return place

    def keep(self, learner: Learner, records: Records, configuration: Mapping[str, Any]) -> None:
        if records.checkpoint is None:
            return
        facts = {
            "epoch": self.epoch,
            "step": self.step,
            "finished": self.finished,
            # The log reaches the disk before the checkpoint that counts on it.
            "events": 0 if records.events is None else records.events.position(),
            "learner": learner.facts,
        }
        save_checkpoint(
            records.checkpoint,
            tensors=learner.tensors(),
            facts=facts,
            configuration=configuration,
        )


def _insist_on_finite(learner: Learner, schedule: Schedule, epoch: int, advice: str) -> None:
    floating = [tensor for tensor in learner.tensors().values() if tensor.is_floating_point()]
    if floating:
        verdicts = [tensor.isfinite().all().to(schedule.device) for tensor in floating]
        if not bool(torch.stack(verdicts).all()):
            raise _divergence(schedule, epoch, advice)


def _divergence(schedule: Schedule, epoch: int, advice: str) -> Diverged:
    return Diverged(
        f"Training of the {schedule.phase} left the finite numbers in epoch {epoch + 1} of "
        f"{schedule.epochs}: the loss or a weight became NaN or infinite, and no later step can "
        f"repair that. {advice}"
    )


def _told(metrics: Mapping[str, Any]) -> str:
    shown = [f"{name} {value:.4g}" for name, value in metrics.items() if isinstance(value, float)]
    return "".join(f", {text}" for text in shown)
