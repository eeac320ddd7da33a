"""The page that ``nonvacuous memorize`` writes: the answer, three pictures, and what it is not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from nonvacuous.data import Examples
from nonvacuous.memorization import Memorizer, memorize
from nonvacuous.report.plots import Series, lines
from nonvacuous.report.study import Figure, Section, StudyPage, Table, write_study

#: Points in the first picture, and stretches in the second.
_SHOWN, _STRETCHES = 20, 60


def write_page(
    found: Memorizer,
    train: Examples,
    values: np.ndarray,
    record: dict[str, Any],
    errors: np.ndarray | None,
    path: Path,
    *,
    command: str,
) -> Path:
    """Write the page; the times against n are measured now, on parts of the same points."""
    page = StudyPage(
        title="Memorization",
        question=f"Can {found.parameters:,} weights memorize {record['data']}?",
        lead=record["answer"],
        badges=(
            f"{found.points:,} points, {found.dimensions:,} dimensions",
            f"{record['labels']} labels",
            f"depth {found.depth}",
            "exact certificate",
        ),
        sections=(
            Section("In numbers", tables=(_facts(record),)),
            _how(found),
            *_float64(found, train, errors),
            _times(found, train, values),
            Section("What does this not say?", paragraphs=tuple(record["does_not_say"])),
        ),
        footer=(
            command,
            f"seed {found.seed}; Python {sys.version.split()[0]}, numpy {np.__version__}",
        ),
    )
    return write_study(page, path)


def _facts(record: dict[str, Any]) -> Table:
    rows = tuple(record["facts"].items())
    return Table(headings=("what", "found"), rows=rows, numeric=(False, False))


def _how(found: Memorizer) -> Section:
    """The function between the first points along the direction."""
    made = found.construction
    shown = min(_SHOWN, len(made))
    start = made.knots[0]
    gap = max(1, made.places[shown - 1] - start)
    scale = 1 << found.fraction_bits
    x = [0.0, *((place - start) / gap for place in made.places[:shown])]
    y = [0.0, *(value / scale for value in made.values[:shown])]
    picture = lines(
        [Series("the network", x, y)],
        title=f"The network along its direction, first {shown} points",
        x_label="position ⟨a, x⟩, from the first knot (0) to the last point shown (1)",
        y_label="value",
    )
    return Section(
        "How does it work?",
        paragraphs=(
            "One random direction a puts the points in a row. The network c(x) = Σ w max(⟨a, x⟩ − "
            "b, 0) is zero left of its first knot and bends at every point: with one bend for each "
            "point it passes through any values. Marks are points with their memorized labels, "
            "except the first, which is the first knot.",
        ),
        figures=(Figure(picture),),
    )


def _float64(found: Memorizer, train: Examples, errors: np.ndarray | None) -> tuple[Section, ...]:
    """Errors of the honest forward pass along the direction, largest in each stretch."""
    if errors is None:
        return ()
    rows = found.direction.prepare(train.inputs.numpy().reshape(len(train), -1))
    order = np.argsort(found.direction.project_float(rows), kind="stable")
    stretches = np.array_split(errors[order], min(_STRETCHES, len(errors)))
    # A logarithmic scale has no place for zero.
    largest = [max(float(part.max()), 1e-17) for part in stretches]
    ends = np.cumsum([len(part) for part in stretches])
    picture = lines(
        [Series("largest error in the stretch", [float(end) for end in ends], largest)],
        title="Error of the float64 network, every unit evaluated",
        x_label="points, from left to right along the direction",
        y_label="error",
        log_y=True,
        level=("a label would change", 0.5),
    )
    return (
        Section(
            "What is left of it in float64?",
            paragraphs=(
                "The certificate is about exact arithmetic. A network in float64 rounds every "
                "product and sum: many units with steep slopes cancel, the more of them the "
                "farther right a point lies. Depth helps, since each layer then stands still "
                "after its own block.",
            ),
            figures=(Figure(picture),),
        ),
    )


def _times(found: Memorizer, train: Examples, values: np.ndarray) -> Section:
    """Construction and certificate on a tenth and a third of the points."""
    sizes = sorted({max(1, len(train) // 10), max(1, len(train) // 3)} - {len(train)})
    inputs = train.inputs.numpy()
    seconds = []
    for size in sizes:
        depth = min(found.depth, size + 1)
        part = memorize(
            inputs[:size], values[:size], depth=depth, seed=found.seed, conflicts="majority"
        )
        seconds.append(part.seconds)
    x = [float(size) for size in (*sizes, len(train))]
    y = [*seconds, found.seconds]
    proportional = [y[-1] * size / x[-1] for size in x]
    picture = lines(
        [Series("measured", x, y), Series("proportional to n", x, proportional)],
        title="Time for construction and certificate",
        x_label="points",
        y_label="seconds",
        lowest=0.0,
    )
    return Section(
        "How long does it take?",
        paragraphs=("Sorting aside, every step passes over the points once.",),
        figures=(Figure(picture),),
    )
