"""A tiny image data set, tiny settings, and made-up results for the randomization paper's tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from pydantic import Field

from nonvacuous.papers.zhang.networks import Cell, CellResult, Point
from nonvacuous.papers.zhang.settings import (
    Recipe,
    RegularizationSettings,
    TableSettings,
    ZhangSettings,
)
from nonvacuous.papers.zhang.training import NetworksStudy
from nonvacuous.study.running import Surroundings, run_study

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


def tiny(data: str | Path, **changes: object) -> AskedSettings:
    """Two kinds of networks on windows of 8 pixels, two epochs each."""
    recipe = Recipe(
        model="mlp:8", epochs=2, learning_rate=0.05, precision="float32", measure_every=1
    )
    networks = {"small": recipe, "convolutional": recipe.model_copy(update={"model": "cnn:3"})}
    settings = AskedSettings(data=str(data), crop=8, batch_size=20, networks=networks)
    return settings.changed(**changes)


def in_table(settings: ZhangSettings, **changes: object) -> TableSettings:
    """The same settings for the table."""
    known = {name: value for name, value in dict(settings).items() if name in SHARED}
    return TableSettings(**known, solo_epochs=0).changed(**changes)


SHARED = ("data", "crop", "batch_size", "networks")


class AskedSettings(RegularizationSettings):
    """Settings that say themselves which networks are asked for."""

    asked: tuple[Cell, ...] = Field((), exclude=True)


class Asked(NetworksStudy[AskedSettings, Mapping[Cell, CellResult]]):
    """Nothing but the networks."""

    name = "asked"
    settings = AskedSettings

    def networks(self, settings):
        return settings.asked

    def result(self, settings, finished, at):
        return self.trained(settings, finished)

    def page(self, result, command):
        raise AssertionError("nobody asks for this page")

    def tables(self, result):
        return ()


STUDY = Asked()


def train_cells(cells, settings, folder, *, progress=None, **around) -> tuple[CellResult, ...]:
    """The results of these networks, in their order."""
    found = run_study(
        STUDY,
        settings.changed(asked=tuple(cells)),
        folder,
        surroundings=Surroundings(**around),
        progress=progress,
    )
    return tuple(found[cell] for cell in cells)


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
    return CellResult(
        cell=cell,
        parameters=10,
        examples=examples,
        redrawn=0,
        test_examples=examples,
        history=history,
        stopped="epochs",
        training=(settings or ZhangSettings()).training_record(cell),
        method="matrices",
        together=1,
        seconds=1.0,
        device="cpu",
    )
