"""Pictures of the study of measures: one row per measure, best first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nonvacuous.measures.correlation_summary import Standing
from nonvacuous.report.plots import blank, finish
from nonvacuous.report.svg import COLORS, plain_settings

_ROW = 19.0


@plain_settings()
def ranking(standings: Sequence[Standing]) -> str:
    """Rank correlation over all pairs (circles) and when one thing changes (diamonds)."""
    title = "Does the measure order networks as their gaps do?"
    figure, axes = _rows(title, standings, "rank correlation")
    for shift, color, mark, name, entries in (
        (-0.17, "certificate", "o", "over all pairs (Kendall)", [s.tau for s in standings]),
        (0.17, "test", "D", "one hyper-parameter at a time (granulated)",
         [s.granulated_mean for s in standings]),
    ):  # fmt: skip
        low, values, high = np.array([(entry.low, entry.value, entry.high) for entry in entries]).T
        axes.errorbar(
            values, np.arange(len(entries)) + shift, ls="", marker=mark, ms=5, lw=1.4, label=name,
            xerr=np.maximum(0.0, [values - low, high - values]), color=COLORS[color],
        )  # fmt: skip
    axes.axvline(0.0, color=COLORS["muted"], lw=1.2, ls=(0, (1, 2)))
    axes.set_xlim(-1.02, 1.02)
    words = "; ".join(
        f"{s.name}: {s.tau.value:+.2f} over all pairs, {s.granulated_mean.value:+.2f} one at a time"
        for s in standings
    )
    return finish(figure, axes, title, words, height=_ROW * len(standings))


@plain_settings()
def by_hyperparameter(standings: Sequence[Standing], axes_shown: Sequence[str]) -> str:
    """A disk for every measure and hyper-parameter: filled above 0, hollow below, large if sure."""
    title = "Which changes does the measure predict?"
    figure, axes = _rows(title, standings, "")
    disks = [
        (column, row, entry.value)
        for row, standing in enumerate(standings)
        for column, axis in enumerate(axes_shown)
        if (entry := standing.granulated.get(axis)) is not None and abs(entry.value) >= 0.005
    ]
    hollow = {"facecolor": "none", "edgecolor": COLORS["test"], "linewidth": 1.8}
    for sign, name, style in (
        (1, "right way round", {"color": COLORS["certificate"]}),
        (-1, "inverted", hollow),
    ):
        drawn = [(x, y, 150.0 * abs(value)) for x, y, value in disks if sign * value > 0]
        columns, rows, sizes = zip(*drawn, strict=True) if drawn else ((), (), ())
        axes.scatter(columns, rows, s=sizes, label=name, **style)
    axes.set_xlim(-0.6, len(axes_shown) - 0.4)
    axes.set_xticks(range(len(axes_shown)), [spoken(name) for name in axes_shown], rotation=90)
    words = "; ".join(
        f"{s.name}: "
        + ", ".join(f"{spoken(name)} {entry.value:+.2f}" for name, entry in s.granulated.items())
        for s in standings
    )
    return finish(figure, axes, title, words, height=_ROW * len(standings))


@plain_settings()
def sign_errors(standings: Sequence[Standing]) -> str:
    """The spread of the sign-error over environments, its mean, and the worst kind of change."""
    title = "How often does it name the wrong one of two networks?"
    figure, axes = _rows(title, standings, "share of pairs that it gets wrong")
    for row, standing in enumerate(standings):
        _, low, lower, _, upper, high, _ = standing.sign_errors
        axes.plot([low, high], [row, row], color=COLORS["line"], lw=2)
        axes.plot([lower, upper], [row, row], color=COLORS["possible"], lw=7)
    rows = range(len(standings))
    means = [s.sign_error.value for s in standings]
    axes.plot(means, rows, ls="", marker="o", ms=6, color=COLORS["certificate"], label="mean")
    worst, name = [s.worst_error.value for s in standings], "worst kind of change"
    axes.plot(worst, rows, ls="", marker="X", ms=7, color=COLORS["test"], label=name)
    axes.axvline(0.5, color=COLORS["muted"], lw=1.2, ls=(0, (1, 2)), label="a coin")
    axes.set_xlim(-0.02, 1.02)
    words = "; ".join(
        f"{s.name}: {s.sign_error.value:.2f} on average, {s.worst_error.value:.2f} at worst"
        for s in standings
    )
    return finish(figure, axes, title, words, height=_ROW * len(standings))


def spoken(name: str) -> str:
    """The name of a hyper-parameter in words."""
    return name.replace("_", " ")


def _rows(title: str, standings: Sequence[Standing], x_label: str) -> tuple[Figure, Axes]:
    figure, axes = blank(title, x_label)
    axes.spines["left"].set_visible(False)
    axes.set_yticks(range(len(standings)), [standing.name for standing in standings])
    axes.tick_params(axis="y", length=0, labelcolor=COLORS["ink"])
    axes.set_ylim(len(standings) - 0.4, -0.6)
    return figure, axes
