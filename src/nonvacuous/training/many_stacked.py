"""Networks trained in the same tensors, or one that is alone: batches, updates, counts.

Recorded, the whole step of a network (gathering its batch, augmentation, forward, backward and
update) is one CUDA graph. Each stack replays its graphs on its own stream, so that the kernels of
one network fill the gaps of the others; all of them run the same kernels as alone.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nonvacuous.errors import BadInput
from nonvacuous.seeds import derived_seed
from nonvacuous.training import many_material
from nonvacuous.training.checks import check_learnable, evaluation_mode, in_batches_of
from nonvacuous.training.graphs import Recordings, full_precision
from nonvacuous.training.loop import batch_edges, shuffled
from nonvacuous.training.many_jobs import Job
from nonvacuous.training.many_material import Chance, Material, shown


class Stack(ABC):
    """M networks whose parameters have a leading axis of length M.

    Subclasses say how outputs are computed. Everything that a step depends on lies in tensors, so
    that it can be recorded.
    """

    #: Examples in a measured batch, all networks together: enough to fill a GPU.
    measured_at_once = 4000

    def __init__(self, jobs: Mapping[int, Job], material: Material, *, recorded: bool) -> None:
        self._material, self._settings = material, material.settings
        shapes = {tuple(material.train[job.inputs].shape[1:]) for job in jobs.values()}
        if len(shapes) > 1:
            raise BadInput(
                f"The jobs' inputs have the different shapes {sorted(shapes)} once cropped; "
                "networks trained in the same tensors need equal ones. Crop the images alike "
                '(crop_size), or use method="auto".'
            )
        self.recordings = Recordings(material.device) if recorded else None
        self.trained: dict[str, Tensor] = {}
        self._momenta: dict[str, Tensor] = {}
        self._seat(jobs)

    def _seat(self, numbered: Mapping[int, Job]) -> None:
        """Everything that depends on which jobs are here, their networks apart."""
        device, material = self._material.device, self._material
        #: By their numbers among all jobs, in the order of their networks.
        self.jobs = dict(numbered)
        jobs, count = list(numbered.values()), len(numbered)

        def whole(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        self.chance = Chance(
            seed=whole([many_material.draw_seed(job.seed) for job in jobs]),
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
        first, *others = (material.train[number] for number in used)
        self._train = torch.cat([first, *others]) if others else first
        self._offsets = whole([used.index(s) for s in self._sets]).unsqueeze(1) * material.examples
        #: Of each network, over all examples: its loss, its errors, and those among the marked.
        self.sums = {
            name: torch.zeros(count, 3, dtype=torch.float64, device=device)
            for name in ("train", "test")
        }
        edges = batch_edges(material.examples, self._settings.batch_size)
        #: The batches of an epoch of "step", and of a measurement of "train" and of "test".
        self.batches = {"step": [after - before for before, after in itertools.pairwise(edges)]}
        # Input sets have test sets of their own, whose sizes may differ.
        tests = max((len(labels) for _, labels in material.test.values()), default=0)
        for name, examples in (("train", material.examples), ("test", tests)):
            if examples:
                size = min(max(1, self.measured_at_once // count), examples)
                self.batches[name] = [size] * -(-examples // size)

    @abstractmethod
    def outputs(self, inputs: Tensor, *, training: bool) -> Tensor:
        """Class scores (networks, batch, classes) of inputs (networks, batch, ...)."""

    def precision(self) -> torch.autocast:
        """The arithmetic of forward passes."""
        half = self._settings.precision == "bfloat16"
        return torch.autocast(self._material.device.type, dtype=torch.bfloat16, enabled=half)

    def ready(self) -> None:
        """Record what will be replayed."""
        if self.recordings is None:
            return
        changing = [*self.changed(), self._start, self.chance.step, *self.sums.values()]
        for name, sizes in self.batches.items():
            for size in sorted(set(sizes)):
                self.recordings.record(name, size, self._work(name), changing=changing)

    def _work(self, name: str) -> Callable[[int], None]:
        # Made when asked for: methods that it keeps would keep a stack and its memory alive.
        works = {"step": self._step, "train": self._measure_train, "test": self._measure_test}
        return works[name]

    def begin(self) -> None:
        """Go to the first example."""
        self._start.zero_()
        if self.recordings is not None:
            self.recordings.begin()

    def run(self, name: str, size: int) -> None:
        """One batch of a work, or its recording."""
        if self.recordings is None:
            self._work(name)(size)
        else:
            self.recordings.replay(name, size)

    def end(self) -> None:
        """After the last batch."""
        if self.recordings is not None:
            self.recordings.end()

    def begin_epoch(self, epoch: int) -> None:
        """Set what the steps of an epoch share."""
        jobs, examples = self.jobs.values(), self._material.examples
        orders = [shuffled(examples, seed=job.seed, epoch=epoch) for job in jobs]
        rates = [self._settings.rate(job, epoch) for job in jobs]
        self._orders.copy_(torch.stack(orders))
        self._rates.copy_(torch.tensor(rates, dtype=torch.float64))
        self.chance.step.fill_(epoch * len(self.batches["step"]))

    def _step(self, size: int) -> None:
        # An epoch never gets beyond the last one; the trial runs before a recording do.
        places = self._start + torch.arange(size, device=self._start.device)
        chosen = self._orders[:, places % self._material.examples]
        labels = self._material.labels[self._rows, chosen]
        outputs = self.outputs(self._batch(chosen), training=True)
        # The sum over the networks of their mean losses: each one's gradient is that of its own.
        loss = _losses(full_precision(outputs), labels).mean(dim=1).sum()
        check_learnable(loss)
        self._learn(loss)
        self._start += size
        self.chance.step.add_(1)

    def _learn(self, loss: Tensor) -> None:
        names = list(self.trained)
        gradients = torch.autograd.grad(loss, [self.trained[name] for name in names])
        with torch.no_grad():
            for name, gradient in zip(names, gradients, strict=True):
                self._update(self.trained[name], self._momenta[name], gradient)

    def _update(self, parameter: Tensor, memory: Tensor, gradient: Tensor) -> None:
        """One step of torch's SGD with momentum, each network with its own rate and decay."""
        along = (-1,) + (1,) * (parameter.ndim - 1)
        if any(job.weight_decay for job in self.jobs.values()):
            gradient = torch.addcmul(gradient, parameter, self._decays.view(along))
        torch.add(gradient, memory, alpha=self._settings.momentum, out=memory)
        parameter.addcmul_(memory, self._rates.view(along), value=-1)

    def _batch(self, chosen: Tensor) -> Tensor:
        material = self._material
        if all(job.augmentation == "none" for job in self.jobs.values()):
            return shown(self._train[chosen + self._offsets], axes=5)
        seen = [
            material.batch(job, chosen[m], seed=self.chance.seed[m], step=self.chance.step)
            for m, job in enumerate(self.jobs.values())
        ]
        # The layout of images in memory is that of one network where there is but one.
        return seen[0].unsqueeze(0) if len(seen) == 1 else torch.stack(seen)

    def _measure_train(self, size: int) -> None:
        material = self._material
        chosen, valid = window(self._start, size, material.examples)
        marked = material.marked
        self._count(
            "train",
            self._train[chosen + self._offsets],
            material.labels[self._rows, chosen],
            valid,
            None if marked is None else marked[self._rows, chosen],
        )
        self._start += size

    def _measure_test(self, size: int) -> None:
        parts = []
        for number in self._sets:
            inputs, labels = self._material.test[number]
            chosen, valid = window(self._start, size, len(labels))
            parts.append((inputs[chosen], labels[chosen], valid))
        inputs, labels, valid = (torch.stack(column) for column in zip(*parts, strict=True))
        self._count("test", inputs, labels, valid, None)
        self._start += size

    @torch.no_grad()
    def _count(
        self, name: str, inputs: Tensor, labels: Tensor, valid: Tensor, marked: Tensor | None
    ) -> None:
        """Add up the losses and errors of a batch where `valid` is true."""
        outputs = full_precision(self.outputs(shown(inputs, axes=5), training=False))
        losses = torch.where(valid, _losses(outputs, labels), 0.0)
        wrong = (outputs.argmax(dim=2) != labels) & valid
        among = torch.zeros_like(wrong) if marked is None else wrong & marked
        counts = torch.stack([losses, wrong, among], dim=2)
        self.sums[name] += counts.sum(dim=1, dtype=torch.float64)

    def changed(self) -> list[Tensor]:
        """The tensors of the networks that steps change."""
        return [*self.trained.values(), *self._momenta.values()]

    def take(self, trained: dict[str, Tensor]) -> None:
        """Begin with these stacked tensors and no momentum."""
        self.trained = {name: tensor.requires_grad_() for name, tensor in trained.items()}
        self._momenta = {name: torch.zeros_like(tensor) for name, tensor in trained.items()}

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with the networks at these places only."""

        def chosen(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor.detach()[list(kept)] for name, tensor in tensors.items()}

        momenta = chosen(self._momenta)
        self.take(chosen(self.trained))
        self._momenta = momenta
        jobs = list(self.jobs.items())
        self._seat(dict(jobs[position] for position in kept))
        if self.recordings is not None:
            self.recordings.forget()

    def tensors(self, position: int) -> dict[str, Tensor]:
        """One network and its momentum; see `nonvacuous.training.many_trainer.Trainer`."""
        momenta = {name: tensor[position] for name, tensor in self._momenta.items()}
        state = {name: tensor.detach()[position] for name, tensor in self.trained.items()}
        return {
            **{f"state.{name}": tensor for name, tensor in self.named(state).items()},
            **{f"momentum.{name}": tensor for name, tensor in self.named(momenta).items()},
        }

    def named(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """One network's tensors as views in the shapes of its module."""
        return tensors


def _losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of each example, from outputs (networks, batch, classes)."""
    losses = cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="none")
    return losses.view(labels.shape)


def window(start: Tensor, size: int, examples: int) -> tuple[Tensor, Tensor]:
    """The places start, start + 1, ... and which of them exist; the others repeat the last one."""
    positions = start + torch.arange(size, device=start.device)
    return positions.clamp(max=examples - 1), positions < examples


class Solo(Stack):
    """One ordinary module with torch's own optimizer."""

    #: Few enough for a GPU's memory, and a divisor of the usual sizes: no batch is nearly empty.
    measured_at_once = 1000

    def __init__(
        self, module: nn.Module, number: int, job: Job, material: Material, *, recorded: bool
    ) -> None:
        super().__init__({number: job}, material, recorded=recorded)
        device, settings = material.device, material.settings
        own = Chance(self.chance.seed[0], self.chance.step, self.chance.rate[0])
        module = many_material.with_own_layers(module.to(device), own, everywhere=self.drops)
        if any(tensor.ndim == 4 for tensor in module.parameters()):
            # torch's annotations leave out this argument of `to`.
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._module, self._channels_first = module.train(), False
        try:
            with torch.no_grad(), evaluation_mode(module):
                module(shown(material.train[job.inputs][:2]))
        except RuntimeError:
            # `Tensor.view`, in many networks before the first linear layer, refuses images so.
            self._channels_first = True
            module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self._rate = torch.tensor(job.learning_rate, device=device)
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._optimizer = torch.optim.SGD(
            self._parameters,
            # A tensor on the GPU, which a recorded step reads anew; elsewhere a plain number.
            lr=self._rate if device.type == "cuda" else job.learning_rate,
            momentum=settings.momentum,
            weight_decay=job.weight_decay,
            fused=True if device.type == "cuda" else None,
        )
        if settings.momentum:
            for parameter in self._parameters:
                # Zeros from the start are what torch's SGD makes of a first step.
                buffer = torch.zeros_like(parameter)
                self._optimizer.state[parameter]["momentum_buffer"] = buffer

    def begin_epoch(self, epoch: int) -> None:
        super().begin_epoch(epoch)
        (job,) = self.jobs.values()
        rate = self._settings.rate(job, epoch)
        self._rate.fill_(rate)
        if self._material.device.type != "cuda":
            self._optimizer.param_groups[0]["lr"] = rate
        steps = itertools.count()
        self._layer_seeds = (derived_seed(job.seed, "layers", epoch, step) for step in steps)

    def _step(self, size: int) -> None:
        if self.recordings is None:
            # For draws of torch's own, as those of dropout between recurrent layers.
            torch.default_generator.manual_seed(next(self._layer_seeds))
        super()._step(size)

    def outputs(self, inputs: Tensor, *, training: bool) -> Tensor:
        if self._module.training != training:
            self._module.train(training)
        own = many_material.channels_first(inputs[0]) if self._channels_first else inputs[0]
        with in_batches_of(len(own)), self.precision():
            outputs: Tensor = self._module(own)
        return outputs.unsqueeze(0)

    def _learn(self, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None

    def changed(self) -> list[Tensor]:
        return list(self.tensors(0).values())

    def tensors(self, position: int) -> dict[str, Tensor]:
        named = {f"state.{name}": tensor for name, tensor in self._module.state_dict().items()}
        for name, parameter in self._module.named_parameters():
            memory = self._optimizer.state.get(parameter, {}).get("momentum_buffer")
            if memory is not None:
                named[f"momentum.{name}"] = memory
        return named
