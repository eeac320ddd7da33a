"""Complexity measures on trial: one registry, a panel of all, and the gauges that expose some."""

# ruff: noqa: I001  (the first imports stand in the order of the table: they register themselves)

from __future__ import annotations

from nonvacuous.measures import (  # noqa: F401
    norms,
    margins,
    paths,
    flatness,
    description_length,
    ranks,
    certificates,
)
from nonvacuous.measures.gauges import claim_findings, moved
from nonvacuous.measures.panel import Attack, Entry, Panel, Spread, attack, panel
from nonvacuous.measures.registry import (
    INVARIANCES,
    MEASURES,
    Measure,
    Undefined,
    Value,
    register_measure,
    unregister_measure,
)
from nonvacuous.measures.subject import Subject

__all__ = [
    "INVARIANCES",
    "MEASURES",
    "Attack",
    "Entry",
    "Measure",
    "Panel",
    "Spread",
    "Subject",
    "Undefined",
    "Value",
    "attack",
    "claim_findings",
    "moved",
    "panel",
    "register_measure",
    "unregister_measure",
]
