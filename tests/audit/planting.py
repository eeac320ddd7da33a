"""Looking for one planted fault: which check must find it, and what it must say."""

from __future__ import annotations

from nonvacuous import audit
from nonvacuous.audit.evidence import Evidence
from nonvacuous.certificate import status_of
from nonvacuous.records import Assumption, BoundRecord


def found(evidence: Evidence, name: str) -> Assumption:
    """What the check of that name says; it must exist."""
    return {assumption.name: assumption for assumption in audit.run(evidence)}[name]


def assert_refused(evidence: Evidence, name: str, *words: str) -> None:
    assumption = found(evidence, name)
    assert (assumption.status, assumption.effect) == ("violated", "refused"), assumption
    for word in words:
        assert word in assumption.detail
    assert status_of(audit.run(evidence)) == "refused"


def assert_conditional(evidence: Evidence, name: str, *words: str) -> None:
    assumption = found(evidence, name)
    assert (assumption.status, assumption.effect) == ("violated", "conditional"), assumption
    for word in words:
        assert word in assumption.detail
    assert status_of(audit.run(evidence)) == "conditional"


def bound_with(evidence: Evidence, **inputs: float) -> BoundRecord:
    return evidence.bound.model_copy(update={"inputs": {**evidence.bound.inputs, **inputs}})
