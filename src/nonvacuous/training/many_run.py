"""The state of a run of many networks between two epochs: histories, endings, checkpoints."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from nonvacuous.training.checkpoint import load_checkpoint, save_checkpoint
from nonvacuous.training.many_jobs import EpochRecord, Job, JobResult, ManySettings
from nonvacuous.training.many_trainer import Trainer

#: Where leaving is dear, networks that have ended stay in the tensors until so many are left.
LEFT_BEFORE_LEAVING = 0.75


class Run:
    """Which jobs are still in training, and all that is known of each.

    active   jobs still in training
    seated   jobs whose networks are with the trainer, in its order: the active ones, and where
             taking networks out means recording everything anew, some that have ended
    """

    def __init__(
        self, jobs: Sequence[Job], settings: ManySettings, trainer: Trainer, *, begun: float
    ) -> None:
        self._jobs, self._settings, self._trainer = jobs, settings, trainer
        self.epoch = 0
        self.active = list(range(len(jobs)))
        self.seated = list(self.active)
        self._histories: list[list[EpochRecord]] = [[] for _ in jobs]
        self._ended: dict[int, str] = {}
        self._final: dict[int, dict[str, Tensor]] = {}
        self._earlier_seconds = 0.0
        self._begun = begun
        self._kept = time.monotonic()

    @property
    def epochs(self) -> int:
        """How many there are at most."""
        return self._settings.epochs

    @property
    def seconds(self) -> float:
        """Wall time of this run and of those it resumed."""
        return self._earlier_seconds + time.monotonic() - self._begun

    def take(
        self, measured: Sequence[Mapping[str, Any]], rates: Sequence[float], steps: int
    ) -> None:
        """Write down measurements of the jobs in training and end those that are done."""
        for seat, (job, facts) in enumerate(zip(self.seated, measured, strict=True)):
            if job in self._ended:
                continue
            self._histories[job].append(
                EpochRecord(epoch=self.epoch, steps=self.epoch * steps, rate=rates[seat], **facts)
            )
            why = self._ending(job)
            if why is not None:
                self._ended[job] = why
                self._final[job] = _on_cpu(self._trainer.tensors(seat), "state.")
        staying = [p for p, job in enumerate(self.seated) if job not in self._ended]
        self.active = [self.seated[seat] for seat in staying]
        stay = LEFT_BEFORE_LEAVING * len(self.seated) if self._trainer.leaving_is_dear else 0.0
        if 0 < len(staying) < len(self.seated) and (not stay or len(staying) <= stay):
            self._trainer.keep(staying)
            self.seated = list(self.active)

    def _ending(self, job: int) -> str | None:
        settings, history = self._settings, self._histories[job]
        if not math.isfinite(history[-1].train_loss):
            return "diverged"
        if settings.stop_loss is not None and history[-1].train_loss <= settings.stop_loss:
            return "loss"
        if settings.stop_when_fit and len(history) >= settings.patience:
            most = math.inf if settings.fit_loss is None else settings.fit_loss
            if all(
                record.train_errors == 0 and record.train_loss <= most
                for record in history[-settings.patience :]
            ):
                return "fit"
        return "epochs" if self.epoch == settings.epochs else None

    def summary(self) -> str:
        """The last measurement for a line of progress."""
        last = [history[-1] for history in self._histories if history]
        if not last:
            return ""
        fitted = sum(record.train_errors == 0 for record in last)
        return f", {fitted} of {len(self._jobs)} fit, {len(self.active)} in training"

    # -- checkpoints ------------------------------------------------------------------------------

    def save(self, path: Path, configuration: Mapping[str, Any], *, interval: float) -> None:
        """Write a checkpoint if the last is older than `interval` seconds or all jobs are done."""
        if self.active and time.monotonic() - self._kept < interval:
            return
        tensors: dict[str, Tensor] = {}
        for job, state in self._final.items():
            tensors |= {f"{job}.{name}": tensor for name, tensor in state.items()}
        for job in self.active:
            state = self._trainer.tensors(self.seated.index(job))
            tensors |= {f"{job}.{name}": tensor for name, tensor in state.items()}
        facts = {
            "epoch": self.epoch,
            "active": self.active,
            "ended": {str(job): why for job, why in self._ended.items()},
            "seconds": self.seconds,
            "histories": [[_plain(record) for record in history] for history in self._histories],
        }
        save_checkpoint(path, tensors=tensors, facts=facts, configuration=configuration)
        self._kept = time.monotonic()

    def resume(self, path: Path, configuration: Mapping[str, Any]) -> None:
        """Go on where the checkpoint stands."""
        stored = load_checkpoint(path, configuration=configuration)
        facts = stored.facts
        self.epoch, self.active = facts["epoch"], list(facts["active"])
        self._ended = {int(job): why for job, why in facts["ended"].items()}
        self._earlier_seconds = facts["seconds"]
        self._histories = [[_record(plain) for plain in history] for history in facts["histories"]]
        own: dict[int, dict[str, Tensor]] = {job: {} for job in range(len(self._jobs))}
        for name, tensor in stored.tensors.items():
            number, _, rest = name.partition(".")
            own[int(number)][rest] = tensor
        self._final = {job: own[job] for job in self._ended}
        if 0 < len(self.active) < len(self._jobs):
            self._trainer.keep(self.active)
        self.seated = list(self.active)
        for seat, job in enumerate(self.active):
            for name, tensor in self._trainer.tensors(seat).items():
                tensor.copy_(own[job][name])

    # -- results ----------------------------------------------------------------------------------

    def result(self, job: int) -> JobResult:
        """What became of a job, once none is active."""
        history = self._histories[job]
        fit = next((record.epoch for record in history if record.train_errors == 0), None)
        state = {name.removeprefix("state."): tensor for name, tensor in self._final[job].items()}
        return JobResult(
            job=self._jobs[job],
            history=tuple(history),
            state=state,
            fit_epoch=fit,
            stopped=self._ended[job],
        )


def _on_cpu(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Copies, in torch's usual order in memory."""
    return {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _plain(record: EpochRecord) -> dict[str, Any]:
    # JSON knows no NaN: the loss of a diverged network is null in the file.
    plain = dataclasses.asdict(record)
    if not math.isfinite(record.train_loss):
        plain["train_loss"] = None
    return plain


def _record(plain: Mapping[str, Any]) -> EpochRecord:
    loss = plain["train_loss"]
    return EpochRecord(**{**plain, "train_loss": math.nan if loss is None else loss})
