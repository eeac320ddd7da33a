"""Small worlds for training many networks: images of noise, two labelings, two architectures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from nonvacuous import models
from nonvacuous.training import many
from nonvacuous.training.many_jobs import ManyExamples, ManyResult

SHAPE = (3, 8, 8)
CLASSES = 4


def train_many(
    build: Any, inputs: Any, labels: Tensor, jobs: Sequence[Any], **options: Any
) -> ManyResult:
    """With everything as arguments of its own, as tests like to vary it."""
    names = {field.name for field in fields(ManyExamples)}
    own = {name: options.pop(name) for name in list(options) if name in names}
    return many.train_many(build, ManyExamples(inputs, labels, **own), jobs, **options)


def images(count: int = 90, *, seed: int = 0, size: int = 8) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def labelings(count: int = 90, *, rows: int = 2, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, CLASSES, (rows, count), generator=generator)


def perceptron(seed: int) -> nn.Module:
    return models.build("mlp:24,16", SHAPE, CLASSES, seed=seed)


def plain_convolutional(seed: int) -> nn.Module:
    return models.build("cnn:6,5/7", SHAPE, CLASSES, seed=seed)


def convolutional(seed: int) -> nn.Module:
    """Convolutions with batch normalization and a dropout layer of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
            nn.MaxPool2d(2), nn.Dropout2d(0.2), nn.Conv2d(6, 6, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(24, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, CLASSES),
        )  # fmt: skip


def largest_difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Over all tensors of two states; batch counters included."""
    assert one.keys() == other.keys()
    return max(
        (tensor.double() - other[name].double()).abs().max().item() for name, tensor in one.items()
    )
