"""The course of training, read from the events of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nonvacuous.report.plots import Series, lines
from nonvacuous.report.wording import clean, finite

#: Metrics worth a curve, the most telling first; a panel shows two of them.
_SHOWN = {
    "objective": "objective",
    "error": "error",
    "loss": "loss",
    "validation_loss": "loss on watched examples",
}
_CURVES_A_PANEL = 2
_PANELS = 3


class Curve(NamedTuple):
    """One phase of training: a panel with one or two lines, epoch by epoch."""

    phase: str
    lines: tuple[Series, ...]


def curves(history: Sequence[Mapping[str, Any]]) -> tuple[Curve, ...]:
    """The phases in the order they ran. What is not a finite number by epoch is left out."""
    phases: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for event in history:
        epoch, metrics = finite(event.get("epoch")), event.get("metrics")
        if event.get("event") != "epoch" or epoch is None or not isinstance(metrics, Mapping):
            continue
        panel = phases.setdefault(clean(str(event.get("phase", "training"))), {})
        for name in _SHOWN:
            value = finite(metrics.get(name))
            if value is not None:
                panel.setdefault(name, []).append((epoch + 1.0, value))
    return tuple(
        Curve(phase, _lines(panel))
        for phase, panel in list(phases.items())[:_PANELS]
        if _lines(panel)
    )


def drawn(curve: Curve, number: int) -> str:
    """The course of one phase; ``number`` tells the drawings of a page apart."""
    lowest = min(value for line in curve.lines for value in line.y)
    return lines(
        curve.lines,
        title=f"{number + 1}: {curve.phase}",
        x_label="epoch",
        y_label="",
        lowest=min(0.0, lowest),
    )


def _lines(panel: Mapping[str, list[tuple[float, float]]]) -> tuple[Series, ...]:
    chosen = [name for name in _SHOWN if len(panel.get(name, ())) > 1][:_CURVES_A_PANEL]
    return tuple(Series(_SHOWN[name], *zip(*panel[name], strict=True)) for name in chosen)
