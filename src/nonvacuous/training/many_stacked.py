"""What the methods that keep all networks in the same tensors share: batches, updates, counts."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.training.graphs import Recordings, full_precision
from nonvacuous.training.loop import batch_edges
from nonvacuous.training.many_dropout import Chance
from nonvacuous.training.many_jobs import Job, ManySettings
from nonvacuous.training.many_material import Material, draw_seed
from nonvacuous.training.many_measuring import (
    STACKED_MEASURED_AT_ONCE,
    Measured,
    Tally,
    following,
    read,
    window,
)


class StackedTrainer(ABC):
    """M networks whose parameters have a leading axis of length M.

    Subclasses say how outputs are computed; see `nonvacuous.training.many_trainer.Trainer`.
    """

    def __init__(self, jobs: Sequence[Job], material: Material, settings: ManySettings) -> None:
        self._material, self._settings = material, settings
        shapes = {tuple(material.train[job.inputs].shape[1:]) for job in jobs}
        if len(shapes) > 1:
            raise BadInput(
                f"The jobs' inputs have the different shapes {sorted(shapes)} once cropped; "
                "networks trained in the same tensors need equal ones. Crop the images alike "
                '(crop_size), or use method="auto".'
            )
        edges = batch_edges(material.examples, settings.batch_size)
        self._sizes = [after - before for before, after in itertools.pairwise(edges)]
        self._recordings = Recordings(material.device) if material.device.type == "cuda" else None
        self.trained: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}
        self._momenta: dict[str, Tensor] = {}
        self._seat(jobs)

    def _seat(self, jobs: Sequence[Job]) -> None:
        """Everything that depends on which jobs are here, their networks apart."""
        device, material = self._material.device, self._material
        self.jobs = list(jobs)
        count = len(jobs)

        def whole(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        self.chance = Chance(
            seed=whole([draw_seed(job.seed) for job in jobs]),
            step=torch.zeros((), dtype=torch.int64, device=device),
            rate=torch.tensor([job.dropout for job in jobs], device=device),
        )
        self.drops = any(job.dropout > 0 for job in jobs)
        self._start = torch.zeros((), dtype=torch.int64, device=device)
        self._orders = torch.zeros(count, material.examples, dtype=torch.int64, device=device)
        self._rates = torch.zeros(count, dtype=material.dtype, device=device)
        self._decays = torch.tensor(
            [job.weight_decay for job in jobs], dtype=material.dtype, device=device
        )
        self._rows = whole([job.labels for job in jobs]).unsqueeze(1)
        self._sets = [job.inputs for job in jobs]
        used = sorted(set(self._sets))
        # One lookup serves all jobs: several input sets are one long one.
        self._train = _joined([material.train[number] for number in used])
        self._offsets = whole([used.index(s) for s in self._sets]).unsqueeze(1) * material.examples
        self._train_tally = Tally.of(count, device)
        self._test_tallies = [Tally.of(1, device) for _ in jobs]

    @abstractmethod
    def outputs(self, inputs: Tensor, *, training: bool) -> Tensor:
        """Class scores (networks, batch, classes) of inputs (networks, batch, ...)."""

    @property
    def leaving_is_dear(self) -> bool:
        # Other tensors mean other recordings.
        return self._recordings is not None

    # -- an epoch ---------------------------------------------------------------------------------

    def ready(self) -> None:
        self._ready("step", sorted(set(self._sizes)), self._step)
        size = self._measured_at_once(self._material.examples)
        self._ready("train", [size], self._measure_train)
        self._settled()

    def epoch(
        self,
        orders: Sequence[Tensor],
        rates: Sequence[float],
        first_step: int,
        tick: Callable[[], None],
    ) -> None:
        self._orders.copy_(torch.stack(list(orders)))
        self._rates.copy_(torch.tensor(rates, dtype=torch.float64))
        self._start.zero_()
        self.chance.step.fill_(first_step)
        works = self._ready("step", sorted(set(self._sizes)), self._step)
        for size in self._sizes:
            works(size)
            for _ in self.jobs:
                tick()
        self._settled()

    def _step(self, size: int) -> None:
        chosen = self._orders[:, following(self._start, size, self._material.examples)]
        labels = self._material.labels[self._rows, chosen]
        outputs = self.outputs(self._batch(chosen), training=True)
        losses = torch.nn.functional.cross_entropy(
            full_precision(outputs).flatten(0, 1), labels.flatten(), reduction="none"
        )
        # The sum over the networks of their mean losses: each one's gradient is that of its own.
        loss = losses.view(labels.shape).mean(dim=1).sum()
        names = list(self.trained)
        gradients = torch.autograd.grad(loss, [self.trained[name] for name in names])
        with torch.no_grad():
            for name, gradient in zip(names, gradients, strict=True):
                self._update(self.trained[name], self._momenta[name], gradient)
        self._start += size
        self.chance.step.add_(1)

    def _update(self, parameter: Tensor, memory: Tensor, gradient: Tensor) -> None:
        """One step of torch's SGD with momentum, each network with its own rate and decay."""
        along = (-1,) + (1,) * (parameter.ndim - 1)
        if any(job.weight_decay for job in self.jobs):
            gradient = torch.addcmul(gradient, parameter, self._decays.view(along))
        torch.add(gradient, memory, alpha=self._settings.momentum, out=memory)
        parameter.addcmul_(memory, self._rates.view(along), value=-1)

    def _batch(self, chosen: Tensor) -> Tensor:
        material = self._material
        if all(job.augmentation == "none" for job in self.jobs):
            return _shown(self._train[chosen + self._offsets])
        return torch.stack(
            [
                material.batch(job, chosen[m], seed=self.chance.seed[m], step=self.chance.step)
                for m, job in enumerate(self.jobs)
            ]
        )

    # -- measuring --------------------------------------------------------------------------------

    def measure(self) -> list[Measured]:
        self._train_tally.sums.zero_()
        for tally in self._test_tallies:
            tally.sums.zero_()
        material = self._material
        self._cover("train", material.examples, self._measure_train)
        if material.test:
            longest = max(len(labels) for _, labels in material.test.values())
            self._cover("test", longest, self._measure_test)
        return read(
            [self._train_tally],
            self._test_tallies if material.test else None,
            examples=material.examples,
            marked=material.marked is not None,
        )

    def _cover(self, name: str, examples: int, work: Callable[[int], None]) -> None:
        size = self._measured_at_once(examples)
        self._start.zero_()
        works = self._ready(name, [size], work)
        for _ in range(-(-examples // size)):
            works(size)
        self._settled()

    def _measured_at_once(self, examples: int) -> int:
        return min(max(1, STACKED_MEASURED_AT_ONCE // len(self.jobs)), examples)

    def _measure_train(self, size: int) -> None:
        material = self._material
        chosen, valid = window(self._start, size, material.examples)
        marked = material.marked
        with torch.no_grad():
            outputs = self.outputs(_shown(self._train[chosen + self._offsets]), training=False)
        self._train_tally.add(
            outputs,
            material.labels[self._rows, chosen],
            None if marked is None else marked[self._rows, chosen],
            valid,
        )
        self._start += size

    def _measure_test(self, size: int) -> None:
        parts = []
        for number in self._sets:
            inputs, labels = self._material.test[number]
            chosen, valid = window(self._start, size, len(labels))
            parts.append((inputs[chosen], labels[chosen], valid))
        stacked = torch.stack([inputs for inputs, _, _ in parts])
        with torch.no_grad():
            outputs = self.outputs(_shown(stacked), training=False)
        for tally, scores, (_, labels, valid) in zip(
            self._test_tallies, outputs, parts, strict=True
        ):
            tally.add(scores.unsqueeze(0), labels.unsqueeze(0), None, valid)
        self._start += size

    # -- recordings -------------------------------------------------------------------------------

    def _ready(
        self, name: str, sizes: Sequence[int], work: Callable[[int], None]
    ) -> Callable[[int], None]:
        """The work itself, or on a GPU its recording."""
        recordings = self._recordings
        if recordings is None:
            return work
        changing = [
            *self.trained.values(),
            *self.buffers.values(),
            *self._momenta.values(),
            self._start,
            self.chance.step,
            self._train_tally.sums,
            *(tally.sums for tally in self._test_tallies),
        ]
        for size in sizes:
            recordings.record(name, size, work, changing=changing)
        recordings.begin()
        return lambda size: recordings.replay(name, size)

    def _settled(self) -> None:
        if self._recordings is not None:
            self._recordings.end()

    # -- the networks -----------------------------------------------------------------------------

    def take(self, trained: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
        """Begin with these stacked tensors and no momentum."""
        self.trained = {name: tensor.requires_grad_() for name, tensor in trained.items()}
        self.buffers = buffers
        self._momenta = {name: torch.zeros_like(tensor) for name, tensor in trained.items()}

    def keep(self, kept: Sequence[int]) -> None:
        def chosen(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor.detach()[list(kept)] for name, tensor in tensors.items()}

        momenta = chosen(self._momenta)
        self.take(chosen(self.trained), chosen(self.buffers))
        self._momenta = momenta
        self._seat([self.jobs[number] for number in kept])
        if self._recordings is not None:
            self._recordings.forget()

    def tensors(self, number: int) -> dict[str, Tensor]:
        momenta = {name: tensor[number] for name, tensor in self._momenta.items()}
        both = {**self.trained, **self.buffers}
        state = {name: tensor.detach()[number] for name, tensor in both.items()}
        return {
            **{f"state.{name}": tensor for name, tensor in self.named(state).items()},
            **{f"momentum.{name}": tensor for name, tensor in self.named(momenta).items()},
        }

    def named(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """One network's tensors as views in the shapes of its module."""
        return tensors


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))


def _shown(tensor: Tensor) -> Tensor:
    """Images (networks, batch, height, width, channels) in torch's order of axes."""
    return tensor.permute(0, 1, 4, 2, 3) if tensor.ndim == 5 else tensor
