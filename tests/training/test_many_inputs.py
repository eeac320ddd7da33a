"""What train_many refuses, and what it says then."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from nonvacuous.errors import BadInput
from nonvacuous.training.many_jobs import Job, ManySettings
from tests.training.many_worlds import convolutional, images, labelings, perceptron, train_many


def attempt(**changes: Any) -> None:
    arguments: dict[str, Any] = {
        "build": perceptron,
        "inputs": [images()],
        "labels": labelings(),
        "jobs": [Job()],
        "settings": ManySettings(epochs=1),
        "device": "cpu",
    }
    train_many(**{**arguments, **changes})


SHARED = perceptron(0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": [images(50)]}, "do not belong together"),
        ({"labels": labelings() + 1}, "from 1 to 4, but the model has 4 outputs"),
        ({"inputs": [images().flatten(1)], "jobs": [Job(augmentation="crop")]}, "needs images"),
        ({"crop_size": 9}, "at least as large"),
        ({"crop_size": 6}, "cannot take inputs as cropped of shape"),
        ({"marked": torch.zeros(90, dtype=torch.bool)}, "do not belong together"),
        ({"test": []}, "one test per input set"),
        ({"test": [(images(5), labelings(6)[0])]}, "one label per test input"),
        ({"method": "magic"}, "method is 'magic'"),
        ({"method": "streams"}, "needs a CUDA device"),
        ({"build": convolutional, "method": "matrices"}, "Use method=\"auto\""),
        ({"build": lambda seed: SHARED, "jobs": [Job(), Job(seed=1)]}, "returned before"),
        ({"build": lambda seed: None}, "must return a new"),
        (
            {
                "build": lambda seed: nn.Sequential(nn.Flatten(), nn.Linear(192, 4 + seed)),
                "jobs": [Job(), Job(seed=1)],
            },
            "another architecture",
        ),
        (
            {
                "build": lambda seed: nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()),
                "jobs": [Job(dropout=0.5)],
            },
            "nothing to drop",
        ),
        (
            {"build": lambda seed: nn.Sequential(perceptron(seed), nn.AlphaDropout())},
            "AlphaDropout",
        ),
    ],
)  # fmt: skip
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        attempt(**changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"dropout": 1.0}, "dropout"),
        ({"augmentation": "flip"}, "'none', 'crop', 'full'"),
    ],
)
def test_a_job_refuses_what_it_cannot_be(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Job(**change)


def test_a_seed_may_be_as_large_as_derived_ones_are() -> None:
    assert Job(seed=2**63 - 1).seed == 2**63 - 1


@pytest.mark.parametrize(
    "change", [{"epochs": 0}, {"precision": "half"}, {"decay": 1.5}, {"momentum": 1.0}]
)
def test_settings_refuse_what_they_cannot_be(change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(change))):
        ManySettings(**{"epochs": 1, **change})


def test_arguments_are_left_as_they_are() -> None:
    inputs, labels = images(), labelings()
    attempt(inputs=[inputs], labels=labels, build=convolutional)
    assert torch.equal(inputs, images())
    assert torch.equal(labels, labelings())
