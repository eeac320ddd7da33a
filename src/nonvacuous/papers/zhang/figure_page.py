"""The page of Figure 1: learning curves, time to fit, test error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nonvacuous.papers.zhang.networks import CellResult, corruption_title, network_title
from nonvacuous.papers.zhang.pages import (
    MISSING,
    footer,
    percent,
    time_table,
    training_section,
    yes_or_no,
)
from nonvacuous.papers.zhang.published import NEARLY, PAPER, STEPS_TO_FIT
from nonvacuous.report.study import Figure, Section, StudyPage, Table

if TYPE_CHECKING:
    from nonvacuous.papers.zhang.figure import FigureResult, SweepPoint

#: The loss at which the independent reproduction of panel a stopped its clock.
SMALL_LOSS = 0.01
#: The files of the panels, in the order in which the page shows them.
PANELS = ("figure-1c.svg", "figure-1b.svg", "figure-1a.svg")


def panels(result: FigureResult) -> dict[str, str]:
    """The three panels as SVG, by the names of their files."""
    from nonvacuous.report.plots import Series, lines

    losses = [
        Series(
            corruption_title(name),
            [point.steps / 1000 for point in cell.history if point.loss is not None],
            [point.loss for point in cell.history if point.loss is not None],
        )
        for name, cell in result.curves.items()
    ]
    slow, errors = [], []
    for network, points in result.sweep.items():
        there = [point for point in points if point.slowdown is not None]
        title = network_title(network)
        slow.append(Series(title, [p.level for p in there], [p.slowdown or 0.0 for p in there]))
        errors.append(
            Series(
                title,
                [point.level for point in points],
                [100 * point.test_error.value for point in points],
                low=[100 * point.test_error.low for point in points],
                high=[100 * point.test_error.high for point in points],
            )
        )
    return {
        "figure-1a.svg": lines(
            losses,
            title=f"a: learning curves of {network_title(result.settings.curves_of)}",
            x_label="thousand steps",
            y_label="training loss",
            lowest=0.0,
        ),
        "figure-1b.svg": lines(
            slow,
            title="b: time to fit",
            x_label="share of labels redrawn",
            y_label=f"epochs to {NEARLY:g} %, true labels = 1",
            lowest=0.0,
        ),
        "figure-1c.svg": lines(
            errors,
            title="c: test error when the labels are fitted",
            x_label="share of labels redrawn",
            y_label="test error, %",
            lowest=0.0,
            highest=100.0,
            level=("guessing", 100 * (1 - 1 / result.classes)),
        ),
    }


def sweep_table(result: FigureResult) -> Table:
    """Panels b and c in numbers: percent, and epochs to fit so much of the training labels."""
    rows = tuple(
        (network_title(network), *_sweep_row(point))
        for network, points in result.sweep.items()
        for point in points
    )
    headings = (
        "network", "share", "train", "test error", "95 % interval",
        f"to {NEARLY:g} %", "to 100 %", "slower",
    )  # fmt: skip
    return Table(headings, rows, caption=verdict(result))


def _sweep_row(point: SweepPoint) -> tuple[str, ...]:
    error = point.test_error
    nearly, fitted = point.result.reached(NEARLY), point.result.fitted
    return (
        f"{point.level:g}",
        percent(point.result.train_accuracy),
        percent(100 * error.value),
        f"{100 * error.low:.2f} to {100 * error.high:.2f}",
        MISSING if nearly is None else str(nearly.epoch),
        MISSING if fitted is None else str(fitted.epoch),
        MISSING if point.slowdown is None else f"{point.slowdown:.1f}",
    )


def curves_table(result: FigureResult) -> Table:
    """Panel a in numbers, beside the steps that an independent reproduction needed."""
    settings = result.settings
    comparable = settings.data == "cifar10" and settings.curves_of == "inception"
    headings = ["data", "train", "test", f"steps to loss {SMALL_LOSS:g}"]
    headings += ["an independent reproduction"] * comparable
    rows = []
    for name, cell in result.curves.items():
        row = [
            corruption_title(name),
            percent(cell.train_accuracy),
            percent(cell.test_accuracy),
            _thousands(_steps_to_small_loss(cell)),
        ]
        rows.append(tuple(row + [_thousands(STEPS_TO_FIT.get(name))] * comparable))
    return Table(tuple(headings), tuple(rows), caption="Accuracies in percent.")


def _steps_to_small_loss(cell: CellResult) -> int | None:
    return next(
        (
            point.steps
            for point in cell.history
            if point.loss is not None and point.loss <= SMALL_LOSS
        ),
        None,
    )


def _thousands(steps: int | None) -> str:
    return MISSING if steps is None else f"{steps:,}"


def verdict(result: FigureResult) -> str:
    """Whether the error rises and ends at guessing, network by network."""
    parts = [
        f"{network_title(network)}: rises within the intervals {yes_or_no(result.rises(network))}, "
        f"ends at guessing "
        f"{yes_or_no(result.ends_at_chance(network))}"
        for network in result.sweep
    ]
    return "; ".join(parts) + "."


def page(result: FigureResult) -> StudyPage:
    """The page of the figure."""
    a, b, c = (Figure(svg) for svg in panels(result).values())
    return StudyPage(
        title="From true labels to random ones",
        question="What happens as more and more labels are replaced by random ones?",
        lead=_lead(result),
        badges=(
            f"{len(result.settings.levels)} levels × {len(result.sweep)} networks",
            f"{sum(timing.seconds for timing in result.timings):.0f} seconds",
            PAPER,
        ),
        sections=(
            Section(
                "Does the test error rise smoothly?",
                (
                    "Test error when all training labels were first right, else at the end. Then "
                    f"the epochs until {NEARLY:g} % and 100 % of the training labels are right, "
                    "and how many times slower that is than with true labels.",
                ),
                figures=(c,),
                tables=(sweep_table(result),),
            ),
            Section("Does fitting take longer?", figures=(b,)),
            Section(
                "How does training go on each kind of data?",
                (
                    "Shuffled pixels: one order for all images. Random pixels: an order for each. "
                    "Gaussian: noise with the mean and variance of each channel.",
                ),
                figures=(a,),
                tables=(curves_table(result),),
            ),
            Section("How long did it take?", tables=(time_table(result.timings),)),
            training_section(result.settings),
        ),
        footer=footer(result.settings, "zhang-figure-1"),
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
