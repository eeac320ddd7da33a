"""Is what a measure claims true? Its value in many random gauges of a network."""

from __future__ import annotations

from collections.abc import Iterable

from nonvacuous.errors import BadInput
from nonvacuous.measures.gauges import moved
from nonvacuous.measures.registry import MEASURES, Invariance, Measure
from nonvacuous.measures.subject import Subject
from nonvacuous.measures.values import relative_difference

#: A value that claims not to change may change by so much, relative to itself.
TOLERANCE = 1e-9


def largest_change(
    measure: Measure, subject: Subject, kind: Invariance, *, gauges: int, spread: float = 1.0
) -> float | None:
    """The largest relative change over random gauges; None where the network has none."""
    given, worst = measure(subject), 0.0
    for draw in range(gauges):
        place = moved(subject, kind, draw=draw, spread=spread)
        if isinstance(place, str):
            return None
        worst = max(worst, relative_difference(given, measure(place)))
    return worst


def claim_findings(
    name: str, subjects: Iterable[Subject], *, gauges: int = 50, spread: float = 1.0
) -> tuple[str, ...]:
    """Every claim of a measure that is false on one of these networks; none is good news."""
    if name not in MEASURES:
        raise BadInput(f"there is no measure {name!r}; register it first")
    measure, findings = MEASURES[name], []
    for subject in subjects:
        for kind in sorted(measure.invariant):
            change = largest_change(measure, subject, kind, gauges=gauges, spread=spread)
            if change is not None and change > TOLERANCE:
                findings.append(
                    f"{name} claims not to depend on {kind}, but changes by {change:.1e} of itself "
                    f"in {gauges} random gauges of {type(subject.module).__name__}"
                )
    return tuple(findings)
