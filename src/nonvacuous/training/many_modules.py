"""Networks trained as ordinary modules, each by itself: one at a time, or recorded and replayed.

Recorded, the whole step of a network (gathering its batch, augmentation, forward, backward and
update) is one CUDA graph. Each network replays its graphs on its own stream, so that the kernels of
one network fill the gaps of the others; all of them run the same kernels as alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nonvacuous.training.graphs import Recordings, full_precision
from nonvacuous.training.loop import batch_edges
from nonvacuous.training.many_dropout import Chance, seed_dropout, with_faster_layers
from nonvacuous.training.many_jobs import Job, ManySettings
from nonvacuous.training.many_material import Material, shown
from nonvacuous.training.many_measuring import (
    MEASURED_AT_ONCE,
    Measured,
    Tally,
    following,
    read,
    window,
)

Tick = Callable[[], None]


class SoloNetwork:
    """One module with its optimizer. Everything a step depends on lies in tensors."""

    def __init__(
        self, module: nn.Module, job: Job, material: Material, settings: ManySettings
    ) -> None:
        device = material.device
        self._job, self._material, self._settings = job, material, settings
        self._step = torch.zeros((), dtype=torch.int64, device=device)
        self._start = torch.zeros((), dtype=torch.int64, device=device)
        self._chance = Chance(
            material.seed(job), self._step, torch.tensor(job.dropout, device=device)
        )
        module = with_faster_layers(module.to(device))
        module = seed_dropout(module, self._chance, everywhere=job.dropout > 0)
        if any(tensor.ndim == 4 for tensor in module.parameters()):
            # torch's annotations leave out this argument of `to`.
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.module = module
        self._order = torch.zeros(material.examples, dtype=torch.int64, device=device)
        self._rate = torch.tensor(job.learning_rate, device=device)
        self._trained = [p for p in module.parameters() if p.requires_grad]
        self._optimizer = torch.optim.SGD(
            self._trained,
            # A tensor on the GPU, which a recorded step reads anew; elsewhere a plain number.
            lr=self._rate if device.type == "cuda" else job.learning_rate,
            momentum=settings.momentum,
            weight_decay=job.weight_decay,
            fused=True if device.type == "cuda" else None,
        )
        if settings.momentum:
            for parameter in self._trained:
                # Zeros from the start are what torch's SGD makes of a first step.
                buffer = torch.zeros_like(parameter)
                self._optimizer.state[parameter]["momentum_buffer"] = buffer
        self._train_tally = Tally.of(1, device)
        self._test_tally = Tally.of(1, device)

    def begin_epoch(self, order: Tensor, rate: float, first_step: int) -> None:
        """Set what the steps of an epoch share."""
        self._order.copy_(order)
        self._start.zero_()
        self._step.fill_(first_step)
        self._rate.fill_(rate)
        if self._material.device.type != "cuda":
            self._optimizer.param_groups[0]["lr"] = rate
        self.module.train()

    def step(self, size: int) -> None:
        """Learn from the next `size` examples of the order."""
        device = self._material.device
        chosen = self._order[following(self._start, size, len(self._order))]
        inputs = self._material.batch(self._job, chosen, seed=self._chance.seed, step=self._step)
        with precision(self._settings, device):
            outputs = self.module(inputs)
        loss = cross_entropy(
            full_precision(outputs), self._material.labels[self._job.labels][chosen]
        )
        gradients = torch.autograd.grad(loss, self._trained, allow_unused=True)
        for parameter, gradient in zip(self._trained, gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        for parameter in self._trained:
            parameter.grad = None
        self._start += size
        self._step += 1

    def begin_measuring(self) -> None:
        """Forget earlier counts."""
        self.module.eval()
        self._start.zero_()
        self._train_tally.sums.zero_()
        self._test_tally.sums.zero_()

    def measure(self, what: str) -> Callable[[int], None]:
        """The function that counts so many further examples of "train" or "test"."""
        return self._measure_train if what == "train" else self._measure_test

    def _measure_train(self, size: int) -> None:
        chosen, valid = window(self._start, size, self._material.examples)
        marked = self._material.marked
        self._train_tally.add(
            self._outputs(self._material.train[self._job.inputs][chosen]),
            self._material.labels[self._job.labels][chosen].unsqueeze(0),
            None if marked is None else marked[self._job.labels][chosen].unsqueeze(0),
            valid,
        )
        self._start += size

    def _measure_test(self, size: int) -> None:
        inputs, labels = self._material.test[self._job.inputs]
        chosen, valid = window(self._start, size, len(labels))
        outputs = self._outputs(inputs[chosen])
        self._test_tally.add(outputs, labels[chosen].unsqueeze(0), None, valid)
        self._start += size

    def _outputs(self, inputs: Tensor) -> Tensor:
        with torch.no_grad(), precision(self._settings, self._material.device):
            outputs: Tensor = self.module(shown(inputs))
        return outputs.unsqueeze(0)

    def restart(self) -> None:
        """Go back to the first example of the set."""
        self._start.zero_()

    def tallies(self) -> tuple[Tally, Tally]:
        """The counts on the training set and on the test set."""
        return self._train_tally, self._test_tally

    def changing(self) -> list[Tensor]:
        """All tensors that steps and measurements change."""
        return [
            *self.tensors().values(),
            self._start,
            self._step,
            self._train_tally.sums,
            self._test_tally.sums,
        ]

    def tensors(self) -> dict[str, Tensor]:
        """The network and the momentum, under the names that checkpoints use."""
        named = {f"state.{name}": tensor for name, tensor in self.module.state_dict().items()}
        for name, parameter in self.module.named_parameters():
            memory = self._optimizer.state.get(parameter, {}).get("momentum_buffer")
            if memory is not None:
                named[f"momentum.{name}"] = memory
        return named


class ModulesTrainer:
    """Networks that share nothing but the data; see `nonvacuous.training.many_trainer.Trainer`."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        jobs: Sequence[Job],
        material: Material,
        settings: ManySettings,
        *,
        recorded: bool,
    ) -> None:
        self._material = material
        self._networks = [
            SoloNetwork(module, job, material, settings)
            for module, job in zip(modules, jobs, strict=True)
        ]
        edges = batch_edges(material.examples, settings.batch_size)
        self._sizes = [after - before for before, after in itertools.pairwise(edges)]
        self._recordings: list[Recordings] | None = None
        if recorded:
            self._recordings = [Recordings(material.device) for _ in self._networks]

    @property
    def leaving_is_dear(self) -> bool:
        # Networks share nothing: whatever is recorded of the others stays.
        return False

    def ready(self) -> None:
        if self._recordings is None:
            return
        for network, recordings in zip(self._networks, self._recordings, strict=True):
            network.module.train()
            for size in sorted(set(self._sizes)):
                recordings.record("step", size, network.step, changing=network.changing())
            network.module.eval()
            for what, examples in self._measured().items():
                size = min(MEASURED_AT_ONCE, examples)
                work = network.measure(what)
                recordings.record(what, size, work, changing=network.changing())

    def _measured(self) -> dict[str, int]:
        """How many examples of which sets are measured."""
        measured = {"train": self._material.examples}
        if self._material.test:
            # Input sets have test sets of their own, whose sizes may differ.
            measured["test"] = max(len(labels) for _, labels in self._material.test.values())
        return measured

    def epoch(
        self, orders: Sequence[Tensor], rates: Sequence[float], first_step: int, tick: Tick
    ) -> None:
        self.ready()
        for network, order, rate in zip(self._networks, orders, rates, strict=True):
            network.begin_epoch(order, rate, first_step)
        if self._recordings is None:
            for network in self._networks:
                for size in self._sizes:
                    network.step(size)
                    tick()
            return
        for recordings in self._recordings:
            recordings.begin()
        for size in self._sizes:
            for recordings in self._recordings:
                recordings.replay("step", size)
                tick()
        for recordings in self._recordings:
            recordings.end()

    def measure(self) -> list[Measured]:
        self.ready()
        for network in self._networks:
            network.begin_measuring()
        for what, examples in self._measured().items():
            for network in self._networks:
                network.restart()
            self._cover(what, examples)
        tallies = [network.tallies() for network in self._networks]
        return read(
            [train for train, _ in tallies],
            [test for _, test in tallies] if self._material.test else None,
            examples=self._material.examples,
            marked=self._material.marked is not None,
        )

    def _cover(self, what: str, examples: int) -> None:
        """Run measurements over `examples` examples for all networks."""
        size = min(MEASURED_AT_ONCE, examples)
        batches = -(-examples // size)
        if self._recordings is None:
            for network in self._networks:
                for _ in range(batches):
                    network.measure(what)(size)
            return
        for recordings in self._recordings:
            recordings.begin()
        for _ in range(batches):
            for recordings in self._recordings:
                recordings.replay(what, size)
        for recordings in self._recordings:
            recordings.end()

    def keep(self, kept: Sequence[int]) -> None:
        self._networks = [self._networks[number] for number in kept]
        if self._recordings is not None:
            self._recordings = [self._recordings[number] for number in kept]

    def tensors(self, number: int) -> dict[str, Tensor]:
        return self._networks[number].tensors()


def precision(settings: ManySettings, device: torch.device) -> torch.autocast:
    """The arithmetic of forward passes."""
    return torch.autocast(
        device.type, dtype=torch.bfloat16, enabled=settings.precision == "bfloat16"
    )
