"""A two-phase run in a folder, for tests that kill it.

Writes `result.safetensors` at the end. Uses everything that has state: dropout, batch
normalization, early stopping, momentum, Adam, a free parameter that follows its best value.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn

from nonvacuous.data.examples import Examples
from nonvacuous.distributions.gaussian import DiagonalGaussian
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.progress import Progress
from nonvacuous.training.erm import TrainSettings, train
from nonvacuous.training.events import EventLog
from nonvacuous.training.loop import Records
from nonvacuous.training.posterior import PosteriorSettings, train_posterior


def build() -> tuple[nn.Module, Examples]:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
        )
    labels = torch.arange(90) % 3
    inputs = 2.0 * torch.eye(4)[labels] + 0.7 * torch.randn(90, 4, generator=generator)
    return model, Examples(inputs, labels, ("a", "b", "c"), "blobs")


def run(folder: Path, *, epochs: int = 12, progress: Progress | None = None) -> None:
    """Train a prior, then a posterior, each with its own checkpoint in `folder`."""
    model, examples = build()
    trained = train(
        model,
        examples.subset(range(30)),
        TrainSettings(patience=5, epochs=epochs, batch_size=7, learning_rate=0.02),
        validation=examples.subset(range(30, 45)),
        records=Records(
            checkpoint=folder / "prior.checkpoint",
            events=EventLog(folder / "events.jsonl"),
            progress=progress,
        ),
    )
    prior = DiagonalGaussian.around(trained.module, scale=0.1)
    posterior = train_posterior(
        trained.module,
        prior,
        examples,
        PosteriorSettings(
            bound_examples=45,
            objective="catoni",
            epochs=epochs,
            batch_size=16,
            optimizer="adam",
            momentum=0.9,
            learning_rate=0.003,
            schedule="cosine",
            warm_up_epochs=2,
        ),
        records=Records(
            checkpoint=folder / "posterior.checkpoint",
            events=EventLog(folder / "events.jsonl"),
            progress=progress,
        ),
    )
    tensors = {f"module.{name}": value for name, value in trained.module.state_dict().items()}
    tensors |= {f"means.{name}": value for name, value in posterior.posterior.means.items()}
    tensors |= {f"scales.{name}": value for name, value in posterior.posterior.scales.items()}
    save_tensors(folder / "result.safetensors", tensors, kind="result")


def run_stretched(folder: Path, pause: float) -> None:
    """The pause only stretches the run, so that a kill lands in its middle."""
    torch.set_num_threads(1)
    run(folder, progress=lambda *_: time.sleep(pause))
