"""Training the grid of the study of measures, many networks at once, and measuring each."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from nonvacuous.claims import write_record
from nonvacuous.errors import BadInput
from nonvacuous.measures.panel import panel
from nonvacuous.measures.subject import Subject
from nonvacuous.models import build
from nonvacuous.papers.measures import settings
from nonvacuous.papers.measures.settings import Cell, GroupResult, MeasuresCell, NetworkRecord
from nonvacuous.randomization.corruptions import corrupt
from nonvacuous.seeds import derived_seed
from nonvacuous.study.study import Context
from nonvacuous.training.erm import evaluate
from nonvacuous.training.many import train_many
from nonvacuous.training.many_jobs import Job, JobResult, ManyExamples, ManyResult, ManySettings


class Training:
    """The training of one cell, and the measures of what came of it.

    inputs   the largest training set, in a random order
    labels   one row for each level of noise

    A network with n examples sees the first n: smaller sets are parts of larger ones, and labels
    that are wrong at one level of noise are wrong at every higher one.
    """

    def __init__(self, cell: MeasuresCell, at: Context) -> None:
        self.cell, self.at = cell, at
        dataset = at.dataset(cell.data)
        if dataset.test is None:
            raise BadInput(f"{dataset.name} has no test set; without one there is no gap")
        most = cell.most
        if most > len(dataset.train):
            raise BadInput(
                f"examples asks for {most}, but {dataset.name} has {len(dataset.train)} training "
                "examples; ask for fewer"
            )
        seed = derived_seed(cell.seed, "measures study", "examples")
        order = torch.randperm(len(dataset.train), generator=torch.Generator().manual_seed(seed))
        used = dataset.train.subset(order[:most])
        tested, truth = dataset.test.inputs, dataset.test.labels
        if cell.unused_as_test and most < len(dataset.train):
            rest = dataset.train.subset(order[most:])
            tested = torch.cat([tested, rest.inputs])
            truth = torch.cat([truth, rest.labels])
        seed = derived_seed(cell.seed, "measures study", "labels")
        noisy = [
            corrupt(replace(dataset, train=used), spec, seed=seed).train.labels
            for spec in ("true" if level == 0 else f"partial:{level:g}" for level in cell.levels)
        ]
        self.inputs, self.labels = _shown(used.inputs, cell), torch.stack(noisy)
        self.test_inputs, self.test_labels = _shown(tested, cell), truth
        self.shape, self.classes = tuple(self.inputs.shape[1:]), dataset.train.classes

    def build(self, cell: Cell, seed: int) -> nn.Module:
        """A fresh network for these inputs."""
        return build(cell.model, self.shape, self.classes, seed=seed)

    def row(self, cell: Cell) -> int:
        """Which row of the labels a network learns."""
        return self.cell.levels.index(cell.label_noise)

    def training_set(self, cell: Cell) -> tuple[Tensor, Tensor]:
        """The inputs and labels, wrong ones included, that a network learns from."""
        return self.inputs[: cell.examples], self.labels[self.row(cell), : cell.examples]

    def together(self) -> GroupResult:
        """All networks in the same tensors: their records with every measure, and the times.

        A record is written as soon as it is whole: a network that a stopped run has measured is not
        trained again.
        """
        kept = {cell.key: self.at.folder / f"{cell.key}.json" for cell in self.cell.networks}
        cells = [cell for cell in self.cell.networks if not kept[cell.key].is_file()]
        times = settings.Times()
        if cells:
            result = self._many(cells, method="matrices")
            begun = time.perf_counter()
            for record in self._measured(cells, result.jobs):
                write_record(kept[record.key], record.model_dump(mode="json"))
            times = settings.Times(
                networks=len(cells),
                steps=sum(job.history[-1].steps for job in result.jobs),
                seconds=result.seconds,
                measuring_seconds=time.perf_counter() - begun,
                device=self.at.device,
                method=result.method,
            )
        records = [NetworkRecord.model_validate_json(path.read_bytes()) for path in kept.values()]
        for path in kept.values():
            path.unlink()
        return GroupResult(records=tuple(records), times=times)

    def alone(self) -> GroupResult:
        """The time that the networks take as one would train them without this package."""
        results = [self._many([cell], method="one at a time") for cell in self.cell.networks]
        times = settings.Times(
            alone_networks=len(results),
            alone_steps=sum(result.jobs[0].history[-1].steps for result in results),
            alone_seconds=sum(result.seconds for result in results),
        )
        return GroupResult(records=(), times=times)

    def _measures(self, cell: Cell, job: JobResult) -> dict[str, Any]:
        seed = network_seed(self.cell.seed, cell)
        module = self.build(cell, seed)
        module.load_state_dict({name: tensor.cpu() for name, tensor in job.state.items()})
        measured = panel(
            module,
            self.training_set(cell),
            initial=self.build(cell, seed),
            only=self.cell.measures or None,
            like=_captured(cell.model, self.shape, self.classes),
            device=self.at.device,
        )
        return {entry.measure.name: entry.result.to_dict() for entry in measured.entries}

    def _many(self, cells: Sequence[Cell], *, method: str) -> ManyResult:
        first, shared = cells[0], self.cell
        jobs = [
            Job(
                labels=self.row(cell),
                seed=network_seed(shared.seed, cell),
                learning_rate=cell.learning_rate,
                weight_decay=cell.weight_decay,
                dropout=cell.dropout,
            )
            for cell in cells
        ]

        def tell(phase: str, done: int, total: int, message: str) -> None:
            self.at.tell("training", done, total, f"{first.model}, {message}")

        return train_many(
            lambda seed: self.build(first, seed),
            ManyExamples(
                [self.inputs[: first.examples]],
                self.labels[:, : first.examples].contiguous(),
            ),
            jobs,
            settings=ManySettings(
                batch_size=first.batch_size,
                decay=1.0,
                **shared.model_dump(include={"epochs", "momentum", "stop_loss", "measure_every"}),
            ),
            method=method,
            device=self.at.device,
            progress=tell,
        )

    def _measured(
        self, cells: Sequence[Cell], jobs: Sequence[JobResult]
    ) -> Iterator[NetworkRecord]:
        """The record of each network; losses and errors in double precision, however trained."""
        first, device = cells[0], torch.device(self.at.device)
        network = self.build(first, 0).to(device).double()
        test = (self.test_inputs.to(device).double(), self.test_labels.to(device))
        seen = self.inputs[: first.examples].to(device).double()
        for cell, job in zip(cells, jobs, strict=True):
            weights = {name: tensor.to(device).double() for name, tensor in job.state.items()}
            learned = self.training_set(cell)[1].to(device)
            train = evaluate(network, seen, learned, weights=weights)
            tested = evaluate(network, *test, weights=weights)
            yield NetworkRecord(
                key=cell.key,
                hyperparameters=cell.hyperparameters,
                repetition=cell.repetition,
                stopped=job.stopped,
                epochs=job.history[-1].epoch,
                steps=job.history[-1].steps,
                train_loss=train.loss if math.isfinite(train.loss) else None,
                train_errors=train.errors,
                test_loss=tested.loss if math.isfinite(tested.loss) else None,
                test_errors=tested.errors,
                test_examples=tested.examples,
                measures=self._measures(cell, job) if job.stopped == settings.REACHED else {},
            )


def _shown(inputs: Tensor, cell: MeasuresCell) -> Tensor:
    """What networks see of the inputs; nothing about it is learned from them."""
    pool = cell.pool
    if pool > 1:
        if inputs.ndim != 4 or min(inputs.shape[2:]) < pool:
            raise BadInput(
                f"pool = {pool} averages squares of pixels, but the inputs have the shape "
                f"{tuple(inputs.shape[1:])}; set pool = 1"
            )
        inputs = avg_pool2d(inputs, pool)
    return 4.0 * (inputs - 0.5) if cell.centered else inputs


def network_seed(seed: int, cell: Cell) -> int:
    """Equal for all cells of one repetition: they begin alike where their shapes allow it."""
    return derived_seed(seed, "measures study", "network", cell.repetition)


@lru_cache(maxsize=32)
def _captured(model: str, shape: tuple[int, ...], classes: int) -> Subject:
    network: nn.Module = build(model, shape, classes, seed=0)
    return Subject.of(network, torch.zeros(2, *shape))
