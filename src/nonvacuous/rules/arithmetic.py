"""The rules by which the numbers of a certificate follow from one another.

Whoever writes a certificate and whoever checks it call the same functions, so that "agrees" means
equal to the last bit, on any machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from nonvacuous import records
from nonvacuous.bounds import ConfidenceBudget, constant_lower, sampling, sampling_bounded, table
from nonvacuous.bounds.rounding import remaining_nats, shown_up, up
from nonvacuous.certificate import PREDICTORS, Certificate, status_of
from nonvacuous.errors import BadInput
from nonvacuous.kinds import kind_of

#: The scheme of a risk that nothing was sampled for.
ONCE = "every example once"
#: The part of what other certificates leave that the comparison with a constant answer may fail by,
#: on top of it: the promise itself does not pay for it.
BASELINE_SHARE = 0.1


def total_nats(terms: Iterable[records.KlTerm | float] | Mapping[str, float]) -> float:
    """The KL over all tensors: the exactly rounded sum, then one step up unless it is zero.

    >>> total_nats([0.1, 0.2, 0.3]) > 0.6
    True
    """
    values = terms.values() if isinstance(terms, Mapping) else terms
    total = math.fsum(term.nats if isinstance(term, records.KlTerm) else term for term in values)
    return math.nextafter(total, math.inf) if total > 0.0 else 0.0


def complexity_nats(
    terms: Iterable[records.KlTerm | float] | Mapping[str, float],
    symmetries: Iterable[records.SymmetrySaving] = (),
) -> float:
    """What goes into the bound: the KL over all tensors less what symmetries save, rounded up.

    Savings that leave less than nothing exclude one another, and raise.

    >>> complexity_nats([2.0, 3.0]) == total_nats([2.0, 3.0])
    True
    """
    savings = tuple(saving.nats for saving in symmetries)
    total = total_nats(terms)
    return remaining_nats(total, *savings) if savings else total


def sampled_risk(risk: records.RiskRecord, failure: float | None) -> float:
    """Upper end of the empirical risk from its counts.

    ``failure`` is the share of the sampling line; None where nothing was sampled ("every example
    once"), and then the risk is the plain frequency.
    """
    errors, total, trials = risk.errors, risk.total, risk.trials
    if errors is None and total is None:
        raise BadInput("a risk needs errors, or a total of losses.")
    if risk.scheme == ONCE:
        return min(1.0, up(total / trials, ulps=1)) if total is not None else (errors or 0) / trials
    if failure is None:
        raise BadInput(f"a risk of scheme {risk.scheme!r} was sampled; its price must be paid.")
    if total is not None:
        return sampling_bounded(total=total, trials=trials, failure=failure)
    return sampling(errors=errors or 0, trials=trials, failure=failure, identical=risk.identical)


def risk_record(failure: float | None, **counts: Any) -> records.RiskRecord:
    """The record of these counts with its upper end; ``failure`` as in :func:`sampled_risk`."""
    draft = records.RiskRecord(**counts, risk_upper=1.0)
    return draft.model_copy(update={"risk_upper": sampled_risk(draft, failure)})


def counted_once(
    *, trials: int, seed: int, identical: bool = True, **counts: Any
) -> records.RiskRecord:
    """The record of ``errors``, or of a ``total`` of losses, where every example was seen once."""
    return risk_record(None, **counts, trials=trials, scheme=ONCE, identical=identical, seed=seed)


def baseline_failure(budget: records.BudgetRecord) -> float:
    """What the comparison with a constant answer may fail by, on top of the promise."""
    others = math.fsum(
        entry.failure for entry in budget.entries if entry.name == records.OTHERS_LINE
    )
    return BASELINE_SHARE * (budget.failure - others)


def baseline_record(
    counts: Sequence[int], names: Sequence[str], budget: records.BudgetRecord
) -> records.BaselineRecord:
    """The best constant answer for bound examples with these numbers of each class."""
    answer = max(range(len(counts)), key=lambda label: counts[label])
    examples, failure = sum(counts), baseline_failure(budget)
    return records.BaselineRecord(
        answer=answer,
        name=names[answer],
        errors=examples - counts[answer],
        examples=examples,
        failure=failure,
        risk_lower=constant_lower(most_frequent=counts[answer], examples=examples, failure=failure),
    )


def statement_of(certificate: Certificate) -> str:
    """The promise in words, with its number rounded up and its conditions named."""
    status, examples = status_of(certificate.assumptions), certificate.data.bound.examples
    risk_upper, gate, data = certificate.risk_upper, certificate.gate, certificate.data.name
    about = f"the {certificate.loss.name} risk of {PREDICTORS[certificate.predictor]}"
    troubled = {
        effect: ", ".join(
            dict.fromkeys(a.name for a in certificate.assumptions if a.effect == effect)
        )
        for effect in ("conditional", "refused")
    }
    if status == "refused":
        return f"No promise is made about {about}. Found false: {troubled['refused']}."
    # The promise about one network may rest on Monte-Carlo trials too.
    noisy = certificate.predictor == "stochastic" or certificate.empirical.scheme == "fresh noise"
    beside = " and of the Monte-Carlo trials" if noisy else ""
    if certificate.predictor == "drawn":
        beside = " and of the network"
    # A gate is shown as it was declared: the risk is strictly below it.
    most = f"at most {shown_up(risk_upper)}" if gate is None else f"below {gate!r}"
    text = (
        f"With confidence {certificate.confidence!r} over the draw of the {examples} bound "
        f"examples of {data}{beside}, {about} is {most}."
    )
    if gate is not None and risk_upper >= 1.0:
        text = (
            f"The gate was not passed: {about} is not shown to be below {gate!r} by the "
            f"{examples} bound examples of {data}, and no other number is promised."
        )
    elif risk_upper >= 1.0:
        text += " This says nothing: every risk is at most 1."
    if status == "conditional":
        text += f" This holds only on the condition that: {troubled['conditional']}."
    return text


#: Two correct evaluations of the same formula may differ by this much, relative and per weight.
RELATIVE = 1e-9
PER_WEIGHT = 1e-12


def tolerance(nats: float, weights: int) -> float:
    return RELATIVE * abs(nats) + PER_WEIGHT * weights


def disagreement(
    terms: tuple[records.KlTerm, ...], recomputed: Mapping[str, float]
) -> tuple[records.KlTerm, float] | None:
    """The first term that is not the recomputed one, up to rounding."""
    for term in terms:
        value = recomputed.get(term.tensor)
        if value is None or not abs(term.nats - value) <= tolerance(value, term.size):
            return term, float("nan") if value is None else value
    return None


#: The part of the failure probability that pays for Monte Carlo where there is any.
SAMPLING_SHARE = 0.2


def ledger(
    *,
    mode: str,
    failure: float,
    attempts: int,
    sampled: bool,
    choices: int = 1,
    measured: int = 1,
) -> records.BudgetRecord:
    """The lines of a certificate that was one of ``attempts`` on its examples.

    ``sampled``: its empirical risk rests on Monte-Carlo trials. ``choices``: members of the prior
    family among which the prior was chosen. ``measured``: posteriors among which this one was
    chosen after all of them were sampled. Nothing but their samples can mislead that choice, so
    the line that pays for the draws is divided among them.
    """
    budget = ConfidenceBudget(failure=failure)
    if attempts > 1:
        budget.spend(
            records.OTHERS_LINE,
            failure * (attempts - 1) / attempts,
            reason=f"{attempts} certificates on the same examples share the confidence",
        )
    if sampled:
        loss = "the noisy loss" if kind_of(mode).noisy else "the risk"
        reason, share = f"Monte-Carlo estimate of {loss}", SAMPLING_SHARE * budget.remaining
        reason += f", of {measured} posteriors" if measured > 1 else ""
        budget.choose(records.SAMPLING_LINE, share, choices=measured, reason=reason)
    drawn = 1 if sampled else measured
    over = ["the grid of prior scales"] if choices > 1 else []
    over += [f"{drawn} networks drawn"] if drawn > 1 else []
    reason = f"PAC-Bayes bound, union over {' and '.join(over)}" if over else kind_of(mode).paid_for
    budget.choose(records.BOUND_LINE, budget.remaining, choices=choices * drawn, reason=reason)
    return records.BudgetRecord.model_validate(budget.to_dict())


#: Every bound that may carry a certificate, by name. A name that is not among them is refused, and
#: so is an input that the theorem does not have.
CERTIFYING: Mapping[str, table.Theorem] = MappingProxyType(
    {name: entry for name, entry in table.THEOREMS.items() if entry.certifies}
)

_ITEM = re.compile(r"^(?P<name>[a-z_]+)\.(?P<position>0|[1-9][0-9]*)$")


def theorem(name: str) -> table.Theorem:
    """The registered bound of that name; :class:`BadInput` if there is none."""
    if name not in CERTIFYING:
        raise BadInput(
            f"bound.name is {name!r}, which is not a bound that certificates may rest on; known "
            f"are {', '.join(CERTIFYING)}."
        )
    return CERTIFYING[name]


def bound_record(name: str, **inputs: float | int) -> records.BoundRecord:
    """The record of a bound with its registered source; a list goes item by item (``grid.0``)."""
    source = theorem(name).source
    plain = {key: int(value) if isinstance(value, bool) else value for key, value in inputs.items()}
    return records.BoundRecord(name=name, theorem=source, inputs=plain)


def recompute_bound(bound: records.BoundRecord) -> float:
    """The bound's value from its recorded inputs alone, by the function registered for its name."""
    entry = theorem(bound.name)
    arguments = _arguments(bound.inputs)
    unknown = sorted(arguments.keys() - set(entry.parameters))
    missing = sorted(set(entry.required) - arguments.keys())
    pairs = (("unknown", unknown), ("missing", missing))
    if odd := "; ".join(f"{what} {', '.join(names)}" for what, names in pairs if names):
        allowed = ", ".join(sorted(entry.parameters))
        raise BadInput(f"bound.inputs of {bound.name!r} must be {allowed}: {odd}.")
    try:
        return float(entry.function(**arguments))
    except TypeError as error:
        raise BadInput(f"bound.inputs do not fit {bound.name!r}: {error}.") from error
    except ArithmeticError as error:
        raise BadInput(f"bound.inputs are out of range for {bound.name!r}: {error}.") from error


def _arguments(inputs: Mapping[str, float | int]) -> dict[str, Any]:
    """Keyword arguments: the 0/1 switch as a boolean, ``grid.0``, ``grid.1``, ... as a tuple."""
    arguments: dict[str, Any] = {}
    lists: dict[str, dict[int, float | int]] = {}
    for key, value in inputs.items():
        item = _ITEM.match(key)
        if item is not None:
            lists.setdefault(item["name"], {})[int(item["position"])] = value
        elif key == "exact_moment":
            if value not in (0, 1):
                raise BadInput(f"bound.inputs.exact_moment must be 0 or 1, got {value!r}.")
            arguments[key] = bool(value)
        else:
            arguments[key] = value
    for name, items in lists.items():
        if name in arguments or sorted(items) != list(range(len(items))):
            raise BadInput(f"bound.inputs.{name} must be numbered 0, 1, 2, ... without gaps.")
        arguments[name] = tuple(items[position] for position in range(len(items)))
    return arguments
