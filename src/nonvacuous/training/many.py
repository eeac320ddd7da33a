"""Many small networks trained at once: each with its own labels, inputs, seed, rate and decay."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import Unsupported
from nonvacuous.progress import Progress, Reporter
from nonvacuous.training.checks import check_predicts, one_of, real_number
from nonvacuous.training.graphs import fast_arithmetic
from nonvacuous.training.loop import batch_edges, shuffled
from nonvacuous.training.many_jobs import (
    METHODS,
    Job,
    ManyExamples,
    ManyResult,
    ManySettings,
    built,
    check_jobs,
)
from nonvacuous.training.many_material import Material, as_measured, shown
from nonvacuous.training.many_run import Run
from nonvacuous.training.many_trainer import build_trainer, resolved

PHASE = "networks"


def train_many(
    build: Callable[[int], nn.Module],
    examples: ManyExamples,
    jobs: Sequence[Job],
    *,
    settings: ManySettings,
    method: str = "auto",
    device: torch.device | str | None = None,
    progress: Progress | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 60.0,
) -> ManyResult:
    """Train one network per job by stochastic gradient descent with momentum.

    build       makes the network of a seed, always of the same architecture, such as
                `lambda seed: models.build("mlp:512", (3, 28, 28), 10, seed=seed)`
    method      "matrices": plain perceptrons, all weights in one tensor per layer; and "cnn:..." of
                few channels, whose windows become rows of a matrix
                "streams": one recorded CUDA graph per network, side by side on the GPU
                "one at a time": ordinary training, one network after the other
                "auto": the fastest that fits network and device. All give the same results up to
                rounding: the draws of a job depend on its seed alone
    device      where to train; a GPU where there is one, if not given
    checkpoint  file from which to resume and to which to save between epochs, at most every
                `checkpoint_seconds` seconds and at the end. A resumed run ends as an undisturbed
                one; on a GPU, where sums are not always taken in the same order, up to rounding

    The loss is the mean cross-entropy of a batch. A network that diverges or, if settings say so,
    has fitted its training set, ends early; the others go on. Batch-normalization layers use and
    keep their running statistics as usual. Layers that draw random numbers must be `nn.Dropout`,
    `nn.Dropout1d`, `nn.Dropout2d` or `nn.Dropout3d`: their draws are then the same by any method.
    """
    begun = time.monotonic()
    jobs = tuple(jobs)
    one_of("method", method, METHODS)
    check_jobs(jobs, examples)
    real_number("checkpoint_seconds", checkpoint_seconds, least=0.0)
    modules = built(build, jobs)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if where.type == "cuda" and where.index is None:
        where = torch.device("cuda", torch.cuda.current_device())
    chosen = resolved(method, modules[0], where)
    path = None if checkpoint is None else Path(checkpoint)
    # Before training changes the networks: their initial weights are part of what it tells.
    configuration = {} if path is None else _configuration(modules, examples, jobs, settings)
    dtype = next(p.dtype for p in modules[0].parameters())
    material = Material(examples, jobs, device=where, dtype=dtype)
    wanted = [examples.labels, *(labels for _, labels in examples.test or ())]
    for seen in material.train.values():
        check_predicts(modules[0].to(where), shown(seen[:2]), wanted, what="inputs as cropped")
    with fast_arithmetic(where):
        trainer = build_trainer(chosen, modules, jobs, material, settings)
        try:
            trainer.ready()
        except Unsupported:
            if method != "auto":
                raise
            chosen = "one at a time"
            trainer = build_trainer(chosen, built(build, jobs), jobs, material, settings)
        run = Run(jobs, settings, trainer, begun=begun)
        # Methods and devices round differently: a resumed run keeps to one of each.
        configuration |= {"method": chosen, "device": where.type}
        if path is not None and path.exists():
            run.resume(path, configuration)
        steps = len(batch_edges(material.examples, settings.batch_size)) - 1
        reporter = _Ticker(progress, run, steps, len(jobs))
        while run.active:
            seated = [jobs[number] for number in run.seated]
            rates = [job.learning_rate * settings.decay**run.epoch for job in seated]
            orders = [
                shuffled(material.examples, seed=job.seed, epoch=run.epoch).to(where)
                for job in seated
            ]
            reporter.begin_epoch()
            trainer.epoch(orders, rates, run.epoch * steps, reporter.tick)
            run.epoch += 1
            if run.epoch % settings.measure_every == 0 or run.epoch == settings.epochs:
                run.take(trainer.measure(), rates, steps)
            reporter.end_epoch()
            if path is not None:
                run.save(path, configuration, interval=checkpoint_seconds)
    results = tuple(run.result(number) for number in range(len(jobs)))
    return ManyResult(jobs=results, method=chosen, seconds=run.seconds)


class _Ticker:
    """Turns steps of single networks into progress; those of networks that ended count as done."""

    def __init__(self, progress: Progress | None, run: Run, steps: int, jobs: int) -> None:
        self._run, self._steps, self._jobs = run, steps, jobs
        self._total = run.epochs * steps * jobs
        self.begin_epoch()
        # What a resumed run did earlier took another process's time: it is no measure of speed.
        self._reporter = Reporter(progress, PHASE, done=self._done)

    def begin_epoch(self) -> None:
        run, active = self._run, len(self._run.active)
        self._done = self._steps * (active * run.epoch + (self._jobs - active) * run.epochs)
        self._most = self._done + self._steps * active
        self._title = f"epoch {run.epoch + 1} of {run.epochs}"

    def tick(self) -> None:
        # Steps of networks that ended and are still there are done twice, but counted once.
        self._done = min(self._done + 1, self._most)
        self._reporter.report(self._done, self._total, self._title)

    def end_epoch(self) -> None:
        done = self._total if not self._run.active else self._done
        title = f"{self._title}{self._run.summary()}"
        self._reporter.report(done, self._total, title, always=True)


def _configuration(
    modules: Sequence[nn.Module],
    examples: ManyExamples,
    jobs: Sequence[Job],
    settings: ManySettings,
) -> dict[str, Any]:
    """What a checkpoint belongs to."""
    tensors = {f"inputs.{k}": inputs for k, inputs in enumerate(examples.inputs)}
    tensors["labels"] = examples.labels
    if examples.marked is not None:
        tensors["marked"] = examples.marked
    for k, (inputs, wanted) in enumerate(examples.test or ()):
        tensors |= {f"test.{k}.inputs": inputs, f"test.{k}.labels": wanted}
    # A function has no digest, but what it makes of a few inputs has.
    prepared = {
        f"{k}": as_measured(inputs[:4].cpu(), examples.crop_size, examples.prepare)
        for k, inputs in enumerate(examples.inputs)
    }
    initial = {
        f"{k}.{name}": tensor
        for k, module in enumerate(modules)
        for name, tensor in module.state_dict().items()
    }
    return {
        "kind": "many networks",
        "jobs": [job.record() for job in jobs],
        **settings.record(),
        "crop_size": examples.crop_size,
        "architecture": str(modules[0]),
        "initial_weights": tensors_digest(initial),
        "examples": tensors_digest(tensors),
        "prepared": tensors_digest(prepared),
    }
