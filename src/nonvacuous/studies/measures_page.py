"""The page that ``nonvacuous measures`` writes: the answer, the attack as a picture, all values."""

from __future__ import annotations

import sys
from typing import Any

from nonvacuous.report.plots import bars
from nonvacuous.report.study import Figure, Section, StudyPage, Table
from nonvacuous.studies.measures_text import (
    answer,
    attack_rows,
    claims,
    comparison_text,
    panel_rows,
    training_text,
    undefined_reasons,
)


def page_of(record: dict[str, Any], command: str) -> StudyPage:
    """The page from the record."""
    sections = []
    if record["attack"] is not None:
        sections.append(_attack(record))
    sections += [_values(record), _formulas(record), _not_said()]
    return StudyPage(
        title="Measures",
        question=f"Which measures of {record['model']} on {record['data']} mean anything?",
        lead=answer(record),
        badges=_badges(record),
        sections=tuple(sections),
        footer=(command, f"seed {record['seed']}; Python {sys.version.split()[0]}"),
    )


def _badges(record: dict[str, Any]) -> tuple[str, ...]:
    errors = record["panel"]["training_errors"]
    badges = [f"{record['examples']:,} examples, {errors:,} of them wrong"]
    if record["attack"] is not None:
        badges.append(f"{record['attack']['free_scales']:,} free scales")
    if record["against"] is not None:
        badges.append(f"against {record['against']['spec']}")
    return tuple(badges)


def _attack(record: dict[str, Any]) -> Section:
    attacked = record["attack"]
    entries = [e for e in attacked["measures"] if e["verdict"] != "undefined"]
    moving = sorted(
        (e for e in entries if e["verdict"] == "moves"),
        key=lambda e: -(e["decades"] if e["decades"] is not None else 0.0),
    )
    still = [e for e in entries if e["verdict"] != "moves"]
    shown = [*moving, *still]
    labels = [
        e["name"] if e["verdict"] == "moves" else f"{e['name']} ({e['verdict']})" for e in shown
    ]
    lengths = [
        (e["decades"] if e["decades"] is not None else 0.0) if e["verdict"] == "moves" else 0.0
        for e in shown
    ]
    picture = bars(
        labels,
        {"decades": lengths},
        title=f"The same function in {attacked['gauges']} gauges",
        x_label="largest over smallest value, in decades",
    )
    headings, rows = attack_rows(record)
    return Section(
        "What moves when only the way of writing changes?",
        paragraphs=(
            "Multiplying what a hidden channel receives by a factor, and dividing what reads it by "
            "the same factor, changes every weight and no prediction. A measure that changes under "
            "this cannot by itself say anything about the function. The logarithms of the factors "
            f"were drawn with standard deviation {attacked['spread']:g}.",
        ),
        figures=(
            Figure(picture, "How far each measure moved; bars too short to see are in the table."),
        ),
        tables=(Table(headings, tuple(rows), caption="Every measure in all gauges"),),
    )


def _values(record: dict[str, Any]) -> Section:
    headings, rows = panel_rows(record)
    paragraphs = []
    if record["against"] is not None:
        paragraphs.append(comparison_text(record))
    trained = training_text(record)
    if trained:
        paragraphs.append(f"{trained[:1].upper()}{trained[1:]}")
    paragraphs += [f"Undefined: {names}: {why}." for names, why in undefined_reasons(record)]
    return Section(
        "All measures",
        paragraphs=tuple(paragraphs),
        tables=(Table(headings, tuple(rows)),),
    )


def _formulas(record: dict[str, Any]) -> Section:
    rows = tuple(
        (e["name"], e["formula"], e["source"], claims(e)) for e in record["panel"]["measures"]
    )
    return Section(
        "What is computed",
        paragraphs=(
            "A convolution counts as the matrix [output channels, input channels x kernel "
            "positions]. Batch normalization was folded first. Everything is float64, products in "
            "logarithms. “Same whatever the”: what a measure claims not to depend on: the gauge "
            "(rescaling of hidden channels), the order of hidden channels, the output scale.",
        ),
        tables=(
            Table(
                ("measure", "formula", "source", "same whatever the"), rows, numeric=(False,) * 4
            ),
        ),
    )


def _not_said() -> Section:
    return Section(
        "What this does not say",
        paragraphs=(
            "That a measure does not move says that it is a property of the function, not that it "
            "predicts how well the network generalizes; only many networks can show that. Bounds "
            "at or near 1 say nothing at all; each holds alone with a confidence of 95 %, not all "
            "of them together. The smallest certificates come from nonvacuous certify.",
        ),
    )
