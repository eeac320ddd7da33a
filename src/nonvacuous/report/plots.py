"""Pictures of a study: lines, bars, points and histograms in the look of the pages.

Every function returns an ``<svg>`` element. Series differ by dash and mark as well as by color, the
same input gives the same text, and the words for readers who cannot see it are written along.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nonvacuous.report.svg import COLORS, element, plain_settings

#: Color, dash and mark of the series, in their order: the second round of colors has other dashes.
_STYLES = tuple(
    (COLORS[role], dash, mark)
    for dash, marks in (("-", "ov^sDp"), ((0, (4, 2)), "Pv<hX*"))
    for role, mark in zip(
        ("certificate", "test", "twin", "guessing", "training", "muted"), marks, strict=True
    )
)
_WIDTH, _HEIGHT = 640.0, 300.0
_FEW = 25


@dataclass(frozen=True)
class Series:
    """One line or cloud of points. ``low`` and ``high`` draw an interval around each value."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None

    def told(self) -> str:
        """The course in words."""
        if not len(self.y):
            return f"{self.label}: nothing"
        return f"{self.label}: from {self.y[0]:.4g} to {self.y[-1]:.4g}"


@plain_settings()
def lines(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    lowest: float | None = None,
    highest: float | None = None,
    level: tuple[str, float] | None = None,
) -> str:
    """Curves. ``level`` is a named horizontal line, such as ("guessing", 0.9)."""
    figure, axes = _axes(title, x_label, y_label)
    for entry, (color, dash, mark) in zip(series, _styles(len(series)), strict=True):
        few = len(entry.x) <= _FEW
        axes.plot(
            entry.x, entry.y, color=color, ls=dash, lw=1.8, marker=mark if few else "", ms=5,
            label=entry.label,
        )  # fmt: skip
        if entry.low is not None and entry.high is not None:
            axes.fill_between(entry.x, entry.low, entry.high, color=color, alpha=0.16, lw=0)
    if level is not None:
        axes.axhline(level[1], color=COLORS["muted"], lw=1, ls=(0, (1, 2)), label=level[0])
    _scales(axes, log_x, log_y)
    axes.set_ylim(bottom=lowest, top=highest)
    return _finish(figure, axes, title, "; ".join(entry.told() for entry in series))


@plain_settings()
def scatter(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """Points that no line joins."""
    figure, axes = _axes(title, x_label, y_label)
    for entry, (color, _, mark) in zip(series, _styles(len(series)), strict=True):
        axes.plot(entry.x, entry.y, color=color, ls="", marker=mark, ms=4.5, label=entry.label)
    _scales(axes, log_x, log_y)
    told = "; ".join(f"{entry.label}: {len(entry.x)} points" for entry in series)
    return _finish(figure, axes, title, told)


@plain_settings()
def bars(
    labels: Sequence[str],
    groups: Mapping[str, Sequence[float]],
    *,
    title: str,
    x_label: str,
    low: Mapping[str, Sequence[float]] | None = None,
    high: Mapping[str, Sequence[float]] | None = None,
    log: bool = False,
    level: tuple[str, float] | None = None,
) -> str:
    """Horizontal bars, one for each label and group, with room for long names."""
    height = 76.0 + len(labels) * (12.0 + 13.0 * len(groups))
    figure, axes = _axes(title, x_label, "", height=height)
    thickness = 0.8 / max(len(groups), 1)
    # Hatching tells the groups apart where colors cannot.
    hatches = ("", "////", "....", "xxxx", "----", "++++")
    for number, ((name, values), (color, _, _)) in enumerate(
        zip(groups.items(), _styles(len(groups)), strict=True)
    ):
        places = [row + thickness * (number - (len(groups) - 1) / 2) for row in range(len(labels))]
        style: dict[str, Any] = {"color": color, "alpha": 0.85}
        if number:
            style = {"facecolor": "none", "edgecolor": color, "hatch": hatches[number % 6]}
        axes.barh(places, values, height=thickness * 0.9, label=name, **style)
        if low is not None and high is not None and name in low:
            spread = [
                [value - start for value, start in zip(values, low[name], strict=True)],
                [end - value for value, end in zip(values, high[name], strict=True)],
            ]
            axes.errorbar(
                values, places, xerr=spread, ls="", color=COLORS["ink"], lw=1.2, capsize=2.5
            )
    axes.set_yticks(range(len(labels)), [_plain(label) for label in labels])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0, labelcolor=COLORS["ink"])
    if level is not None:
        axes.axvline(level[1], color=COLORS["muted"], lw=1.2, ls=(0, (1, 2)), label=level[0])
    _scales(axes, log, False)
    told = "; ".join(
        f"{label}: " + ", ".join(f"{name} {values[row]:.4g}" for name, values in groups.items())
        for row, label in enumerate(labels)
    )
    return _finish(figure, axes, title, told, legend=len(groups) > 1 or level is not None)


@plain_settings()
def intervals(
    labels: Sequence[str],
    low: Sequence[float],
    high: Sequence[float],
    *,
    title: str,
    x_label: str,
) -> str:
    """Horizontal intervals, one for each label, on either side of zero."""
    figure, axes = _axes(title, x_label, "", height=88.0 + 25.0 * len(labels))
    rows = list(range(len(labels)))
    middle = [(start + end) / 2 for start, end in zip(low, high, strict=True)]
    half = [(end - start) / 2 for start, end in zip(low, high, strict=True)]
    style: dict[str, Any] = {"color": COLORS["certificate"], "lw": 2.4, "capsize": 5.0}
    axes.errorbar(middle, rows, xerr=half, ls="", capthick=2.4, **style)
    axes.axvline(0.0, color=COLORS["ink"], lw=1.4, ls=(0, (4, 2)))
    axes.set_yticks(rows, [_plain(label) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=COLORS["ink"])
    told = "; ".join(
        f"{label}: {start:.4g} to {end:.4g}"
        for label, start, end in zip(labels, low, high, strict=True)
    )
    return _finish(figure, axes, title, told, legend=False)


@plain_settings()
def histogram(
    values: Mapping[str, Sequence[float]],
    *,
    title: str,
    x_label: str,
    y_label: str = "how many",
    bins: int = 40,
    log_y: bool = False,
    level: tuple[str, float] | None = None,
) -> str:
    """How often each value occurs; one set is filled, several are outlines over one another."""
    figure, axes = _axes(title, x_label, y_label)
    finite = {
        name: [float(value) for value in entry if math.isfinite(value)]
        for name, entry in values.items()
    }
    everything = [value for entry in finite.values() for value in entry] or [0.0]
    span = (min(everything), max(everything))
    outline: dict[str, Any] = {"histtype": "step", "lw": 1.8}
    filled: dict[str, Any] = {"histtype": "bar", "rwidth": 0.9, "alpha": 0.75}
    for (name, entry), (color, dash, _) in zip(finite.items(), _styles(len(finite)), strict=True):
        style = filled if len(finite) == 1 else outline
        axes.hist(entry, bins=bins, range=span, color=color, ls=dash, label=name, **style)
    axes.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]  # counts
    if level is not None:
        axes.axvline(level[1], color=COLORS["ink"], lw=2.4, label=level[0])
    _scales(axes, False, log_y)
    told = "; ".join(
        f"{name}: {len(entry)} values"
        + (f", mean {math.fsum(entry) / len(entry):.4g}" if entry else "")
        for name, entry in finite.items()
    )
    return _finish(figure, axes, title, told)


def _styles(count: int) -> list[tuple[Any, Any, str]]:
    return [_STYLES[number % len(_STYLES)] for number in range(count)]


def _plain(words: str) -> str:
    """Words that matplotlib must not read as a formula."""
    return words.replace("$", r"\$")


def _axes(
    title: str, x_label: str, y_label: str, *, height: float = _HEIGHT
) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH / 72, height / 72), dpi=72, layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(COLORS["line"])
    axes.tick_params(colors=COLORS["muted"], labelsize=13, which="both")
    axes.grid(color=COLORS["ruled"], lw=1)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=16, color=COLORS["ink"], parse_math=False, pad=10)
    axes.set_xlabel(x_label, fontsize=14, color=COLORS["muted"], parse_math=False)
    axes.set_ylabel(y_label, fontsize=14, color=COLORS["muted"], parse_math=False)
    return figure, axes


def _scales(axes: Axes, log_x: bool, log_y: bool) -> None:
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")


def _finish(figure: Figure, axes: Axes, title: str, told: str, *, legend: bool = True) -> str:
    if legend:
        handles, names = axes.get_legend_handles_labels()
        shown = axes.legend(
            handles,
            [_plain(name) for name in names],
            frameon=False,
            fontsize=14,
            labelcolor=COLORS["ink"],
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            borderaxespad=0.4,
        )
        shown.set_in_layout(True)
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "picture"
    return element(figure, name=name, title=title, description=f"{told}.")
