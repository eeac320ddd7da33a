"""The drawings of a report: the scale, the columns of a rescaling, the course of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from nonvacuous.report.curves import Curve
from nonvacuous.report.rescaling import Row
from nonvacuous.report.svg import Sheet, plain_settings, text_width
from nonvacuous.report.view import Mark, View
from nonvacuous.report.wording import shortened

#: Below this, everything of interest sits in a corner of the scale and is magnified.
_MAGNIFY_BELOW = 0.2
_EDGE = 18.0
_GAP = 22.0
#: Between words on a bar and the middle of a mark: half a mark, and room for a wider font.
_AIR = 18.0


@plain_settings()
def scale(view: View, *, narrow: bool = False) -> str:
    """One scale from 0 to 100% with everything that is known about the error on it.

    ``narrow`` is for the width of a telephone, where names stand in a list below the scale.
    """
    width = 360.0 if narrow else 1000.0
    lens = _lens(view.marks)
    above = [m for m in view.marks if lens is not None and m.value > lens]
    below = [m for m in view.marks if m not in above]
    labels = 12.0 + sum(map(_row_height, view.marks)) if narrow else 96.0
    # Names above the bar are for the wide one.
    top = 22.0 if narrow else 34.0
    sheet = Sheet(width, top + (108.0 if lens is not None else 24.0) + labels)
    bar = _Bar(sheet, view, top=top, limit=1.0, fine=not narrow)
    bar.draw(label=True)
    for mark in above:
        sheet.mark(mark.kind, bar.at(mark.value), bar.middle)
        if not narrow:
            _tag(sheet, mark, bar.at(mark.value), width)
    if lens is not None:
        bar = _magnified(sheet, view, bar, lens, fine=not narrow)
    if narrow:
        for mark in below:
            sheet.mark(mark.kind, bar.at(mark.value), bar.middle)
        _list(sheet, view.marks, top=bar.bottom + 32.0)
    else:
        _labels(sheet, below, bar)
    name = "scale-narrow" if narrow else "scale-wide"
    return sheet.finish(name=name, title="Error rates on one scale", description=in_words(view))


def in_words(view: View) -> str:
    """The scale in words, for readers who cannot see it."""
    parts = [
        f"{mark.name} {mark.text}" + (f" ({mark.note})" if mark.note else "") for mark in view.marks
    ]
    return "On a scale from 0% to 100%: " + "; ".join(parts) + "."


class _Bar:
    """A horizontal axis with the part that the certificate rules out."""

    def __init__(self, sheet: Sheet, view: View, *, top: float, limit: float, fine: bool) -> None:
        self.sheet, self.limit, self.fine = sheet, limit, fine
        self.top, self.bottom = top, top + 24.0
        self.middle = top + 12.0
        self.promised = next((m.value for m in view.marks if m.kind == "certificate"), None)
        self.confidence = view.confidence.emphasis
        self.marks = [mark.value for mark in view.marks]

    def at(self, value: float) -> float:
        return _EDGE + (self.sheet.width - 2 * _EDGE) * min(value / self.limit, 1.0)

    def draw(self, *, label: bool) -> None:
        sheet, left, right = self.sheet, self.at(0.0), self.at(self.limit)
        sheet.box(left, self.top, right, self.bottom, "ruled")
        end = left
        if self.promised is not None:
            end = self.at(self.promised)
            sheet.box(left, self.top, end, self.bottom, "possible")
        sheet.outline(left, self.top, right, self.bottom, "line")
        for tick in _ticks(self.limit, 4 if self.fine else 2):
            x = self.at(tick)
            sheet.line([(x, self.top - 5), (x, self.top)], "line")
            anchor = "left" if tick == 0 else "right" if tick >= self.limit else "center"
            x = x - 1 if tick == 0 else x + 1 if tick >= self.limit else x
            sheet.text(
                x, self.top - 9, f"{100 * tick:.10g}%", color="muted", size=12, anchor=anchor
            )
        if label:
            self._explain(end, right)

    def _explain(self, end: float, right: float) -> None:
        """Words on the bar, in the widest gap between its marks; none where they do not fit."""
        words = [f"ruled out, with {self.confidence} confidence", "ruled out"]
        if self.promised is None:
            end, words = self.at(0.0), ["nothing is promised"]
        elif self.promised >= self.limit:
            end, words = self.at(0.0), ["nothing is ruled out"]
        marks = sorted({end, right, *(x for x in map(self.at, self.marks) if end < x < right)})
        left, until = max(pairwise(marks), key=lambda gap: gap[1] - gap[0], default=(end, end))
        for said in words:
            if text_width(said, size=12.5) + 2 * _AIR <= until - left:
                self.sheet.text(
                    (left + until) / 2, self.middle + 4.5, said, color="muted", size=12.5
                )
                return


def _magnified(sheet: Sheet, view: View, bar: _Bar, limit: float, *, fine: bool) -> _Bar:
    """A second axis for the left end of the first, and the lines that say so."""
    lens = _Bar(sheet, view, top=bar.bottom + 60.0, limit=limit, fine=fine)
    near, far = bar.at(limit), lens.at(limit)
    start = bar.at(0.0)
    sheet.line([(start, bar.bottom), (start, lens.top - 24)], "line", dash=True)
    sheet.line([(near, bar.bottom), (far, lens.top - 24)], "line", dash=True)
    words = f"{1 / limit:.0f} times magnified"
    sheet.text(start + 12, lens.top - 34, words, color="muted", size=12, anchor="left")
    lens.draw(label=False)
    return lens


def _tag(sheet: Sheet, mark: Mark, x: float, width: float) -> None:
    """The name of a mark on the upper axis, above the ticks."""
    words = f"{mark.name} {mark.text}"
    half = text_width(words, size=13) / 2
    x = min(max(x, half), width - half)
    sheet.text(x, 11, words, size=13)


def _labels(sheet: Sheet, marks: Sequence[Mark], bar: _Bar) -> None:
    """Names and values under the axis, side by side, each with a line to its mark."""
    ordered = sorted(marks, key=lambda mark: mark.value)
    top = bar.bottom + 34.0
    widths = [_label_width(mark) for mark in ordered]
    targets = [bar.at(mark.value) for mark in ordered]
    centers = spread(targets, widths, low=0.0, high=sheet.width, gap=_GAP)
    for mark, x, center in zip(ordered, targets, centers, strict=True):
        knee = [(x, bar.middle), (x, bar.bottom + 8), (center, top - 6), (center, top)]
        sheet.line(knee, mark.kind, width=1.4)
        bold = mark.kind == "certificate"
        sheet.text(center, top + 17, mark.name, size=13.5, bold=bold)
        sheet.text(center, top + 36, mark.text, color=mark.kind, size=15, bold=True)
        if mark.note:
            sheet.text(center, top + 54, mark.note, color="muted", size=12)
    # The promise is drawn last: where marks touch, it stays on top.
    for mark in sorted(ordered, key=lambda mark: mark.kind == "certificate"):
        sheet.mark(mark.kind, bar.at(mark.value), bar.middle)


def _label_width(mark: Mark) -> float:
    """The page's own font is hardly ever wider than the one measured."""
    return max(
        text_width(mark.name, size=13.5, bold=mark.kind == "certificate"),
        text_width(mark.text, size=15, bold=True),
        text_width(mark.note, size=12) if mark.note else 0.0,
    )


def _list(sheet: Sheet, marks: Sequence[Mark], *, top: float) -> None:
    y = top
    for mark in sorted(marks, key=lambda mark: mark.value):
        sheet.mark(mark.kind, _EDGE + 8, y - 5)
        bold = mark.kind == "certificate"
        sheet.text(_EDGE + 26, y, mark.name, size=14.5, bold=bold, anchor="left")
        right = sheet.width - _EDGE
        sheet.text(right, y, mark.text, color=mark.kind, size=15.5, bold=True, anchor="right")
        if mark.note:
            sheet.text(_EDGE + 26, y + 16, mark.note, color="muted", size=12.5, anchor="left")
        y += _row_height(mark)


def _row_height(mark: Mark) -> float:
    return 45.0 if mark.note else 29.0


def spread(
    targets: Sequence[float], widths: Sequence[float], *, low: float, high: float, gap: float
) -> list[float]:
    """Centers for labels of these widths, in the order of their targets and as near as possible.

    The targets must be sorted. No two labels come closer than ``gap``, and all stay between
    ``low`` and ``high`` if they fit there at all: least squares under ordering constraints, solved
    by pooling neighbors that are in each other's way.

    >>> spread([10.0, 11.0], [20.0, 20.0], low=0.0, high=100.0, gap=0.0)
    [10.0, 30.0]
    """
    if not targets:
        return []
    offsets = [0.0]
    for left, right in pairwise(widths):
        offsets.append(offsets[-1] + (left + right) / 2 + gap)
    pools: list[list[float]] = []
    for target, offset in zip(targets, offsets, strict=True):
        pools.append([target - offset])
        while len(pools) > 1 and _mean(pools[-2]) > _mean(pools[-1]):
            pools[-2].extend(pools.pop())
    flat = [_mean(pool) for pool in pools for _ in pool]
    first = low + widths[0] / 2
    last = max(first, high - widths[-1] / 2 - offsets[-1])
    return [min(max(x, first), last) + o for x, o in zip(flat, offsets, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _lens(marks: Sequence[Mark]) -> float | None:
    """How far the magnified axis reaches, or None where nothing needs magnifying."""
    highest = max((m.value for m in marks if m.kind != "guessing"), default=0.0)
    if not 0.0 < highest < _MAGNIFY_BELOW:
        return None
    decade = 10.0 ** math.floor(math.log10(highest))
    return next(
        round(step * decade, 12)
        for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15)
        if step * decade >= 1.15 * highest
    )


def _ticks(limit: float, parts: int) -> list[float]:
    """Round places from 0 to ``limit``, at most about ``parts`` steps."""
    for step in (limit / 4, limit / 5, limit / 3, limit / 2):
        if round(limit / step) <= parts and _is_round(step):
            return [step * k for k in range(round(limit / step) + 1)]
    return [0.0, limit / 2, limit]


def _is_round(step: float) -> bool:
    return len(f"{step:.3g}".replace(".", "").replace("e", "").strip("0-")) <= 2


@dataclass(frozen=True)
class _Layout:
    """How the columns are laid out: names beside their bars, or above them on a telephone."""

    width: float
    step: float
    head: float
    left: float
    right: float
    bar: float
    above: bool = False


_LAYOUTS = {
    "wide": _Layout(width=1000.0, step=27.0, head=36.0, left=352.0, right=802.0, bar=16.0),
    "narrow": _Layout(
        width=360.0, step=44.0, head=34.0, left=0.0, right=286.0, bar=16.0, above=True
    ),
    "paper": _Layout(width=620.0, step=17.5, head=25.0, left=262.0, right=484.0, bar=11.0),
}


@plain_settings()
def columns(rows: Sequence[Row], *, layout: str = "wide") -> str:
    """The complexity accounted for in every way: one bar each, the certified one marked.

    ``layout`` is "wide", "narrow" for the width of a telephone, or "paper".
    """
    form = _LAYOUTS[layout]
    height = 22.0 + sum(form.step + (form.head if row.heading else 0.0) for row in rows)
    sheet = Sheet(form.width, height)
    y = 4.0
    if not form.above:
        sheet.text(form.width, y + 8, "Bound (kl-inverse)", color="muted", size=12, anchor="right")
        sheet.text(form.left, y + 8, "Nats, KL and charge", color="muted", size=12, anchor="left")
    for row in rows:
        if row.heading:
            y += form.head
            sheet.text(0.0, y - 6, row.heading, size=13.5, bold=True, anchor="left")
        _column(sheet, row, form, y)
        y += form.step
    words = "; ".join(
        f"{row.name} {row.total} nats" + (" (certified)" if row.certified else "") for row in rows
    )
    return sheet.finish(
        name=f"columns-{layout}",
        title="The complexity accounted for in every way",
        description=f"{words}.",
    )


def _column(sheet: Sheet, row: Row, form: _Layout, y: float) -> None:
    left, end = form.left, form.left + (form.right - form.left) * row.length
    top = y + (22.0 if form.above else (form.step - form.bar) / 2)
    bottom = top + form.bar
    base = bottom - (form.bar - 9.0) / 2
    color = "certificate" if row.certified else "ink"
    sheet.box(left, top, max(end, left + 2), bottom, "certificate" if row.certified else "possible")
    if row.cut:
        # Two strokes across the bar: it would be longer.
        for at in (end - 20, end - 13):
            sheet.line([(at - 4, bottom + 2), (at + 4, top - 2)], "paper", width=3.0)
    name = shortened(row.name, 44)
    write = partial(sheet.text, size=13.5, bold=row.certified)
    if form.above:
        write(left, y + 16, name, anchor="left")
    else:
        write(left - 14, base, name, anchor="right")
    if row.certified:
        sheet.mark("certificate", max(end, left + 2), (top + bottom) / 2, form.bar / 2 - 2)
    write(end + (15.0 if row.certified else 7.0), base, row.total, color=color, anchor="left")
    if not form.above:
        write(sheet.width, base, f"≤ {row.kl_inverse}", color=color, anchor="right")


@plain_settings()
def training(curve: Curve, *, number: int) -> str:
    """The course of one phase of training; ``number`` tells the drawings of a page apart."""
    left, right, top, bottom = 54.0, 354.0, 38.0, 156.0
    # Names below one another: two would be wider than a telephone.
    sheet = Sheet(360.0, bottom + 32 + 19.0 * len(curve.lines))
    highest = max(max(line.values) for line in curve.lines)
    lowest = min(0.0, *(min(line.values) for line in curve.lines))
    span = (highest - lowest) or 1.0
    epochs = max(max(line.epochs) for line in curve.lines)
    sheet.text(0.0, 18, shortened(curve.phase, 40), size=14, bold=True, anchor="left")
    sheet.line([(left, bottom), (right, bottom)], "line")
    for level, value in ((bottom, lowest), (top, highest)):
        sheet.text(left - 8, level + 4, f"{value:.3g}", color="muted", size=12, anchor="right")
    sheet.text(left, bottom + 20, "epoch 1", color="muted", size=12, anchor="left")
    sheet.text(right, bottom + 20, f"{epochs:g}", color="muted", size=12, anchor="right")
    legend = bottom + 42
    styles = (("certificate", False), ("test", True))
    for line, (color, dash) in zip(curve.lines, styles, strict=False):
        points = [
            (
                left + (right - left) * (epoch - 1) / max(epochs - 1, 1.0),
                bottom - (bottom - top) * (value - lowest) / span,
            )
            for epoch, value in zip(line.epochs, line.values, strict=True)
        ]
        sheet.line(points, color, width=2.0, dash=dash)
        sheet.line([(left, legend - 4), (left + 22, legend - 4)], color, width=2.0, dash=dash)
        sheet.text(left + 30, legend, shortened(line.name, 40), size=12.5, anchor="left")
        legend += 19
    words = "; ".join(
        f"{line.name} from {line.values[0]:.4g} to {line.values[-1]:.4g}" for line in curve.lines
    )
    return sheet.finish(
        name=f"training-{number}",
        title=f"Course of training: {curve.phase}",
        description=f"Over {epochs:g} epochs: {words}.",
    )
