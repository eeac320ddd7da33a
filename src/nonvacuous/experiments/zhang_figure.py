"""Figure 1 of the randomization paper: learning curves, time to fit and test error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from nonvacuous.experiments.zhang_cells import Cell, CellResult, Point
from nonvacuous.experiments.zhang_settings import FigureSettings
from nonvacuous.experiments.zhang_store import CellStore, GroupTiming
from nonvacuous.experiments.zhang_training import train_cells
from nonvacuous.randomization.intervals import Interval, exact_rate
from nonvacuous.training import Progress

#: Figure 1a: everything that the paper did to the data.
CURVES = ("true", "random-labels", "shuffled-pixels", "random-pixels", "gaussian")
CONFIDENCE = 0.95
#: How near to guessing the test error must be where all labels were redrawn.
CHANCE_TOLERANCE = 0.01
#: A network that gets so many of its labels right, in percent, has all but fitted them.
NEARLY = 99.0


@dataclass(frozen=True)
class SweepPoint:
    """A network trained with a share ``level`` of its labels redrawn.

    test_error   with its interval, measured when the labels were first fitted (else at the end)
    slowdown     epochs until 99 % of the labels are right, over those with true labels; None where
                 one of the two never got there
    """

    level: float
    result: CellResult
    test_error: Interval
    slowdown: float | None

    @property
    def measured(self) -> Point:
        """The network that the test error is of."""
        return self.result.at_fit

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for a file."""
        nearly, fitted = self.result.reached(NEARLY), self.result.fitted
        return {
            "level": self.level,
            "train_accuracy": self.result.train_accuracy,
            "test_error": self.test_error.value,
            "low": self.test_error.low,
            "high": self.test_error.high,
            "fit_epoch": None if fitted is None else fitted.epoch,
            "epoch_at_99": None if nearly is None else nearly.epoch,
            "slowdown": self.slowdown,
            "key": self.result.cell.key,
        }


@dataclass(frozen=True)
class FigureResult:
    """The three panels.

    curves   panel a: networks of one kind, by what was done to their data
    sweep    panels b and c: for each kind of network, one for each share of labels redrawn
    """

    settings: FigureSettings
    curves: Mapping[str, CellResult]
    sweep: Mapping[str, tuple[SweepPoint, ...]]
    timings: tuple[GroupTiming, ...]
    classes: int = 10

    def rises(self, network: str) -> bool:
        """Whether the test error never falls from one level to the next beyond the intervals."""
        points = self.sweep[network]
        return all(
            after.test_error.high >= before.test_error.low for before, after in pairwise(points)
        )

    def ends_at_chance(self, network: str) -> bool:
        """Whether the test error with all labels redrawn is that of guessing, within a point."""
        error, guessing = self.sweep[network][-1].test_error, 1 - 1 / self.classes
        return abs(error.value - guessing) <= CHANCE_TOLERANCE or (
            # A small test set cannot say it more precisely.
            error.low <= guessing <= error.high
        )

    @property
    def summary(self) -> dict[str, Any]:
        """What the figure shows, network by network."""
        return {
            network: {
                "rises": self.rises(network),
                "ends_at_chance": self.ends_at_chance(network),
                "lowest_train_accuracy": min(point.result.train_accuracy for point in points),
                "slowdown_at_random": points[-1].slowdown,
            }
            for network, points in self.sweep.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for a file."""
        return {
            "settings": self.settings.to_dict(),
            "summary": self.summary,
            "sweep": {
                network: [point.to_dict() for point in points]
                for network, points in self.sweep.items()
            },
            "curves": {name: result.to_dict() for name, result in self.curves.items()},
            "timings": [timing.to_dict() for timing in self.timings],
        }


def run(
    settings: FigureSettings,
    folder: str | Path,
    *,
    reuse: str | Path | None = None,
    data_dir: str | Path | None = None,
    device: torch.device | str = "cpu",
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> FigureResult:
    """Train the networks of the figure; each kind is kept as soon as it is finished.

    reuse   the folder of a table: its networks on true and on random labels are not trained again
    """
    store = CellStore(folder)
    store.open(settings, resume=resume, force=force)
    results = train_cells(
        figure_cells(settings),
        settings,
        store,
        reuse=None if reuse is None else CellStore(reuse),
        data_dir=data_dir,
        device=device,
        progress=progress,
    )
    found = {result.cell: result for result in results}
    return FigureResult(
        settings,
        curves={name: found[Cell(settings.curves_of, name)] for name in CURVES},
        sweep={network: _sweep(settings, network, found) for network in settings.networks},
        timings=store.timings(),
    )


def figure_cells(settings: FigureSettings) -> tuple[Cell, ...]:
    """Every network of the figure, once."""
    sweep = [
        Cell(network, corruption_at(level))
        for network in settings.networks
        for level in settings.levels
    ]
    curves = [Cell(settings.curves_of, corruption) for corruption in CURVES]
    return tuple(dict.fromkeys(sweep + curves))


def corruption_at(level: float) -> str:
    """The corruption that redraws this share of the labels.

    >>> [corruption_at(level) for level in (0.0, 0.4, 1.0)]
    ['true', 'partial:0.4', 'random-labels']
    """
    return {0.0: "true", 1.0: "random-labels"}.get(level, f"partial:{level:g}")


def _sweep(
    settings: FigureSettings, network: str, found: Mapping[Cell, CellResult]
) -> tuple[SweepPoint, ...]:
    first = found[Cell(network, corruption_at(settings.levels[0]))].reached(NEARLY)
    points = []
    for level in settings.levels:
        result = found[Cell(network, corruption_at(level))]
        there = result.reached(NEARLY)
        points.append(
            SweepPoint(
                level=level,
                result=result,
                test_error=exact_rate(
                    result.at_fit.test_errors, result.test_examples, confidence=CONFIDENCE
                ),
                slowdown=there.epoch / first.epoch if there and first else None,
            )
        )
    return tuple(points)
