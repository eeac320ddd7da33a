"""Many small networks trained at once: each with its own labels, inputs, seed, rate and decay."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous.bounds import checks
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.errors import Unsupported
from nonvacuous.progress import Progress, Reporter
from nonvacuous.training import many_jobs
from nonvacuous.training.checkpoint import load_checkpoint, save_checkpoint
from nonvacuous.training.checks import check_predicts, one_of
from nonvacuous.training.graphs import fast_arithmetic
from nonvacuous.training.loop import batch_edges, borrowed_global_generator
from nonvacuous.training.many_jobs import EpochRecord, Job, ManyExamples, ManySettings
from nonvacuous.training.many_material import Material, as_measured, channels_first, shown
from nonvacuous.training.many_trainer import Trainer, build_trainer, resolved

#: Where leaving is dear, networks that have ended stay in the tensors until so many are left.
LEFT_BEFORE_LEAVING = 0.75


def train_many(
    build: Callable[[int], nn.Module],
    examples: ManyExamples,
    jobs: Sequence[Job],
    *,
    settings: ManySettings,
    method: str = "auto",
    device: torch.device | str | None = None,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 60.0,
) -> many_jobs.ManyResult:
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
    keep their running statistics as usual. The draws of `nn.Dropout`, `nn.Dropout1d`,
    `nn.Dropout2d` and `nn.Dropout3d` are the same by any method; those of other layers follow from
    the seed on a processor alone.
    """
    begun = time.monotonic()
    jobs = tuple(jobs)
    one_of("method", method, many_jobs.METHODS)
    many_jobs.check_jobs(jobs, examples)
    checks.non_negative("checkpoint_seconds", checkpoint_seconds)
    modules = many_jobs.built(build, jobs)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if where.type == "cuda" and where.index is None:
        where = torch.device("cuda", torch.cuda.current_device())
    chosen = resolved(method, modules[0], where)
    # Before training changes the networks: their initial weights are part of what it tells.
    configuration = {} if checkpoint is None else _configuration(modules, examples, jobs, settings)
    dtype = next(p.dtype for p in modules[0].parameters())
    material = Material(examples, jobs, settings, device=where, dtype=dtype)
    wanted = [examples.labels, *(labels for _, labels in examples.test or ())]
    for seen in material.train.values():
        few = channels_first(shown(seen[:2]))
        check_predicts(modules[0].to(where), few, wanted, what="inputs as cropped")
    with fast_arithmetic(where), borrowed_global_generator(where):
        trainer = build_trainer(chosen, modules, jobs, material)
        try:
            trainer.ready()
        except Unsupported:
            if method != "auto":
                raise
            chosen = "one at a time"
            trainer = build_trainer(chosen, many_jobs.built(build, jobs), jobs, material)
        steps = len(batch_edges(material.examples, settings.batch_size)) - 1
        run = _Run(jobs, settings, trainer, steps, begun)
        # Methods and devices round differently: a resumed run keeps to one of each.
        configuration |= {"method": chosen, "device": where.type}
        if checkpoint is not None and checkpoint.exists():
            run.resume(checkpoint, configuration)
        # What a resumed run did earlier took another process's time: it is no measure of speed.
        reporter = Reporter(progress, "networks", done=run.done)
        while run.active:
            title = f"epoch {run.epoch + 1} of {settings.epochs}"
            trainer.epoch(run.epoch, partial(next, run.ticks(reporter, title)))
            run.epoch += 1
            if run.epoch % settings.measure_every == 0 or run.epoch == settings.epochs:
                run.take(trainer.measure())
            reporter.report(run.done, run.total, f"{title}{run.summary()}", always=True)
            if checkpoint is not None:
                run.save(checkpoint, configuration, interval=checkpoint_seconds)
    results = tuple(run.result(number) for number in range(len(jobs)))
    return many_jobs.ManyResult(jobs=results, method=chosen, seconds=run.seconds)


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


@dataclasses.dataclass(eq=False)
class _Run:
    """Where a run stands between two epochs: which jobs are still in training, and all that is
    known of each.

    The trainer has the networks of the active jobs and, where taking networks out means recording
    everything anew, of some that have ended.
    """

    jobs: Sequence[Job]
    settings: ManySettings
    trainer: Trainer
    steps: int
    #: When, less the seconds of the runs that this one resumed.
    begun: float

    def __post_init__(self) -> None:
        self.total = self.steps * self.settings.epochs * len(self.jobs)
        self.epoch = 0
        self.active = list(range(len(self.jobs)))
        self._histories: list[list[EpochRecord]] = [[] for _ in self.jobs]
        self._ended: dict[int, str] = {}
        self._final: dict[int, dict[str, Tensor]] = {}
        self._kept = time.monotonic()

    @property
    def done(self) -> int:
        """Steps of single networks, of all `total`; those that ended took all of theirs."""
        left = self.steps * (self.settings.epochs - self.epoch)
        return self.total - left * len(self.active)

    def ticks(self, reporter: Reporter, title: str) -> Iterator[None]:
        """Reports one more step of a network in this epoch whenever it is asked to.

        Networks that ended and are still there take steps that do not count.
        """
        most = self.done + self.steps * len(self.active)
        for done in itertools.chain(range(self.done + 1, most), itertools.repeat(most)):
            reporter.report(done, self.total, title)
            yield

    @property
    def seconds(self) -> float:
        """Wall time of this run and of those it resumed."""
        return time.monotonic() - self.begun

    def take(self, measured: Mapping[int, Mapping[str, Any]]) -> None:
        """Write down measurements of the jobs in training and end those that are done."""
        for job in self.active:
            epoch, rate = self.epoch, self.settings.rate(self.jobs[job], self.epoch - 1)
            record = EpochRecord(epoch=epoch, steps=epoch * self.steps, rate=rate, **measured[job])
            self._histories[job].append(record)
            if why := self._ending(job):
                self._ended[job] = why
                # Copies, in torch's usual order in memory.
                self._final[job] = {
                    name: tensor.detach().cpu().contiguous().clone()
                    for name, tensor in self.trainer.tensors(job).items()
                    if name.startswith("state.")
                }
        self.active = [job for job in self.active if job not in self._ended]
        share = LEFT_BEFORE_LEAVING if self.trainer.leaving_is_dear else 1.0
        if 0 < len(self.active) < len(measured) and len(self.active) <= share * len(measured):
            self.trainer.keep(self.active)

    def _ending(self, job: int) -> str | None:
        settings, history = self.settings, self._histories[job]
        if history[-1].train_loss is None:
            return "diverged"
        if settings.stop_loss is not None and history[-1].train_loss <= settings.stop_loss:
            return "loss"
        if settings.stop_when_fit and len(history) >= settings.patience:
            most = math.inf if settings.fit_loss is None else settings.fit_loss
            last = history[-settings.patience :]
            if all(one.train_errors == 0 and (one.train_loss or 0.0) <= most for one in last):
                return "fit"
        return "epochs" if self.epoch == settings.epochs else None

    def summary(self) -> str:
        """The last measurement for a line of progress."""
        last = [history[-1] for history in self._histories if history]
        if not last:
            return ""
        fitted = sum(record.train_errors == 0 for record in last)
        return f", {fitted} of {len(self.jobs)} fit, {len(self.active)} in training"

    def save(self, path: Path, configuration: Mapping[str, Any], *, interval: float) -> None:
        """Write a checkpoint if the last is older than `interval` seconds or all jobs are done."""
        if self.active and time.monotonic() - self._kept < interval:
            return
        active = {job: self.trainer.tensors(job) for job in self.active}
        tensors = {
            f"{job}.{name}": tensor
            for job, state in (self._final | active).items()
            for name, tensor in state.items()
        }
        facts = {
            "epoch": self.epoch,
            "active": self.active,
            "ended": {str(job): why for job, why in self._ended.items()},
            "seconds": self.seconds,
            "histories": [list(map(dataclasses.asdict, history)) for history in self._histories],
        }
        save_checkpoint(path, tensors=tensors, facts=facts, configuration=configuration)
        self._kept = time.monotonic()

    def resume(self, path: Path, configuration: Mapping[str, Any]) -> None:
        """Go on where the checkpoint stands."""
        tensors, facts = load_checkpoint(path, configuration=configuration)
        self.epoch, self.active = facts["epoch"], list(facts["active"])
        self._ended = {int(job): why for job, why in facts["ended"].items()}
        self.begun -= facts["seconds"]
        self._histories = [[EpochRecord(**one) for one in many] for many in facts["histories"]]
        own: dict[int, dict[str, Tensor]] = {job: {} for job in range(len(self.jobs))}
        for name, tensor in tensors.items():
            number, _, rest = name.partition(".")
            own[int(number)][rest] = tensor
        self._final = {job: own[job] for job in self._ended}
        if self.active:
            self.trainer.keep(self.active)
        for job in self.active:
            for name, tensor in self.trainer.tensors(job).items():
                tensor.copy_(own[job][name])

    def result(self, job: int) -> many_jobs.JobResult:
        """What became of a job, once none is active."""
        history = self._histories[job]
        fit = next((record.epoch for record in history if record.train_errors == 0), None)
        state = {name.removeprefix("state."): tensor for name, tensor in self._final[job].items()}
        return many_jobs.JobResult(self.jobs[job], tuple(history), state, fit, self._ended[job])
