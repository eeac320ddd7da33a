"""A tiny image data set, tiny settings, and made-up results for the randomization paper's tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from nonvacuous.experiments.zhang_cells import Cell, CellResult, Point
from nonvacuous.experiments.zhang_settings import Recipe, ZhangSettings

EXAMPLES, TEST = 60, 30


def write_images(folder: Path) -> Path:
    """Three classes of 10 x 10 images, told apart by where they are bright."""
    generator = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", EXAMPLES), ("test", TEST)):
        labels = np.arange(count) % 3
        inputs = generator.integers(0, 80, (count, 3, 10, 10))
        for index, label in enumerate(labels):
            inputs[index, label, 3:7, 3:7] += 150
        arrays |= {f"x_{part}": inputs.astype(np.uint8), f"y_{part}": labels}
    path = folder / "images.npz"
    np.savez(path, **arrays)
    return path


def tiny(data: str | Path, **changes: object) -> ZhangSettings:
    """Two kinds of networks on windows of 8 pixels, two epochs each."""
    recipe = Recipe("mlp:8", epochs=2, learning_rate=0.05, precision="float32", measure_every=1)
    settings = ZhangSettings(
        data=str(data),
        crop=8,
        batch_size=20,
        networks={"small": recipe, "convolutional": replace(recipe, model="cnn:3")},
        solo_epochs=0,
    )
    return replace(settings, **changes)


def made_up(
    cell: Cell,
    errors: tuple[tuple[int, int], ...],
    *,
    examples: int = 1000,
    settings: ZhangSettings | None = None,
) -> CellResult:
    """A result with these (training errors, test errors), measured every second epoch."""
    history = tuple(
        Point(2 * place, 20 * place, wrong / examples, wrong, None, None, test)
        for place, (wrong, test) in enumerate(errors, start=1)
    )
    record = (settings or ZhangSettings()).training_record(cell)
    return CellResult(
        cell, 10, examples, 0, examples, history, "epochs", record, "matrices", 1, 1.0, "cpu"
    )
