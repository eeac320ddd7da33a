"""Training the grid of the study of measures, many networks at once, and measuring each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from nonvacuous.experiments.measures_study_material import StudyMaterial
from nonvacuous.experiments.measures_study_settings import Cell, StudySettings
from nonvacuous.experiments.measures_study_store import NetworkRecord, StudyStore
from nonvacuous.experiments.measures_study_workers import Workers, measure_networks
from nonvacuous.models import build
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.training.many import Job, JobResult, ManyResult, ManySettings, train_many

#: Networks that a process measures before it hands back what it has found.
_AT_ONCE = 6
_CHUNK = 8192


class Trainer:
    """Trains what is missing and keeps the table up to date."""

    def __init__(
        self,
        settings: StudySettings,
        material: StudyMaterial,
        store: StudyStore,
        workers: Workers,
        *,
        device: str,
        progress: Progress | None,
    ) -> None:
        self.settings, self.material, self.store = settings, material, store
        self.workers, self.device, self.progress = workers, device, progress
        self.records = {entry.key: entry for entry in store.records()}
        self.times = store.times()
        self._total = len(settings.cells())

    def run(self) -> None:
        """Every group that is not in the table yet; measures are computed while the next trains."""
        waiting: list[_Pending] = []
        for cells in self.settings.groups():
            missing = [cell for cell in cells if cell.key not in self.records]
            if not missing:
                continue
            waiting.append(self._trained(missing))
            while waiting and waiting[0].ready:
                self._keep(waiting.pop(0))
        for pending in waiting:
            self._keep(pending)
        if self.settings.alone and not self.times.alone_networks:
            self._train_some_alone()

    # -- a group ----------------------------------------------------------------------------------

    def _trained(self, cells: Sequence[Cell]) -> _Pending:
        result = self._many(cells, self.settings.epochs, method="auto")
        steps = sum(job.history[-1].steps for job in result.jobs)
        records = self._tested(cells, result.jobs)
        states = [job.state for job in result.jobs]
        return _Pending(
            records,
            list(self._measuring(cells, records, states)),
            networks=len(cells), steps=steps, seconds=result.seconds, method=result.method,
        )  # fmt: skip

    def _many(self, cells: Sequence[Cell], epochs: int, *, method: str) -> ManyResult:
        first, settings, material = cells[0], self.settings, self.material
        jobs = [
            Job(
                labels=material.row(cell),
                seed=network_seed(settings, cell),
                learning_rate=cell.learning_rate,
                weight_decay=cell.weight_decay,
                dropout=cell.dropout,
            )
            for cell in cells
        ]

        def told(phase: str, done: int, total: int, message: str) -> None:
            if self.progress is not None:
                self.progress("training", done, total, f"{first.model}, {message}")

        return train_many(
            lambda seed: build(first.model, material.shape, material.classes, seed=seed),
            [material.inputs[: first.examples]],
            material.labels[:, : first.examples].contiguous(),
            jobs,
            settings=ManySettings(
                epochs=epochs,
                batch_size=first.batch_size,
                momentum=settings.momentum,
                decay=1.0,
                stop_loss=settings.stop_loss,
                measure_every=settings.measure_every,
            ),
            method=method,
            device=self.device,
            progress=told,
        )

    def _tested(self, cells: Sequence[Cell], jobs: Sequence[JobResult]) -> list[NetworkRecord]:
        """Losses and errors in double precision, whatever the precision of the training."""
        material, device = self.material, torch.device(self.device)
        first = cells[0]
        network = build(first.model, material.shape, material.classes, seed=0).to(device).double()
        test = (material.test_inputs.to(device), material.test_labels.to(device))
        seen = material.inputs[: first.examples].to(device)
        records = []
        for cell, job in zip(cells, jobs, strict=True):
            weights = {name: tensor.to(device).double() for name, tensor in job.state.items()}
            learned = material.training_set(cell)[1].to(device)
            train_loss, train_errors = _counted(network, weights, seen, learned)
            test_loss, test_errors = _counted(network, weights, *test)
            records.append(
                NetworkRecord(
                    key=cell.key,
                    hyperparameters=cell.hyperparameters,
                    repetition=cell.repetition,
                    stopped=job.stopped,
                    epochs=job.history[-1].epoch,
                    steps=job.history[-1].steps,
                    train_loss=_finite(train_loss),
                    train_errors=train_errors,
                    test_loss=_finite(test_loss),
                    test_errors=test_errors,
                    test_examples=len(test[1]),
                    measures={},
                )
            )
        return records

    def _measuring(
        self, cells: Sequence[Cell], records: Sequence[NetworkRecord], states: Sequence[Any]
    ) -> Iterator[tuple[list[int], Future[Any]]]:
        """Work for the other processes: some networks of one training set at a time."""
        for row in range(len(self.material.levels)):
            places = [
                place
                for place, cell in enumerate(cells)
                if self.material.row(cell) == row and records[place].judged
            ]
            for start in range(0, len(places), _AT_ONCE):
                some = places[start : start + _AT_ONCE]
                inputs, labels = self.material.training_set(cells[some[0]])
                yield (
                    some,
                    self.workers.submit(
                        measure_networks,
                        cells[0].model,
                        self.material.classes,
                        inputs.numpy(),
                        labels.numpy(),
                        [{name: t.numpy() for name, t in states[place].items()} for place in some],
                        [network_seed(self.settings, cells[place]) for place in some],
                        self.settings.measures,
                    ),
                )

    def _keep(self, pending: _Pending) -> None:
        records, seconds = pending.measured()
        self.records |= {entry.key: entry for entry in records}
        self.times = replace(
            self.times,
            networks=self.times.networks + pending.networks,
            steps=self.times.steps + pending.steps,
            seconds=self.times.seconds + pending.seconds,
            measuring_seconds=self.times.measuring_seconds + seconds,
            device=self.device,
            method=pending.method,
        )
        self._save()
        if self.progress is not None:
            reached = sum(entry.judged for entry in records)
            self.progress(
                "networks",
                len(self.records),
                self._total,
                f"{len(self.records)} of {self._total} networks: {records[0].key.rsplit('-s')[0]} "
                f"and its like, {reached} of {len(records)} reached the stopping loss",
            )

    def _save(self) -> None:
        order = [cell.key for cell in self.settings.cells()]
        self.store.save([self.records[key] for key in order if key in self.records], self.times)

    # -- one at a time ----------------------------------------------------------------------------

    def _train_some_alone(self) -> None:
        """A few networks of the grid, evenly spread, trained as one would without this package."""
        cells = self.settings.cells()
        count = min(self.settings.alone, len(cells))
        chosen = [cells[(2 * number + 1) * len(cells) // (2 * count)] for number in range(count)]
        steps, seconds = 0, 0.0
        for cell in chosen:
            result = self._many([cell], self.settings.alone_epochs, method="one at a time")
            steps += result.jobs[0].history[-1].steps
            seconds += result.seconds
        self.times = replace(
            self.times, alone_networks=count, alone_steps=steps, alone_seconds=seconds
        )
        self._save()


class _Pending:
    """A trained group whose measures are not all there yet."""

    def __init__(
        self,
        records: Sequence[NetworkRecord],
        work: Sequence[tuple[list[int], Future[Any]]],
        *,
        networks: int,
        steps: int,
        seconds: float,
        method: str,
    ) -> None:
        self._records, self._work = list(records), work
        self.networks, self.steps, self.seconds, self.method = networks, steps, seconds, method

    @property
    def ready(self) -> bool:
        return all(promise.done() for _, promise in self._work)

    def measured(self) -> tuple[list[NetworkRecord], float]:
        """The records with their measures, waiting for them, and the seconds these took."""
        seconds = 0.0
        for places, promise in self._work:
            found, took = promise.result()
            seconds += took
            for place, measures in zip(places, found, strict=True):
                self._records[place] = replace(self._records[place], measures=measures)
        return self._records, seconds


def network_seed(settings: StudySettings, cell: Cell) -> int:
    """Equal for all cells of one repetition: they begin alike where their shapes allow it."""
    return derived_seed(settings.seed, "measures study", "network", cell.repetition)


def _counted(
    network: nn.Module, weights: dict[str, Tensor], inputs: Tensor, labels: Tensor
) -> tuple[float, int]:
    """Mean cross-entropy and number of errors."""
    loss, errors = 0.0, 0
    with torch.no_grad():
        for seen, wanted in zip(inputs.split(_CHUNK), labels.split(_CHUNK), strict=True):
            scores = functional_call(network, weights, (seen.double(),))
            loss += float(cross_entropy(scores, wanted, reduction="sum"))
            errors += int((scores.argmax(dim=1) != wanted).sum())
    return loss / len(labels), errors


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
