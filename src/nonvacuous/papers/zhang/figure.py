"""Figure 1 of the randomization paper: learning curves, time to fit and test error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nonvacuous.papers.zhang import networks
from nonvacuous.papers.zhang.networks import Cell, CellResult, GroupTiming, network_title
from nonvacuous.papers.zhang.settings import FigureSettings
from nonvacuous.papers.zhang.training import NetworksStudy, percent, yes_or_no
from nonvacuous.randomization.intervals import Interval, exact_rate
from nonvacuous.report.study import Figure, Section, StudyPage, Table, or_dash
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

    def to_dict(self) -> dict[str, Any]:
        nearly = self.result.reached(networks.NEARLY)
        return {
            "level": self.level,
            "train_accuracy": self.result.train_accuracy,
            "test_error": self.test_error.value,
            "low": self.test_error.low,
            "high": self.test_error.high,
            "fit_epoch": self.result.fit_epoch,
            "epoch_at_99": None if nearly is None else nearly.epoch,
            "slowdown": self.slowdown,
            "key": self.result.key,
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
    classes: int

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


def corruption_at(level: float) -> str:
    """The corruption that redraws this share of the labels.

    >>> [corruption_at(level) for level in (0.0, 0.4, 1.0)]
    ['true', 'partial:0.4', 'random-labels']
    """
    return {0.0: "true", 1.0: "random-labels"}.get(level, f"partial:{level:g}")


def _sweep(
    settings: FigureSettings, network: str, trained: Mapping[Cell, CellResult]
) -> tuple[SweepPoint, ...]:
    points = []
    true = trained[Cell(network)].reached(networks.NEARLY)
    for level in settings.levels:
        result = trained[Cell(network, corruption_at(level))]
        there = result.reached(networks.NEARLY)
        slowdown = there.epoch / true.epoch if there and true else None
        wrong = result.at_fit.test_errors
        error = exact_rate(wrong, result.test_examples, confidence=CONFIDENCE)
        points.append(SweepPoint(level, result, error, slowdown))
    return tuple(points)


#: The loss at which the independent reproduction of panel a stopped its clock.
SMALL_LOSS = 0.01


def sweep_table(result: FigureResult) -> Table:
    """Panels b and c in numbers: percent, and epochs to fit so much of the training labels."""
    rows = []
    for network, points in result.sweep.items():
        for point in points:
            error, nearly = point.test_error, point.result.reached(networks.NEARLY)
            row = {
                "network": network_title(network),
                "share": f"{point.level:g}",
                "train": percent(point.result.train_accuracy),
                "test error": percent(100 * error.value),
                "95 % interval": f"{100 * error.low:.2f} to {100 * error.high:.2f}",
                f"to {networks.NEARLY:g} %": or_dash(nearly.epoch if nearly else None),
                "to 100 %": or_dash(point.result.fit_epoch),
                "slower": or_dash(point.slowdown, ".1f"),
            }
            rows.append(row)
    return Table.of(rows, verdict(result))


def curves_table(result: FigureResult) -> Table:
    """Panel a in numbers, beside the steps that an independent reproduction needed."""
    settings = result.settings
    comparable = settings.data == "cifar10" and settings.curves_of == "inception"
    rows = []
    for name, cell in result.curves.items():
        small = (p.steps for p in cell.history if p.loss is not None and p.loss <= SMALL_LOSS)
        row = {
            "data": networks.corruption_title(name),
            "train": percent(cell.train_accuracy),
            "test": percent(cell.test_accuracy),
            f"steps to loss {SMALL_LOSS:g}": or_dash(next(small, None), ","),
        }
        if comparable:
            row["an independent reproduction"] = or_dash(networks.STEPS_TO_FIT.get(name), ",")
        rows.append(row)
    return Table.of(rows, "Accuracies in percent.")


def verdict(result: FigureResult) -> str:
    """Whether the error rises and ends at guessing, network by network."""
    parts = (
        f"{network_title(network)}: rises within the intervals {yes_or_no(summary['rises'])}, "
        f"ends at guessing {yes_or_no(summary['ends_at_chance'])}"
        for network, summary in result.summary.items()
    )
    return "; ".join(parts) + "."


def tables(result: FigureResult) -> tuple[Table, Table]:
    return sweep_table(result), curves_table(result)


def page(result: FigureResult, command: str) -> StudyPage:
    from nonvacuous.report.plots import Series, lines
    from nonvacuous.studies.randomization_figures import banded

    def known(label: str, points: Iterable[tuple[float, float | None]]) -> Series:
        there = [(x, y) for x, y in points if y is not None]
        return Series(label, [x for x, _ in there], [y for _, y in there])

    sweep = {network_title(network): points for network, points in result.sweep.items()}
    c = lines(
        [banded(n, [(p.level, p.test_error) for p in sweep[n]], factor=100) for n in sweep],
        title="c: test error when the labels are fitted",
        x_label="share of labels redrawn",
        y_label="test error, %",
        lowest=0.0,
        highest=100.0,
        level=("guessing", 100 * (1 - 1 / result.classes)),
    )
    b = lines(
        [known(name, ((p.level, p.slowdown) for p in sweep[name])) for name in sweep],
        title="b: time to fit",
        x_label="share of labels redrawn",
        y_label=f"epochs to {networks.NEARLY:g} %, true labels = 1",
        lowest=0.0,
    )
    a = lines(
        [
            known(networks.corruption_title(name), ((p.steps / 1000, p.loss) for p in cell.history))
            for name, cell in result.curves.items()
        ],
        title=f"a: learning curves of {network_title(result.settings.curves_of)}",
        x_label="thousand steps",
        y_label="training loss",
        lowest=0.0,
    )
    return StudyPage(
        title="From true labels to random ones",
        question="What happens as more and more labels are replaced by random ones?",
        lead=_lead(result),
        badges=(f"{len(result.settings.levels)} levels × {len(result.sweep)} networks",),
        sections=(
            Section.of(
                "Does the test error rise smoothly?",
                "Test error when all training labels were first right, else at the end. Then "
                f"the epochs until {networks.NEARLY:g} % and 100 % of the training labels are "
                "right, and how many times slower that is than with true labels.",
                Figure(c),
                sweep_table(result),
            ),
            Section.of("Does fitting take longer?", Figure(b)),
            Section.of(
                "How does training go on each kind of data?",
                "Shuffled pixels: one order for all images. Random pixels: an order for each. "
                "Gaussian: noise with the mean and variance of each channel.",
                Figure(a),
                curves_table(result),
            ),
        ),
        footer=(command, f"seed {result.settings.seed}"),
    )


def _lead(result: FigureResult) -> str:
    starts = [points[0].test_error.value for points in result.sweep.values()]
    ends = [points[-1].test_error.value for points in result.sweep.values()]
    worst = min(entry["lowest_train_accuracy"] for entry in result.summary.values())
    smooth = all(result.rises(network) for network in result.sweep)
    return (
        f"At every level the networks get {worst:.1f} % or more of their training labels right, "
        f"while the test error goes from {_span(starts)} with true labels to {_span(ends)} with "
        "random ones" + (", without ever falling on the way." if smooth else ", not steadily.")
    )


def _span(shares: Sequence[float]) -> str:
    low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low}-{high} %"


class Figure1(NetworksStudy[FigureSettings, FigureResult]):
    """Train networks with more and more labels redrawn, and draw the figure's three panels.

    Needs CIFAR-10 and a GPU. On two processor cores: --only mlp-1x512 --examples 5000, or --quick.
    """

    name = "zhang-figure-1"
    settings = FigureSettings
    pages = __name__
    then = "nonvacuous reproduce zhang-regularization --quick"

    def networks(self, settings: FigureSettings) -> Sequence[Cell]:
        levels = [corruption_at(level) for level in settings.levels]
        sweep = [Cell(network, labels) for network in settings.networks for labels in levels]
        curves = [Cell(settings.curves_of, corruption) for corruption in CURVES]
        return tuple(dict.fromkeys(sweep + curves))

    def result(self, settings: FigureSettings, finished: Finished, at: Context) -> FigureResult:
        trained = self.trained(settings, finished)
        return FigureResult(
            settings,
            curves={name: trained[Cell(settings.curves_of, name)] for name in CURVES},
            sweep={network: _sweep(settings, network, trained) for network in settings.networks},
            timings=self.timings(finished),
            classes=at.dataset(settings.data).train.classes,
        )

    def files(self, result: FigureResult, page: StudyPage) -> Mapping[str, str]:
        drawn = [figure.svg for section in page.sections for figure in section.figures]
        named = {f"figure-1{panel}.svg": svg for panel, svg in zip("cba", drawn, strict=True)}
        return {**super().files(result, page), **named}


STUDY = Figure1()
