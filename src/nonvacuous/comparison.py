"""What a certificate's numbers would be otherwise: term by term, and under every other theorem.

Plain numbers for the report: nothing here is a promise but the certificate's own value. The words
for the keys stand in :mod:`nonvacuous.report`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nonvacuous import bounds
from nonvacuous.bounds.sparsity import derandomized
from nonvacuous.certificate import Certificate
from nonvacuous.errors import BadInput

StepKey = Literal[
    "counted", "sampling", "examples", "complexity", "settings", "escape", "searches", "rest"
]

#: The inputs that pay for the distance between posterior and prior; a bound has one of them.
COMPLEXITIES = ("kl_nats", "log_density_ratio", "renyi_nats")
#: The ledger line of the confidence left to other certificates on the same examples.
SHARED_LINE = "other certificates"

_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    function.__name__: function
    for function in (
        bounds.seeger,
        bounds.mcallester,
        bounds.quadratic,
        bounds.thiemann,
        bounds.thiemann_union,
        bounds.catoni,
        bounds.catoni_union,
        bounds.disintegrated,
        bounds.disintegrated_renyi,
        bounds.holdout,
        derandomized,
    )
}


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
    complexity = next((name for name in COMPLEXITIES if name in inputs), None)
    try:
        if _value(certificate, inputs) != final:
            return (Step("rest", final),)
        steps = [Step("examples", _value(certificate, unsearched))]
        if certificate.sparsity is not None:
            steps = _sparse_terms(certificate, unsearched)
        elif complexity is not None:
            simplest = _value(certificate, unsearched | {complexity: 0.0})
            steps = [Step("examples", simplest), Step("complexity", steps[0].risk_upper)]
    except BadInput:
        # A bound that this version cannot evaluate is shown whole rather than guessed at.
        return (Step("rest", final),)
    if unsearched != inputs:
        return (*steps, Step("searches", final))
    return tuple(steps)


def _sparse_terms(certificate: Certificate, inputs: Mapping[str, float | int]) -> list[Step]:
    """Finite sample, distance, the price of the setting, and the division by what noise sees."""
    off: dict[str, float | int] = {"kl_nats": 0.0, "grid_nats": 0.0, "escape": 0.0}
    steps: list[Step] = []
    keys: tuple[tuple[StepKey, str | None], ...] = (
        ("examples", None),
        ("complexity", "kl_nats"),
        ("settings", "grid_nats"),
        ("escape", "escape"),
    )
    for key, name in keys:
        if name is not None:
            del off[name]
        steps.append(Step(key, _value(certificate, {**inputs, **off})))
    return steps


def _value(certificate: Certificate, inputs: Mapping[str, float | int]) -> float:
    """The certificate's own bound with other inputs."""
    name = certificate.bound.name
    if name not in _FUNCTIONS:
        raise BadInput(f"bound.name is {name!r}, which has no terms to switch on one by one.")
    arguments: dict[str, Any] = dict(inputs)
    if "exact_moment" in arguments:
        arguments["exact_moment"] = bool(arguments["exact_moment"])
    try:
        return _FUNCTIONS[name](**arguments)
    except TypeError as error:
        raise BadInput(f"bound.inputs do not fit {name!r}: {error}.") from error


def _whole_failure(certificate: Certificate) -> float:
    """The failure probability the bound would have if nothing had been searched or shared."""
    budget = certificate.budget
    failure = float(certificate.bound.inputs.get("failure", budget.failure))
    for entry in budget.entries:
        if entry.choices > 1 and failure == _share(entry.failure, entry.choices):
            failure = entry.failure
            break
    others = sum(entry.failure for entry in budget.entries if entry.name == SHARED_LINE)
    if 0.0 < others < budget.failure:
        failure = min(failure * budget.failure / (budget.failure - others), budget.failure)
    return failure


def _share(failure: float, choices: int) -> float:
    try:
        return failure / choices
    except OverflowError:
        return 0.0


def side_by_side(certificate: Certificate) -> tuple[BoundRow, ...]:
    """Every theorem that speaks about the same predictor, on the same counts and confidence.

    Smallest first. Each value holds on its own; choosing the smallest afterwards would be a search.
    """
    if certificate.status == "refused":
        return ()
    values = _alternatives(certificate)
    values[_key_of(certificate)] = certificate.risk_upper
    rows = [
        BoundRow(key, value, promised=key == _key_of(certificate)) for key, value in values.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.risk_upper, not row.promised, row.key)))


def _key_of(certificate: Certificate) -> str:
    name, inputs = certificate.bound.name, certificate.bound.inputs
    return f"{name}_exact" if inputs.get("exact_moment") else name


def _alternatives(certificate: Certificate) -> dict[str, float]:
    inputs = certificate.bound.inputs
    failure = float(inputs.get("failure", certificate.budget.failure))
    examples = certificate.data.bound.examples
    counted = certificate.empirical
    if certificate.sparsity is not None:
        return {}  # other theorems on these counts would speak of the noisy network
    if certificate.complexity is None:
        return {} if counted.errors is None else _held_out(counted.errors, examples, failure)
    common: dict[str, Any] = {
        "empirical_risk": counted.risk_upper,
        "examples": examples,
        "failure": failure,
    }
    if certificate.predictor == "drawn":
        ratio = certificate.complexity.log_density_ratio
        if ratio is None:
            return {}
        common["log_density_ratio"] = ratio
        return {
            "disintegrated": bounds.disintegrated(**common),
            "disintegrated_exact": bounds.disintegrated(**common, exact_moment=True),
        }
    common["kl_nats"] = float(inputs.get("kl_nats", certificate.complexity.kl_nats))
    values = {
        "seeger": bounds.seeger(**common),
        "seeger_exact": bounds.seeger(**common, exact_moment=True),
        "quadratic": bounds.quadratic(**common),
        "thiemann": bounds.thiemann(**common, trade_off=bounds.best_trade_off(**common)),
        "mcallester": bounds.mcallester(**common),
        "catoni_union": bounds.catoni_union(**common),
    }
    if counted.errors is not None:
        # Losses of 0 and 1 equal their squares, so the second moment is the risk itself.
        values["empirical_bernstein"] = bounds.empirical_bernstein(
            **common, second_moment=counted.risk_upper
        )
    return values


def _held_out(errors: int, examples: int, failure: float) -> dict[str, float]:
    if errors > examples:
        return {}
    common: dict[str, Any] = {"examples": examples, "failure": failure}
    return {
        "holdout": bounds.holdout(errors=errors, **common),
        "chernoff": bounds.sampling(
            errors=errors, trials=examples, failure=failure, identical=False
        ),
        "seeger": bounds.seeger(empirical_risk=errors / examples, kl_nats=0.0, **common),
    }
