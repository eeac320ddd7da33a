"""Training the networks of the randomization paper, many at once, each kept when it is done."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from nonvacuous.data import Dataset, load
from nonvacuous.data.image_preprocessing import whiten_each_image
from nonvacuous.errors import BadInput
from nonvacuous.experiments.zhang_cells import Cell, CellResult, Point, network_title
from nonvacuous.experiments.zhang_material import Material
from nonvacuous.experiments.zhang_settings import Recipe, ZhangSettings
from nonvacuous.experiments.zhang_store import CellStore, GroupTiming
from nonvacuous.models import build
from nonvacuous.seeds import derived_seed
from nonvacuous.training import Progress
from nonvacuous.training.many import Job, JobResult, ManyResult, ManySettings, train_many


def train_cells(
    cells: Sequence[Cell],
    settings: ZhangSettings,
    store: CellStore,
    *,
    reuse: CellStore | None = None,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> tuple[CellResult, ...]:
    """Every cell's result, in their order; those in the store are not computed again.

    reuse      another reproduction, whose networks are taken where they were trained alike
    progress   phase "training KIND" counts the epochs of a group, phase "networks" the networks
    """
    for cell in cells:
        if cell.network not in settings.networks:
            raise BadInput(
                f"there is no network {cell.network!r} in the settings; there are "
                f"{', '.join(settings.networks)}"
            )
    found = {cell: _stored(cell, settings, store, reuse) for cell in cells}
    missing = [cell for cell, result in found.items() if result is None]
    if missing:
        dataset = _dataset(settings, data_dir)
        # What is trained at once has one recipe.
        kinds = dict.fromkeys((cell.network, settings.recipe(cell)) for cell in missing)
        for network, recipe in kinds:
            of_kind = [c for c in missing if (c.network, settings.recipe(c)) == (network, recipe)]
            for start in range(0, len(of_kind), recipe.together):
                group = _Group(of_kind[start : start + recipe.together], settings, dataset)
                for result in group.train(store, torch.device(device), progress):
                    found[result.cell] = result
                    if progress is not None:
                        done = sum(entry is not None for entry in found.values())
                        progress("networks", done, len(found), told(result))
    return tuple(result for result in found.values() if result is not None)


def told(result: CellResult) -> str:
    """One line about a network."""
    return (
        f"{result.cell}: training accuracy {result.train_accuracy:.2f} %, test accuracy "
        f"{result.test_accuracy:.2f} %, {result.history[-1].epoch} epochs"
    )


def _stored(
    cell: Cell, settings: ZhangSettings, store: CellStore, reuse: CellStore | None
) -> CellResult | None:
    result = store.find(cell, settings)
    return reuse.find(cell, settings) if result is None and reuse is not None else result


def _dataset(settings: ZhangSettings, data_dir: str | Path | None) -> Dataset:
    dataset = load(settings.data, data_dir=data_dir)
    if dataset.test is None:
        raise BadInput(f"{dataset.name} has no test set; the tables need one")
    if settings.examples is not None and settings.examples < len(dataset.train):
        dataset = replace(dataset, train=dataset.train.subset(range(settings.examples)))
    return dataset


class _Group:
    """Networks of one kind and recipe that are trained at once."""

    def __init__(self, cells: Sequence[Cell], settings: ZhangSettings, dataset: Dataset) -> None:
        self.network, self.cells, self.settings = cells[0].network, tuple(cells), settings
        self.recipe: Recipe = settings.recipe(cells[0])
        self.dataset = dataset
        self.seed = derived_seed(settings.seed, "randomization paper", self.network)
        size = settings.crop
        channels = dataset.train.example_shape
        self.shape = (channels[0], size, size) if size is not None else channels

    @property
    def name(self) -> str:
        """A name for files that says which networks these are."""
        digest = derived_seed(0, *(cell.key for cell in self.cells)) % 16**8
        return f"{self.network}-{len(self.cells)}-{digest:08x}"

    def train(
        self, store: CellStore, device: torch.device, progress: Progress | None
    ) -> tuple[CellResult, ...]:
        material = Material(self.cells, self.settings, self.dataset)
        jobs = [self._job(cell, material) for cell in self.cells]
        result = self._many(
            jobs, material, self.recipe.epochs, device,
            method=self.settings.method, checkpoint=store.checkpoint(self.name),
            progress=self._progress(progress),
        )  # fmt: skip
        timing = GroupTiming(
            network=self.network,
            networks=len(jobs),
            epochs=max(entry.history[-1].epoch for entry in result.jobs),
            seconds=result.seconds,
            method=result.method,
            device=device.type,
            solo_seconds=self._solo(jobs, material, device),
        )
        parameters = sum(part.numel() for part in self._build(0).parameters())
        results = tuple(
            self._result(cell, entry, material, timing, parameters)
            for cell, entry in zip(self.cells, result.jobs, strict=True)
        )
        store.add(results, timing, self.name)
        return results

    def _build(self, seed: int) -> nn.Module:
        return build(self.recipe.model, self.shape, self.dataset.train.classes, seed=seed)

    def _job(self, cell: Cell, material: Material) -> Job:
        return Job(
            labels=material.label_row(cell),
            inputs=material.input_set(cell),
            # The same start and the same order of examples in every condition: only data differ.
            seed=self.seed,
            learning_rate=self.recipe.learning_rate,
            weight_decay=self.recipe.weight_decay if cell.decay else 0.0,
            augmentation=cell.augmentation,
        )

    def _many(
        self,
        jobs: Sequence[Job],
        material: Material,
        epochs: int,
        device: torch.device,
        *,
        method: str,
        checkpoint: Path | None = None,
        progress: Progress | None = None,
    ) -> ManyResult:
        settings = self.settings
        return train_many(
            self._build,
            material.inputs,
            material.labels,
            jobs,
            settings=ManySettings(
                epochs=epochs,
                batch_size=settings.batch_size,
                momentum=settings.momentum,
                decay=self.recipe.rate_decay,
                stop_when_fit=settings.stop_when_fit,
                measure_every=self.recipe.measure_every,
                precision=self.recipe.precision,
            ),
            test=material.test,
            marked=material.marked,
            crop_size=settings.crop,
            prepare=whiten_each_image,
            method=method,
            device=device,
            progress=progress,
            checkpoint=checkpoint,
        )

    def _progress(self, progress: Progress | None) -> Progress | None:
        if progress is None:
            return None

        def report(phase: str, done: int, total: int, message: str) -> None:
            title = f"training {len(self.cells)} × {network_title(self.network)}"
            progress(title, done, total, message)

        return report

    def _solo(self, jobs: Sequence[Job], material: Material, device: torch.device) -> float | None:
        """Seconds per epoch of the group's jobs trained one after another, the start left out."""
        epochs = self.settings.solo_epochs
        if not epochs or len(jobs) < 2:
            return None
        # Augmentation takes time of its own: every kind of it in the group is timed once.
        kinds = {job.augmentation: job for job in jobs}
        per_epoch = {}
        for kind, job in kinds.items():
            short = self._timed(job, material, 1, device)
            per_epoch[kind] = max(self._timed(job, material, 1 + epochs, device) - short, 0.0)
        total = math.fsum(per_epoch[job.augmentation] for job in jobs) / epochs / len(jobs)
        # On a busy machine the short run can take longer than the long one.
        return total or None

    def _timed(self, job: Job, material: Material, epochs: int, device: torch.device) -> float:
        started = time.perf_counter()
        self._many([job], material, epochs, device, method="one at a time")
        return time.perf_counter() - started

    def _result(
        self,
        cell: Cell,
        entry: JobResult,
        material: Material,
        timing: GroupTiming,
        parameters: int,
    ) -> CellResult:
        assert entry.test_examples is not None
        return CellResult(
            cell=cell,
            parameters=parameters,
            examples=entry.examples,
            redrawn=material.redrawn(cell),
            test_examples=entry.test_examples,
            history=tuple(
                Point(
                    epoch=record.epoch,
                    steps=record.steps,
                    loss=record.train_loss if math.isfinite(record.train_loss) else None,
                    train_errors=record.train_errors,
                    redrawn_errors=record.marked_errors,
                    kept_errors=record.unmarked_errors,
                    test_errors=int(record.test_errors or 0),
                )
                for record in entry.history
            ),
            stopped=entry.stopped,
            training=self.settings.training_record(cell),
            method=timing.method,
            together=timing.networks,
            seconds=timing.seconds / timing.networks,
            device=timing.device,
        )
