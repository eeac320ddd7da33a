"""Pictures of a study: lines, bars, intervals and histograms in the look of the pages.

Every function returns an ``<svg>`` element. Series differ by dash and mark as well as by color, the
same input gives the same text, and the words for readers who cannot see it are written along. A
picture is as wide as a telephone's column, so that its words are never scaled down: long names
stand above their bars, the legend below the drawing, and what is too long for a line is broken.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogFormatter

from nonvacuous.report.svg import COLORS, element, plain_settings, text_width, wrapped

#: Color, dash and mark of the series, in their order: the second round of colors has other dashes.
_STYLES: tuple[tuple[Any, Any, str], ...] = tuple(
    (COLORS[role], dash, mark)
    for dash, marks in (("-", "ov^sDp"), ((0, (4, 2)), "Pv<hX*"))
    for role, mark in zip(
        ("certificate", "test", "twin", "guessing", "training", "muted"), marks, strict=True
    )
)
#: The page shows a unit as one pixel on a telephone and as 1.25 at most: see ``.pictures figure``.
_WIDTH, _HEIGHT = 360.0, 165.0
_TITLE, _LABEL, _TICK = 15.0, 13.0, 12.0
#: Of a row of bars: a line of its name, one bar, the space below.
_LINE, _BAR, _SPACE = 16.0, 13.0, 9.0
_FEW = 25
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Series:
    """One line or cloud of points. ``low`` and ``high`` draw an interval around each value."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


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
    figure, axes = blank(title, x_label, y_label)
    for entry, (color, dash, mark) in zip(series, cycle(_STYLES), strict=False):
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
    courses = (f"from {s.y[0]:.4g} to {s.y[-1]:.4g}" if len(s.y) else "nothing" for s in series)
    words = "; ".join(f"{s.label}: {course}" for s, course in zip(series, courses, strict=True))
    return finish(figure, axes, title, words, legend=len(series) > 1 or level is not None)


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
    figure, axes = blank(title, x_label)
    tops, height = _rows(axes, labels, thickness=_BAR * len(groups))
    # Hatching tells the groups apart where colors cannot.
    hatches = ("", "////", "....", "xxxx", "----", "++++")
    for number, ((name, values), (color, _, _)) in enumerate(
        zip(groups.items(), cycle(_STYLES), strict=False)
    ):
        middles = [top + _BAR * (number + 0.5) for top in tops]
        style: dict[str, Any] = {"color": color, "alpha": 0.85}
        if number:
            style = {"facecolor": "none", "edgecolor": color, "hatch": hatches[number % 6]}
        axes.barh(middles, values, height=_BAR * 0.85, label=name, **style)
        if low is not None and high is not None and name in low:
            spread = np.abs(np.array([low[name], high[name]]) - values)
            axes.errorbar(
                values, middles, xerr=spread, ls="", color=COLORS["ink"], lw=1.2, capsize=2.5
            )
    if level is not None:
        # Beside the bars alone: the names between them stay clear.
        ends = [top + _BAR * len(groups) for top in tops]
        axes.vlines(
            [level[1]] * len(tops), tops, ends, color=COLORS["ink"], lw=1.6, ls=(0, (1, 1)),
            label=level[0],
        )  # fmt: skip
    _scales(axes, log, False)
    words = "; ".join(
        f"{label}: " + ", ".join(f"{name} {values[row]:.4g}" for name, values in groups.items())
        for row, label in enumerate(labels)
    )
    legend = len(groups) > 1 or level is not None
    return finish(figure, axes, title, words, legend=legend, height=height)


@plain_settings()
def intervals(
    labels: Sequence[str], low: Sequence[float], high: Sequence[float], *, title: str, x_label: str
) -> str:
    """Horizontal intervals, one for each label, on either side of zero."""
    figure, axes = blank(title, x_label)
    tops, height = _rows(axes, labels, thickness=_BAR)
    start, end, top = map(np.array, (low, high, tops))
    style: dict[str, Any] = {"color": COLORS["certificate"], "lw": 2.4, "capsize": 5.0}
    middle, half = (start + end) / 2, (end - start) / 2
    axes.errorbar(middle, top + _BAR / 2, xerr=half, ls="", capthick=2.4, **style)
    axes.vlines([0.0] * len(tops), top, top + _BAR, color=COLORS["ink"], lw=1.4)
    words = "; ".join(
        f"{label}: {start:.4g} to {end:.4g}"
        for label, start, end in zip(labels, low, high, strict=True)
    )
    return finish(figure, axes, title, words, legend=False, height=height)


@plain_settings()
def histogram(
    values: Mapping[str, Sequence[float]],
    *,
    title: str,
    x_label: str,
    y_label: str = "how many",
    bins: int = 40,
    level: tuple[str, float] | None = None,
) -> str:
    """How often each value occurs; one set is filled, several are outlines over one another."""
    figure, axes = blank(title, x_label, y_label)
    finite = {
        name: [float(value) for value in entry if math.isfinite(value)]
        for name, entry in values.items()
    }
    everything = [value for entry in finite.values() for value in entry] or [0.0]
    span = (min(everything), max(everything))
    outline: dict[str, Any] = {"histtype": "step", "lw": 1.8}
    filled: dict[str, Any] = {"histtype": "bar", "rwidth": 0.9, "alpha": 0.75}
    for (name, entry), (color, dash, _) in zip(finite.items(), cycle(_STYLES), strict=False):
        style = filled if len(finite) == 1 else outline
        axes.hist(entry, bins=bins, range=span, color=color, ls=dash, label=name, **style)
    axes.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]  # counts
    if level is not None:
        axes.axvline(level[1], color=COLORS["ink"], lw=2.4, label=level[0])
    _scales(axes, False, False)
    words = "; ".join(
        f"{name}: {len(entry)} values"
        + (f", mean {math.fsum(entry) / len(entry):.4g}" if entry else "")
        for name, entry in finite.items()
    )
    return finish(figure, axes, title, words)


def _plain(words: str) -> str:
    """Words that matplotlib must not read as a formula."""
    return words.replace("$", r"\$")


def blank(title: str, x_label: str, y_label: str = "") -> tuple[Figure, Axes]:
    """Axes to draw on, under their title."""
    engine = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.05)
    figure = Figure(dpi=72, layout=engine)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(COLORS["line"])
    axes.tick_params(colors=COLORS["muted"], labelsize=_TICK, which="both")
    axes.grid(color=COLORS["ruled"], lw=1)
    axes.set_axisbelow(True)
    plain: dict[str, Any] = {"parse_math": False}
    figure.suptitle(
        _lines(title, _TITLE, _WIDTH - 12), x=0.01, ha="left", fontsize=_TITLE,
        color=COLORS["ink"], **plain,
    )  # fmt: skip
    # Above its axis and level: a name on its side is hard to read and takes width.
    axes.set_title(
        _lines(y_label, _LABEL, _WIDTH - 60), loc="left", fontsize=_LABEL, color=COLORS["muted"],
        **plain,
    )  # fmt: skip
    x_label = _lines(x_label, _LABEL, _WIDTH - 80)
    axes.set_xlabel(x_label, fontsize=_LABEL, color=COLORS["muted"], **plain)
    return figure, axes


def _rows(axes: Axes, labels: Sequence[str], *, thickness: float) -> tuple[list[float], float]:
    """A row for each label, downward in units: where what is drawn starts, and the height of all.

    Short names stand to the left, long ones above.
    """
    beside = max((text_width(label, size=_LABEL) for label in labels), default=0.0) <= _WIDTH / 3
    tops, y = [], 0.0
    for label in labels:
        if not beside:
            for line in wrapped(label, size=_LABEL, width=_WIDTH - 40):
                y += _LINE
                axes.text(
                    0.0, y - 2, line, transform=axes.get_yaxis_transform(), parse_math=False,
                    fontsize=_LABEL, color=COLORS["ink"], va="baseline",
                )  # fmt: skip
            y += 2
        tops.append(y)
        axes.axhspan(y, y + thickness, color=COLORS["ruled"], lw=0)
        y += thickness + _SPACE
    names = [_plain(label) for label in labels] if beside else []
    axes.set_yticks([top + thickness / 2 for top in tops] if beside else [], names)
    axes.tick_params(axis="y", length=0, labelcolor=COLORS["ink"], labelsize=_LABEL)
    axes.spines["left"].set_visible(beside)
    axes.grid(visible=False)
    axes.set_ylim(y, -3.0 if beside else 0.0)
    return tops, y


class _PlainLog(LogFormatter):
    """Powers of ten that are read at the size they have: 0.01, 1,000, 10⁻⁷."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        if not super().__call__(x, pos):
            return ""
        if 1e-3 <= x < 1e5:
            return f"{x:,.10g}"
        power = math.floor(math.log10(x) + 1e-9)
        raised = "10" + f"{power}".translate(_RAISED)
        times = round(x / 10.0**power)
        return raised if times == 1 else f"{times}·{raised}"


def _scales(axes: Axes, log_x: bool, log_y: bool) -> None:
    if log_x:
        axes.set_xscale("log")
    else:
        axes.locator_params(axis="x", nbins=6, steps=[1, 2, 5, 10])
    if log_y:
        axes.set_yscale("log")
    for axis in (*([axes.xaxis] if log_x else []), *([axes.yaxis] if log_y else [])):
        axis.set_major_formatter(_PlainLog())
        axis.set_minor_formatter(_PlainLog(minor_thresholds=(0.9, 0.4)))


def finish(
    figure: Figure,
    axes: Axes,
    title: str,
    words: str,
    *,
    legend: bool = True,
    height: float = _HEIGHT,
) -> str:
    """The picture as text, with a legend below; ``height`` is what the axes get in the end."""
    handles, names = axes.get_legend_handles_labels()
    if legend:
        narrow = max((text_width(name, size=_LABEL) for name in names), default=0.0)
        columns = 2 if narrow < _WIDTH / 2 - 50 else 1
        figure.legend(
            handles,
            [_lines(_plain(name), _LABEL, _WIDTH - 50) for name in names],
            frameon=False,
            fontsize=_LABEL,
            labelcolor=COLORS["ink"],
            loc="outside lower left",
            ncols=columns,
            borderpad=0.1,
            labelspacing=0.35,
            columnspacing=1.2,
        )
    # Title, labels and legend take what they need: surely less than this, and then so much.
    layout = figure.get_layout_engine()
    assert layout is not None
    whole = height + 400.0 + 3 * _LINE * len(names)
    figure.set_size_inches(_WIDTH / 72, whole / 72)
    layout.execute(figure)
    whole += height - axes.get_window_extent().height
    figure.set_size_inches(_WIDTH / 72, whole / 72)
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "picture"
    return element(figure, name=name, title=title, description=f"{words}.")


def _lines(words: str, size: float, width: float) -> str:
    return "\n".join(wrapped(words, size=size, width=width))
