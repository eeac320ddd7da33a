"""Training the networks of the randomization paper, many at once, each kept when it is done, and
what the pages about them share: words, how networks were trained, the time."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import nn

from nonvacuous.data import Dataset
from nonvacuous.data.preprocessing import cropped, whiten_each_image
from nonvacuous.errors import BadInput
from nonvacuous.models import build
from nonvacuous.papers.zhang import networks
from nonvacuous.papers.zhang.networks import Cell, CellResult, GroupResult, GroupTiming
from nonvacuous.papers.zhang.settings import Recipe, Shared, ZhangSettings, training_record
from nonvacuous.randomization.conditions import Condition, corrupted_condition, many_examples
from nonvacuous.randomization.registry import parse_corruption
from nonvacuous.report.study import Section, StudyPage, Table, or_dash
from nonvacuous.seeds import derived_seed
from nonvacuous.study.running import finished_cells
from nonvacuous.study.settings import at_most, under
from nonvacuous.study.study import Context, Finished, Study
from nonvacuous.training.many import train_many
from nonvacuous.training.many_jobs import Job, JobResult, ManyResult, ManySettings


def conditions_of(
    cells: Sequence[Cell], dataset: Dataset, *, crop: int | None, seed: int
) -> dict[str, Condition]:
    """The data of these networks, by what is done to them.

    Inputs are corrupted after the central crop and before whitening. Where only labels are, the
    images stay whole, so that training can crop them at random.
    """
    conditions = {}
    for name in dict.fromkeys(cell.corruption for cell in cells):
        spoils_inputs = parse_corruption(name).corruption.what == "inputs"
        shown = cropped(dataset, crop) if spoils_inputs and crop is not None else dataset
        conditions[name] = corrupted_condition(shown, name, seed=seed)
    return conditions


Settings = TypeVar("Settings", bound=ZhangSettings)
Result = TypeVar("Result")


class Group(Shared):
    """A cell of the engine: networks of one kind and recipe that are trained at once."""

    networks: tuple[Cell, ...]
    recipe: Recipe
    seed: int

    @classmethod
    def of(cls, networks: Sequence[Cell], settings: ZhangSettings) -> Group:
        same = settings.model_dump(include={*Shared.model_fields, "seed"})
        return cls(networks=tuple(networks), recipe=settings.recipe(networks[0]), **same)

    @property
    def key(self) -> str:
        digest = derived_seed(0, *(cell.key for cell in self.networks)) % 16**8
        return f"{self.networks[0].network}-{len(self.networks)}-{digest:08x}"


class NetworksStudy(Study[Settings, Result]):
    """What the studies of the paper's networks share: those that are asked for are trained."""

    cell = Group
    gives = GroupResult
    may_change = frozenset({"networks", "solo_epochs", "method"})
    #: What the page says above the times.
    about_time: ClassVar[str] = ""

    @abstractmethod
    def networks(self, settings: Settings) -> Sequence[Cell]:
        """The networks that are asked for."""

    def cells(self, settings: Settings, finished: Finished) -> Sequence[Group]:
        known = self.trained(settings, finished)
        missing = [cell for cell in dict.fromkeys(self.networks(settings)) if cell not in known]
        groups = []
        # What is trained at once has one recipe.
        for kind in dict.fromkeys((cell.network, settings.recipe(cell)) for cell in missing):
            alike = [c for c in missing if (c.network, settings.recipe(c)) == kind]
            for start in range(0, len(alike), kind[1].together):
                groups.append(Group.of(alike[start : start + kind[1].together], settings))
        return groups

    def compute(self, cell: Group, at: Context) -> GroupResult:
        return _Training(cell, at).run()

    def trained(self, settings: Settings, finished: Finished) -> dict[Cell, CellResult]:
        """The networks in the folder, and in the table's, that are trained as the settings say."""
        table = getattr(settings, "table", None)
        if table is not None:
            with under("table"):
                others = finished_cells(self, table)
                if not others:
                    raise BadInput(f"{table} holds no table")
            finished = (*others, *finished)
        return {
            result.cell: result
            for group in finished
            for result in group.result.results
            if result.cell.network in settings.networks
            and settings.training_record(result.cell).items() <= result.training.items()
        }

    def timings(self, finished: Finished) -> tuple[GroupTiming, ...]:
        """The time of every training in this folder."""
        groups = sorted(finished, key=lambda group: str(group.cell.key))
        return tuple(group.result.timing for group in groups)

    def page(self, result: Result, command: str) -> StudyPage:
        """With what all of them say: how long it took, and how networks were trained."""
        page, shown = super().page(result, command), cast(Any, result)
        seconds = f"{sum(timing.seconds for timing in shown.timings):.0f} seconds"
        times = Section.of("How long did it take?", self.about_time, time_table(shown.timings))
        return replace(
            page,
            badges=(*page.badges, seconds, networks.PAPER),
            sections=(*page.sections, times, training_section(shown.settings)),
        )

    def title(self, settings: Settings) -> str:
        count = len(set(self.networks(settings)))
        return f"{count} networks on {settings.data}, seed {settings.seed}"


class _Training:
    def __init__(self, group: Group, at: Context) -> None:
        self.group, self.at, self.device = group, at, torch.device(at.device)
        self.network, self.recipe = group.networks[0].network, group.recipe
        dataset = at.dataset(group.data)
        if dataset.test is None:
            raise BadInput(f"{dataset.name} has no test set; the tables need one")
        dataset = replace(dataset, train=at_most(dataset.train, group.examples))
        self.classes = dataset.train.classes
        self.seed = derived_seed(group.seed, "randomization paper", self.network)
        shape = dataset.train.example_shape
        self.shape = shape if group.crop is None else (shape[0], group.crop, group.crop)
        self.conditions = conditions_of(group.networks, dataset, crop=group.crop, seed=group.seed)
        self.examples, self.inputs = many_examples(
            list(self.conditions.values()), crop_size=group.crop, prepare=whiten_each_image
        )

    def run(self) -> GroupResult:
        jobs = [self._job(cell) for cell in self.group.networks]
        result = self._many(
            jobs,
            self.recipe.epochs,
            method=self.group.method,
            checkpoint=self.at.folder / "checkpoint",
            progress=self._progress,
        )
        timing = GroupTiming(
            network=self.network,
            networks=len(jobs),
            epochs=max(entry.history[-1].epoch for entry in result.jobs),
            seconds=result.seconds,
            method=result.method,
            device=self.device.type,
            solo_seconds=self._solo(jobs),
        )
        results = tuple(
            self._result(cell, entry, timing)
            for cell, entry in zip(self.group.networks, result.jobs, strict=True)
        )
        for old in self.at.folder.glob("checkpoint*"):
            old.unlink()
        return GroupResult(results=results, timing=timing)

    def _build(self, seed: int) -> nn.Module:
        return build(self.recipe.model, self.shape, self.classes, seed=seed)

    def _job(self, cell: Cell) -> Job:
        row = list(self.conditions).index(cell.corruption)
        return Job(
            labels=row,
            inputs=self.inputs[row],
            # The same start and the same order of examples in every condition: only data differ.
            seed=self.seed,
            learning_rate=self.recipe.learning_rate,
            weight_decay=self.recipe.weight_decay * cell.decay_times if cell.decay else 0.0,
            augmentation=cell.augmentation,
            dropout=self.recipe.dropout if cell.dropout else 0.0,
        )

    def _many(self, jobs: Sequence[Job], epochs: int, **how: Any) -> ManyResult:
        settings = ManySettings(
            epochs=epochs,
            decay=self.recipe.rate_decay,
            **self.group.model_dump(include={"batch_size", "momentum", "stop_when_fit"}),
            **self.recipe.model_dump(include={"measure_every", "precision"}),
        )
        return train_many(
            self._build, self.examples, jobs, settings=settings, device=self.device, **how
        )

    def _progress(self, phase: str, done: int, total: int, message: str) -> None:
        title = f"training {len(self.group.networks)} × {networks.network_title(self.network)}"
        self.at.tell(title, done, total, message)

    def _solo(self, jobs: Sequence[Job]) -> float | None:
        """Seconds per epoch of the group's jobs trained one after another, the start left out."""
        epochs = self.group.solo_epochs
        if not epochs or len(jobs) < 2:
            return None
        # Augmentation takes time of its own: every kind of it in the group is timed once.
        kinds = {job.augmentation: job for job in jobs}
        per_epoch = {}
        for kind, job in kinds.items():
            short = self._timed(job, 1)
            per_epoch[kind] = max(self._timed(job, 1 + epochs) - short, 0.0)
        total = math.fsum(per_epoch[job.augmentation] for job in jobs) / epochs / len(jobs)
        # On a busy machine the short run can take longer than the long one.
        return total or None

    def _timed(self, job: Job, epochs: int) -> float:
        started = time.perf_counter()
        self._many([job], epochs, method="one at a time")
        return time.perf_counter() - started

    def _result(self, cell: Cell, entry: JobResult, timing: GroupTiming) -> CellResult:
        condition = self.conditions[cell.corruption]
        redrawn = condition.corrupted
        return CellResult(
            cell=cell,
            parameters=sum(part.numel() for part in self._build(0).parameters()),
            examples=len(condition.train),
            redrawn=0 if redrawn is None else int(redrawn.sum()),
            test_examples=len(condition.test),
            history=tuple(
                networks.Point(
                    epoch=record.epoch,
                    steps=record.steps,
                    loss=record.train_loss,
                    train_errors=record.train_errors,
                    redrawn_errors=record.marked_errors,
                    kept_errors=record.unmarked_errors,
                    test_errors=int(record.test_errors or 0),
                )
                for record in entry.history
            ),
            stopped=entry.stopped,
            training=training_record(self.recipe, self.group),
            method=timing.method,
            together=timing.networks,
            seconds=timing.seconds / timing.networks,
            device=timing.device,
        )


def percent(value: float | None) -> str:
    return or_dash(value, ".2f")


def yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def training_section(settings: ZhangSettings) -> Section:
    """How the networks were trained, and what the paper does not say about it."""
    recipes = {networks.network_title(name): recipe for name, recipe in settings.networks.items()}
    for name, recipe in settings.networks.items():
        for entry in recipe.longer:
            regularizer = networks.REGULARIZED[entry.regularizer]
            title = f"{networks.network_title(name)}, random labels with {regularizer}"
            recipes[title] = recipe.under([entry.regularizer])
    rows = []
    for title, recipe in recipes.items():
        numbers = (recipe.epochs, recipe.learning_rate, recipe.rate_decay, recipe.weight_decay)
        rows.append((title, recipe.model, *(f"{n:g}" for n in numbers), recipe.precision))
    crop = f", cut to the central {settings.crop} pixels" if settings.crop is not None else ""
    part = "all" if settings.examples is None else f"the first {settings.examples:,}"
    said = (
        f"{settings.data}, {part} training examples{crop}, each image shifted and scaled to mean 0 "
        f"and variance 1. Stochastic gradient descent with momentum {settings.momentum:g}, batches "
        f"of {settings.batch_size}, the learning rate multiplied by a factor after every epoch. "
        "Labels were redrawn once, before training, and kept; test labels are clean. "
        "All conditions share the initial weights and the order of the examples."
    )
    inferred = (
        "The paper gives the learning rates 0.1 (Inception) and 0.01 (the others), the factor 0.95 "
        "and the preprocessing. It does not give the strength of the weight decay, the number of "
        "epochs or the initial weights: those in the table are ours, and so is every learning rate "
        "and factor that differs from the paper's."
    )
    headings = (
        "network", "model", "epochs", "learning rate", "factor", "weight decay where on",
        "precision",
    )  # fmt: skip
    return Section.of("How were they trained?", said, inferred, Table(headings, tuple(rows)))


def time_table(timings: Sequence[GroupTiming]) -> Table:
    """The time per network against training one after another in the same run."""
    rows = tuple(
        (
            networks.network_title(timing.network),
            str(timing.networks),
            timing.method,
            timing.device,
            f"{timing.seconds:.1f}",
            f"{timing.seconds_per_epoch:.3f}",
            or_dash(timing.solo_seconds, ".3f"),
            or_dash(timing.speedup, ".1f"),
        )
        for timing in timings
    )
    headings = (
        "network", "at once", "method", "device", "seconds", "each epoch", "alone", "faster",
    )  # fmt: skip
    total = sum(timing.seconds for timing in timings)
    caption = (
        f"All training: {total:.0f} seconds. Each epoch: seconds per network and epoch; alone: the "
        "same for one network trained by itself; faster: how many times."
    )
    return Table(headings, rows, caption)
