"""Training a convolutional network on crops and reflections, as image classifiers usually are.

The library's own training sees every example as it is, because priors and posteriors must; this
network is only certified after the fact, so it may be trained in any way.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from nonvacuous.data.examples import Examples
from nonvacuous.distributions.storage import tensors_digest
from nonvacuous.progress import Progress
from nonvacuous.seeds import derived_seed
from nonvacuous.training.loop import Records, Schedule, run_epochs
from nonvacuous.training.optimizers import optimizer_tensors, restore_optimizer


@dataclass(frozen=True)
class CropTraining:
    """How long, how fast, and on which versions of the images.

    warm_up       the part of all steps in which the learning rate rises from zero; then it falls
                  to zero along half a cosine
    padding       crops start anywhere up to so many pixels off
    reflections   whether every other crop is reflected left to right
    """

    epochs: int
    learning_rate: float
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warm_up: float = 0.1
    padding: int = 4
    reflections: bool = True
    seed: int = 0

    def rate(self, done: float) -> float:
        """The learning rate after this part of all steps."""
        if done < self.warm_up:
            return self.learning_rate * done / self.warm_up
        left = (1 - done) / (1 - self.warm_up)
        return self.learning_rate * (1 - math.cos(math.pi * left)) / 2


def train_on_crops(
    model: nn.Module,
    examples: Examples,
    training: CropTraining,
    *,
    device: torch.device,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> nn.Module:
    """A trained copy of the model, in evaluation mode on the device.

    On a GPU the products run in bfloat16 with channels last; the weights stay in float32.
    """
    learner = _Learner(copy.deepcopy(model).to(device), examples, training, device)
    records = Records(checkpoint=checkpoint, progress=progress)
    configuration = {}
    if checkpoint is not None:
        configuration = {
            **asdict(training),
            "kind": "training on crops",
            "architecture": str(model),
            "initial_weights": tensors_digest(dict(model.named_parameters())),
            "examples": examples.content_hash(),
        }
    run_epochs(
        learner,
        Schedule(
            "training the convolutional network",
            len(examples),
            training.batch_size,
            training.epochs,
            training.seed,
            device,
        ),
        records,
        configuration=configuration,
        advice=f"Try a smaller learning rate (now {training.learning_rate:g}).",
    )
    return learner.module.to(memory_format=torch.contiguous_format).eval()  # type: ignore[no-any-return]


def cropped(
    padded: Tensor,
    batch: Tensor,
    corners: Tensor,
    reflected: Tensor,
    size: tuple[int, int],
) -> Tensor:
    """One crop of each image of a batch, channels last in memory.

    padded      (images, channels, height, width), wider than a crop
    batch       which images
    corners     (2, batch) top rows and left columns of the crops
    reflected   which crops to reflect left to right
    """
    down, across = (torch.arange(length, device=padded.device) for length in size)
    rows = corners[0][:, None] + down
    across = torch.where(reflected[:, None], across.flip(0), across)
    columns = corners[1][:, None] + across
    found = padded[batch[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return found.permute(0, 3, 1, 2)


class _Learner:
    """The state of the training; see `nonvacuous.training.loop.Learner`."""

    def __init__(
        self, module: nn.Module, examples: Examples, training: CropTraining, device: torch.device
    ) -> None:
        self._fast = device.type == "cuda"
        layout = torch.channels_last if self._fast else torch.preserve_format
        self.module = module.to(memory_format=layout).train()  # type: ignore[call-overload]
        self._training, self._device = training, device
        height, width = examples.example_shape[1:]
        self._size = (height, width)
        self._padded = pad(examples.inputs.to(device), (training.padding,) * 4)
        self._labels = examples.labels.to(device)
        self._generator = torch.Generator(device=device)
        self._steps = -(-len(examples) // training.batch_size)
        self._optimizer = torch.optim.SGD(
            self.module.parameters(),
            lr=training.learning_rate,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
            nesterov=True,
        )
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.facts: dict[str, Any] = {}

    def tensors(self) -> dict[str, Tensor]:
        kept = {f"module.{name}": t.detach() for name, t in self.module.named_parameters()}
        return kept | optimizer_tensors(self._optimizer) | {"loss_sum": self._loss_sum}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.module.named_parameters():
                parameter.copy_(tensors[f"module.{name}"])
            self._loss_sum.copy_(tensors["loss_sum"])
        restore_optimizer(self._optimizer, tensors)

    def step(self, *, epoch: int, step: int, batch: Tensor) -> None:
        training = self._training
        done = (epoch * self._steps + step) / (self._steps * training.epochs)
        for group in self._optimizer.param_groups:
            group["lr"] = training.rate(done)
        self._generator.manual_seed(derived_seed(training.seed, "crops", epoch, step))
        options: dict[str, Any] = {"generator": self._generator, "device": self._device}
        corners = torch.randint(2 * training.padding + 1, (2, len(batch)), **options)
        reflected = torch.rand(len(batch), **options) < (0.5 if training.reflections else 0.0)
        inputs = cropped(self._padded, batch, corners, reflected, self._size)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._fast):
            loss = cross_entropy(self.module(inputs), self._labels[batch])
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        self._loss_sum += loss.detach() * len(batch)

    def end_epoch(self, epoch: int) -> tuple[dict[str, Any], bool]:
        loss = self._loss_sum.item() / len(self._labels)
        self._loss_sum.zero_()
        return {"epoch": epoch + 1, "loss": loss}, False
