"""What a certificate's numbers would be otherwise: term by term, and under every other theorem.

Plain numbers for the report: nothing here is a promise but the certificate's own value. The words
for the keys stand in :mod:`nonvacuous.report`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from nonvacuous.bounds.rounding import up
from nonvacuous.bounds.table import SAME_EVENT, THEOREMS, named_row, rows
from nonvacuous.certificate import Certificate
from nonvacuous.errors import BadInput
from nonvacuous.records import OTHERS_LINE
from nonvacuous.rules.arithmetic import recompute_bound

StepKey = Literal[
    "counted", "sampling", "examples", "complexity", "settings", "escape", "searches", "rest"
]


@dataclass(frozen=True)
class Step:
    """The bound's value once this term is switched on, with all the terms before it."""

    key: StepKey
    risk_upper: float


@dataclass(frozen=True)
class BoundRow:
    """One theorem applied to the certificate's counts. ``promised`` marks the certificate's own."""

    key: str
    risk_upper: float
    promised: bool


@dataclass(frozen=True)
class Comparison:
    """Everything a report shows beside the certificate itself."""

    steps: tuple[Step, ...]
    bounds: tuple[BoundRow, ...]


def compare(certificate: Certificate) -> Comparison:
    """Both comparisons. A refused certificate promises nothing, so there is nothing to compare."""
    return Comparison(steps=term_by_term(certificate), bounds=side_by_side(certificate))


def term_by_term(certificate: Certificate) -> tuple[Step, ...]:
    """The bound with each of its terms switched on in turn; the last step is the certificate.

    The bound is not a sum, so the share of a term depends on the order. This order is fixed:
    errors counted, price of Monte Carlo, finite sample at zero complexity, complexity, searches.
    A sparsity certificate has two more: naming the setting, and errors that escape the noise.
    """
    if certificate.status == "refused":
        return ()
    counted = certificate.empirical
    steps = [Step("counted", counted.mean)]
    if counted.scheme != "every example once":
        steps.append(Step("sampling", counted.risk_upper))
    return (*steps, *_terms_of_the_bound(certificate))


def _terms_of_the_bound(certificate: Certificate) -> tuple[Step, ...]:
    final = certificate.risk_upper
    inputs = dict(certificate.bound.inputs)
    unsearched = inputs | {"failure": _whole_failure(certificate)}
    try:
        if _value(certificate, inputs) != final:
            return (Step("rest", final),)
        terms: dict[str, StepKey] = {"grid_nats": "settings", "escape": "escape"}
        complexity = THEOREMS[certificate.bound.name].complexity
        if complexity is not None:
            terms = {complexity: "complexity", **terms}
        off = {name: 0.0 for name in terms if name in inputs}
        steps = [Step("examples", _value(certificate, unsearched | off))]
        for name in tuple(off):
            del off[name]
            steps.append(Step(terms[name], _value(certificate, unsearched | off)))
    except BadInput:
        # A bound that this version cannot evaluate is shown whole rather than guessed at.
        return (Step("rest", final),)
    if unsearched != inputs:
        return (*steps, Step("searches", final))
    return tuple(steps)


def _value(certificate: Certificate, inputs: Mapping[str, float | int]) -> float:
    """The certificate's own bound with other inputs."""
    return recompute_bound(certificate.bound.model_copy(update={"inputs": inputs}))


def _whole_failure(certificate: Certificate) -> float:
    """The failure probability the bound would have if nothing had been searched or shared."""
    budget = certificate.budget
    failure = float(certificate.bound.inputs.get("failure", budget.failure))
    for entry in budget.entries:
        if entry.choices > 1 and failure == float(Fraction(entry.failure) / entry.choices):
            failure = entry.failure
            break
    others = sum(entry.failure for entry in budget.entries if entry.name == OTHERS_LINE)
    if 0.0 < others < budget.failure:
        failure = min(failure * budget.failure / (budget.failure - others), budget.failure)
    return failure


def side_by_side(certificate: Certificate) -> tuple[BoundRow, ...]:
    """Every theorem that speaks about the same predictor, on the same counts and confidence.

    Smallest first. Each value holds on its own; choosing the smallest afterwards would be a search.
    """
    if certificate.status == "refused":
        return ()
    own = named_row(certificate.bound.name, certificate.bound.inputs)
    values = {**_alternatives(certificate), own: certificate.risk_upper}
    shown = [BoundRow(key, value, promised=key == own) for key, value in values.items()]
    return tuple(sorted(shown, key=lambda row: (row.risk_upper, not row.promised, row.key)))


def _alternatives(certificate: Certificate) -> dict[str, float]:
    inputs, counted = certificate.bound.inputs, certificate.empirical
    examples = certificate.data.bound.examples
    given: dict[str, Any] = {
        "examples": examples,
        "failure": float(inputs.get("failure", certificate.budget.failure)),
        "empirical_risk": counted.risk_upper,
    }
    about: str = certificate.predictor
    if certificate.sparsity is not None:
        return {}  # other theorems on these counts would speak of the noisy network
    if certificate.progressive is not None:
        return {}  # the binomial tail does not hold for counts of several checkpoints
    if certificate.complexity is None:
        if counted.errors is None or counted.errors > examples:
            return {}
        about, rate = "deterministic", min(1.0, up(counted.errors / examples))
        given |= {"errors": counted.errors, "trials": examples, "empirical_risk": rate}
    elif about == "drawn":
        if certificate.complexity.log_density_ratio is None:
            return {}
        given["log_density_ratio"] = certificate.complexity.log_density_ratio
    else:
        given["kl_nats"] = float(inputs.get("kl_nats", certificate.complexity.kl_nats))
        if counted.errors is not None:
            # Losses of 0 and 1 equal their squares, so the second moment is the risk itself.
            given["second_moment"] = counted.risk_upper
    return {
        row.name: row.risk_upper
        for row in rows(about, given)
        # What pays for a choice that is free is for the calculator alone.
        if not (row.relation == SAME_EVENT and row.charge == "paid")
    }
