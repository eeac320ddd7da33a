"""Small worlds for the study: clouds of points that a small network learns in a moment."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from nonvacuous.data import Dataset, Examples
from nonvacuous.randomization import StudySettings

#: Ends in a second or two.
SMALL = StudySettings(
    conditions=("true", "partial:0.5", "random-labels", "shuffled-pixels", "gaussian"),
    seeds=3,
    permutations=19,
    sign_vectors=2,
    certificates=False,
    epochs=80,
    rate_decay=0.97,
    batch_size=32,
)


def clouds(
    train: int = 120, test: int = 90, *, classes: int = 5, dimensions: int = 12, seed: int = 0
) -> Dataset:
    """Clouds around random centers, one for each class."""
    generator = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(classes, dimensions)) * 2
    parts = []
    for name, count in (("clouds", train), ("clouds (test)", test)):
        labels = generator.integers(0, classes, count)
        inputs = centers[labels] + generator.normal(size=(count, dimensions))
        parts.append(
            Examples(
                torch.from_numpy(inputs.astype(np.float32)),
                torch.from_numpy(labels),
                tuple(map(str, range(classes))),
                name,
            )
        )
    return Dataset(parts[0], parts[1])


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))


def fit(model, inputs, labels, *, seed, epochs=25):
    """An honest training function that yields the model after every epoch."""
    torch.manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(labels)).split(32):
            loss = cross_entropy(model(inputs[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield model


def fit_quietly(model, inputs, labels, *, seed):
    """The same, returning the model at the end."""
    for trained in fit(model, inputs, labels, seed=seed):
        model = trained
    return model
