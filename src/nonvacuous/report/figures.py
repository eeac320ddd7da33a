"""The drawings of a report: the scale, and the course of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from nonvacuous.report.curves import Curve
from nonvacuous.report.plots import lines
from nonvacuous.report.svg import Sheet, element, plain_settings, text_width
from nonvacuous.report.view import Mark, View

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
    return element(
        sheet.figure, name=name, title="Error rates on one scale", description=in_words(view)
    )


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
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            pools[-2].extend(pools.pop())
    flat = [fmean(pool) for pool in pools for _ in pool]
    first = low + widths[0] / 2
    last = max(first, high - widths[-1] / 2 - offsets[-1])
    return [min(max(x, first), last) + o for x, o in zip(flat, offsets, strict=True)]


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


def training(curve: Curve, *, number: int) -> str:
    """The course of one phase of training; ``number`` tells the drawings of a page apart."""
    lowest = min(value for line in curve.lines for value in line.y)
    return lines(
        curve.lines,
        title=f"{number + 1}: {curve.phase}",
        x_label="epoch",
        y_label="",
        lowest=min(0.0, lowest),
    )
