"""Plain training by a recipe: the same for a learned prior and for the held-out twin."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from nonvacuous.certification.recipe import PlainRecipe
from nonvacuous.data import Examples
from nonvacuous.training import EventLog, Progress, train


def train_plainly(
    model: nn.Module,
    examples: Examples,
    recipe: PlainRecipe,
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
        epochs=recipe.epochs,
        batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        schedule=recipe.schedule,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        patience=None if validation is None else recipe.patience,
        seed=seed,
        device=device,
        phase=phase,
        checkpoint=checkpoint,
        events=events,
        progress=progress,
        tensorboard=tensorboard,
    ).module
