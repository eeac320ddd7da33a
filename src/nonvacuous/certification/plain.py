"""Plain training by its settings: the same for a learned prior and for the held-out twin."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from nonvacuous.certification.training import PlainTraining
from nonvacuous.data import Examples
from nonvacuous.progress import Progress
from nonvacuous.training import EventLog, train


def train_plainly(
    model: nn.Module,
    examples: Examples,
    settings: PlainTraining,
    *,
    seed: int,
    device: torch.device,
    phase: str,
    checkpoint: Path | None,
    validation: Examples | None = None,
    events: EventLog | None = None,
    progress: Progress | None = None,
    tensorboard: str | Path | None = None,
) -> nn.Module:
    """A trained copy of the network; patience needs validation examples, and is off without."""
    return train(
        model,
        examples,
        validation=validation,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        schedule=settings.schedule,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        augmentation=settings.augmentation,
        label_smoothing=settings.label_smoothing,
        averaging=settings.averaging,
        half_precision=settings.half_precision,
        patience=None if validation is None else settings.patience,
        seed=seed,
        device=device,
        phase=phase,
        checkpoint=checkpoint,
        events=events,
        progress=progress,
        tensorboard=tensorboard,
    ).module
