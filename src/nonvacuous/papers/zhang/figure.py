"""Figure 1 of the randomization paper: learning curves, time to fit and test error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nonvacuous.papers.zhang.networks import Cell, CellResult, GroupTiming, Point
from nonvacuous.papers.zhang.published import NEARLY
from nonvacuous.papers.zhang.settings import FigureSettings
from nonvacuous.papers.zhang.training import NetworksStudy
from nonvacuous.randomization.intervals import Interval, exact_rate
from nonvacuous.report.study import StudyPage, Table
from nonvacuous.study.study import Context, Finished

#: Figure 1a: everything that the paper did to the data.
CURVES = ("true", "random-labels", "shuffled-pixels", "random-pixels", "gaussian")
CONFIDENCE = 0.95
#: How near to guessing the test error must be where all labels were redrawn.
CHANCE_TOLERANCE = 0.01


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
            "settings": self.settings.record(),
            "summary": self.summary,
            "sweep": {
                network: [point.to_dict() for point in points]
                for network, points in self.sweep.items()
            },
            "curves": {name: result.to_dict() for name, result in self.curves.items()},
            "timings": [timing.to_dict() for timing in self.timings],
        }


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


class Figure1(NetworksStudy[FigureSettings, FigureResult]):
    """Train networks with more and more labels redrawn, and draw the figure's three panels.

    Needs CIFAR-10 and a GPU. On two processor cores: --only mlp-1x512 --examples 5000, or --quick.
    """

    name = "zhang-figure-1"
    settings = FigureSettings

    def networks(self, settings: FigureSettings) -> Sequence[Cell]:
        return figure_cells(settings)

    def result(
        self, settings: FigureSettings, finished: Sequence[Finished], at: Context
    ) -> FigureResult:
        found = self.trained(settings, finished)
        return FigureResult(
            settings,
            curves={name: found[Cell(settings.curves_of, name)] for name in CURVES},
            sweep={network: _sweep(settings, network, found) for network in settings.networks},
            timings=self.timings(finished),
        )

    def page(self, result: FigureResult, command: str) -> StudyPage:
        from nonvacuous.papers.zhang.figure_page import page

        return page(result)

    def tables(self, result: FigureResult) -> Sequence[Table]:
        from nonvacuous.papers.zhang.figure_page import curves_table, sweep_table

        return sweep_table(result), curves_table(result)

    def files(self, result: FigureResult, page: StudyPage | None) -> Mapping[str, str]:
        from nonvacuous.papers.zhang.figure_page import PANELS

        assert page is not None
        # The page shows c first: the answer, then the time that it takes, then how it goes.
        shown = [figure.svg for section in page.sections for figure in section.figures]
        return {**super().files(result, page), **dict(zip(PANELS, shown, strict=True))}

    def next_command(self, result: FigureResult, folder: Path) -> str:
        return "nonvacuous reproduce zhang-regularization --quick"


STUDY = Figure1()
