"""The loop that every kind of training shares: epochs, batches, checkpoints, events, progress."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from nonvacuous.errors import NonvacuousError
from nonvacuous.progress import Progress, Reporter
from nonvacuous.seeds import derived_seed
from nonvacuous.training.checkpoint import OtherConfiguration, load_checkpoint, save_checkpoint
from nonvacuous.training.events import EventLog, tensorboard_writer
from nonvacuous.training.optimizers import OPTIMIZER, restore_optimizer, set_rate
from nonvacuous.training_settings import PlainTraining, PosteriorTraining


class Diverged(NonvacuousError):
    """The loss or a weight left the finite numbers."""


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
    return [smaller * batch + min(batch, larger) for batch in range(batches + 1)]


@contextmanager
def borrowed_global_generator(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Lend the global generators to layers, such as dropout, that accept no other.

    Yields a function that seeds them. Their former state comes back at the end, so a caller's own
    random numbers are the same with and without the training in between.
    """
    generators, devices = [torch.default_generator], list[int]()
    if device.type == "cuda":
        torch.cuda.init()
        devices.append(torch.cuda.current_device() if device.index is None else device.index)
        generators.append(torch.cuda.default_generators[devices[0]])

    def reseed(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    with torch.random.fork_rng(devices):
        yield reseed


class Learner(ABC):
    """What the loop drives. All that changes between two steps is in `tensors` and `facts`.

    labels   of the examples it learns from, on its device
    facts    plain JSON that a checkpoint keeps, with the metrics of every epoch as its history
    """

    settings: PlainTraining | PosteriorTraining
    seed: int
    labels: Tensor
    optimizer: Optimizer
    facts: dict[str, Any]

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that a checkpoint must keep, running sums of the epoch included."""

    @abstractmethod
    def step(self, batch: Tensor, *, epoch: int, step: int, done: int) -> None:
        """Learn from the examples whose indices are in `batch`, without waiting for the GPU.

        `done` counts the steps of all epochs, this one included.
        """

    @abstractmethod
    def end_epoch(self, epoch: int) -> tuple[dict[str, Any], bool]:
        """The metrics of the epoch that ends, and whether training should stop here."""


@dataclass(frozen=True)
class Records:
    """Where a run leaves its traces, all of them optional.

    checkpoint   a file to write after every epoch, and to go on from if it is there
    events       a log that receives the metrics of every epoch
    phase        what the run is called there; None: what kind of training it is
    """

    checkpoint: Path | None = None
    events: EventLog | None = None
    progress: Progress | None = None
    tensorboard: Path | None = None
    phase: str | None = None


def run_epochs(
    learner: Learner,
    phase: str,
    records: Records,
    *,
    configuration: Callable[[], Mapping[str, Any]],
    advice: str,
) -> None:
    """Drive `learner` from where its checkpoint stands, or from the start, to the end.

    `configuration` is what a checkpoint belongs to, asked for where there is one: digests take
    time. `advice` completes the message of a divergence: what to try next.
    """
    run = _Run(learner, records, configuration)
    settings, examples, device = learner.settings, len(learner.labels), learner.labels.device
    phase, epochs = records.phase or phase, settings.epochs
    edges = batch_edges(examples, settings.batch_size)
    steps = len(edges) - 1
    done, total = run.epoch * steps, epochs * steps
    reporter = Reporter(records.progress, phase, done=done)
    board = None
    if records.tensorboard is not None and not run.finished:
        board = tensorboard_writer(records.tensorboard, first_epoch=run.epoch)
    while not run.finished and run.epoch < epochs:
        epoch = run.epoch
        title = f"epoch {epoch + 1} of {epochs}"
        order = shuffled(examples, seed=learner.seed, epoch=epoch).to(device)
        for step in range(steps):
            set_rate(learner.optimizer, settings.schedule, done / total)
            done += 1
            batch = order[edges[step] : edges[step + 1]]
            learner.step(batch, epoch=epoch, step=step, done=done)
            reporter.report(done, total, title)
        diverged = Diverged(
            f"Training of the {phase} left the finite numbers in {title}: the loss or a "
            f"weight became NaN or infinite, and no later step can repair that. {advice}"
        )
        tensors = learner.tensors().values()
        finite = [t.isfinite().all().to(device) for t in tensors if t.is_floating_point()]
        if not bool(torch.stack(finite).all()):
            raise diverged
        metrics, stop = learner.end_epoch(epoch)
        numbers = {name: value for name, value in metrics.items() if isinstance(value, float)}
        if not all(math.isfinite(value) for value in numbers.values()):
            raise diverged
        learner.facts["history"].append(metrics)
        if run.log is not None:
            run.log.append(phase, epoch, metrics)
        if board is not None:
            for name, value in metrics.items():
                board.add_scalar(f"{phase}/{name}", value, global_step=epoch)
        run.epoch = epoch + 1
        run.finished = stop or run.epoch == epochs
        words = "".join(f", {name} {value:.4g}" for name, value in numbers.items())
        reporter.report(done, total, f"{title}{words}", always=True)
        run.keep()
    if board is not None:
        board.close()
    if done < total:
        reporter.report(total, total, f"stopped after epoch {run.epoch}", always=True)


class _Run:
    """Where the run stands: how many epochs are done.

    It begins at its checkpoint, or writes the first one, before the first event of the phase.
    """

    def __init__(
        self, learner: Learner, records: Records, configuration: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._learner, self._path, self.log = learner, records.checkpoint, records.events
        self._configuration = {} if self._path is None else configuration()
        self.epoch, self.finished = 0, learner.settings.epochs == 0
        if self._path is None or not self._path.exists():
            self.keep()
            return
        tensors, facts = load_checkpoint(self._path, configuration=self._configuration)
        if facts.get("step"):
            raise OtherConfiguration(
                f"The checkpoint {self._path} stands inside an epoch, where earlier releases could "
                "stop; delete the file to start this phase afresh."
            )
        with torch.no_grad():
            for name, tensor in learner.tensors().items():
                if not name.startswith(OPTIMIZER):
                    tensor.copy_(tensors[name])
        restore_optimizer(learner.optimizer, tensors)
        learner.facts = facts["learner"]
        self.epoch, self.finished = facts["epoch"], facts["finished"]
        # A finished phase leaves the log alone: later phases may have written to it since.
        if self.log is not None and not self.finished:
            self.log.cut_back(facts["events"])

    def keep(self) -> None:
        if self._path is None:
            return
        facts = {
            "epoch": self.epoch,
            "finished": self.finished,
            # The log reaches the disk before the checkpoint that counts on it.
            "events": 0 if self.log is None else self.log.position(),
            "learner": self._learner.facts,
        }
        save_checkpoint(
            self._path,
            tensors=self._learner.tensors(),
            facts=facts,
            configuration=self._configuration,
        )
