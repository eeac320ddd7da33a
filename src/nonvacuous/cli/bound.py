"""``nonvacuous bound``: the calculator. Numbers in, every bound that follows from them out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

from cyclopts import Parameter

from nonvacuous import bounds
from nonvacuous.bounds import checks, rounding
from nonvacuous.bounds.holdout import tail_end
from nonvacuous.bounds.table import OWN_EVENT, compare
from nonvacuous.cli.exits import UsageError, as_usage
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber, WholeNumber, dashed, failure_of
from nonvacuous.cli.output import answered, write_paragraphs
from nonvacuous.report import wording

#: How the failure probability is shared when the empirical risk was itself sampled.
SAMPLING_SHARE = 5


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Given:
    """What is known beside the number of examples.

    Args:
        risk: Error on these examples, in [0, 1]: the mean over the posterior with --kl, that of the
            drawn network itself with --log-ratio.
        kl: KL(posterior || prior), in nats.
        log_ratio: ln(posterior density / prior density) at the drawn weights, in nats. May be
            negative.
        errors: Number of errors: on the held-out examples, or with --trials among random trials.
        trials: The mean error over the posterior was itself sampled: --errors errors in this many
            independent trials, each with a random example and fresh weights.
        sampling_failure: Failure probability set aside for the sampling; a fifth of the whole by
            default.
        temperature: Adds Catoni's bound at this temperature, if it was fixed before the data were
            seen.
        second_moment: Adds the empirical Bernstein bound: the mean squared loss, for losses between
            0 and 1.
        compare_paid: Pay for the comparison: give each event its share of the failure probability
            and report the smallest bound. Decide on this before looking at the numbers.
    """

    risk: float | None = None
    kl: float | None = None
    log_ratio: Annotated[float | None, Parameter(allow_leading_hyphen=True)] = None
    errors: OptionalWholeNumber = None
    trials: OptionalWholeNumber = None
    sampling_failure: float | None = None
    temperature: float | None = None
    second_moment: float | None = None
    compare_paid: Annotated[bool, SWITCH] = False

    def checked(self) -> dict[str, Any]:
        """The values that were given, by flag, each within its range."""
        known: dict[str, Callable[[str, Any], Any]] = {
            "risk": checks.unit_interval,
            "kl": checks.non_negative,
            "log_ratio": checks.real,
            "errors": checks.count,
            "trials": partial(checks.count, minimum=1),
            "sampling_failure": checks.real,
            "temperature": checks.positive,
            "second_moment": checks.unit_interval,
        }
        given = {name: getattr(self, name) for name in known if getattr(self, name) is not None}
        paid = {"--compare-paid": True} if self.compare_paid else {}
        return {dashed(name): known[name](dashed(name), given[name]) for name in given} | paid


def bound(
    *,
    examples: WholeNumber,
    given: Given = Given(),  # noqa: B008
    confidence: float = 0.95,
    json: Json = False,
) -> int:
    """Calculate every bound that follows from a few numbers, side by side.

    Args:
        examples: Number of independent examples the error was measured on, not counting any that
            trained the prior.
        confidence: Probability, over the draw of the examples, that the bound holds.
    """
    with as_usage():  # everything this command reads comes from its flags
        record = _calculate(
            checks.count("--examples", examples, minimum=1),
            checks.real("--confidence", confidence),
            given.checked(),
        )
    return answered(record, _write_text, as_json=json)


def _calculate(examples: int, confidence: float, given: dict[str, Any]) -> dict[str, Any]:
    """The record of all bounds that follow from the given flags."""
    predictor = _predictor(set(given))
    budget = bounds.ConfidenceBudget(failure_of(confidence))
    inputs: dict[str, float | int] = {"examples": examples}
    more: dict[str, float | int] = {}
    extra: dict[str, Any] = {}
    errors, risk = given.get("--errors", 0), given.get("--risk", 0.0)

    if predictor == "held-out":
        checks.at_most("--errors", errors, "--examples", examples)
        reason = "exact binomial tail"
        inputs["errors"] = errors
        more = {"trials": examples, "empirical_risk": min(1.0, rounding.up(errors / examples))}
    elif predictor == "drawn":
        reason = "PAC-Bayes-kl for one draw"
        inputs |= {"empirical_risk": risk, "log_density_ratio": given["--log-ratio"]}
    else:
        reason, trials = "PAC-Bayes", given.get("--trials")
        if trials is not None:
            checks.at_most("--errors", errors, "--trials", trials)
            share = given.get("--sampling-failure", budget.failure / SAMPLING_SHARE)
            if not 0.0 < share < budget.failure:
                raise UsageError(
                    f"--sampling-failure must lie strictly between 0 and {budget.failure:g}, what "
                    f"--confidence leaves for the whole, got --sampling-failure = {share!r}."
                )
            budget.spend("sampling", share, reason="the empirical risk was sampled")
            risk = bounds.sampling(errors=errors, trials=trials, failure=share)
            inputs |= {"errors": errors, "trials": trials}
        inputs |= {"empirical_risk": risk, "kl_nats": given["--kl"]}
        chosen = (name for name in ("temperature", "second_moment") if dashed(name) in given)
        more = {name: given[dashed(name)] for name in chosen}
        if more.get("second_moment", risk) > risk:
            raise UsageError(
                f"--second-moment must not exceed --risk (losses lie in [0, 1], so squares are "
                f"smaller), got --second-moment = {more['second_moment']!r} and --risk = {risk!r}."
            )
    failure = budget.spend_rest("bound", reason=reason)
    if predictor == "held-out":
        # The lower end alone, and both ends at once for half the failure probability each.
        half: dict[str, Any] = {"errors": errors, "examples": examples, "failure": failure / 2}
        extra = {
            "risk_lower": bounds.holdout_lower(errors=errors, examples=examples, failure=failure),
            "interval": [bounds.holdout_lower(**half), bounds.holdout(**half)],
        }
    elif predictor == "randomized":
        # What a plain test would promise for the same error on as many held-out examples.
        observed = errors / given["--trials"] if "--trials" in given else risk
        wrong = min(examples, math.ceil(Decimal(repr(observed)) * examples))
        most = tail_end(wrong, examples, budget.failure)
        extra["held_out_reference"] = {"errors": wrong, "examples": examples, "risk_upper": most}
    comparison = compare(
        _ABOUT[predictor], {**inputs, **more}, failure, paid="--compare-paid" in given
    )
    best = next(row for row in comparison.rows if row.name == comparison.best)
    others = (row for row in comparison.rows if row.relation == OWN_EVENT and not comparison.paid)
    return {
        "predictor": predictor,
        "inputs": inputs,
        "confidence": confidence,
        "budget": budget.to_dict(),
        "risk_upper": best.risk_upper,
        "is_vacuous": best.risk_upper >= 1.0,
        "best": best.name,
        "compared": comparison.paid,
        "events": comparison.events,
        "failure_each": comparison.failure,
        "smaller_but_not_chosen": [r.name for r in others if r.risk_upper < best.risk_upper],
        "bounds": [asdict(row) for row in comparison.rows],
        **extra,
    }


#: The table's name for each predictor of the calculator.
_ABOUT = {"randomized": "stochastic", "drawn": "drawn", "held-out": "deterministic"}
#: Which flags belong together, in the order in which they are asked for.
_MODES = {
    "randomized": ({"--risk", "--kl"}, {"--temperature", "--second-moment", "--compare-paid"}),
    "sampled": (
        {"--errors", "--trials", "--kl"},
        {"--sampling-failure", "--temperature", "--compare-paid"},
    ),
    "drawn": ({"--risk", "--log-ratio"}, set[str]()),
    "held-out": ({"--errors"}, set[str]()),
}


def _predictor(present: set[str]) -> str:
    """Which predictor the flags speak of, or a usage error that names the flag in question."""
    if {"--kl", "--log-ratio"} <= present:
        raise UsageError(
            "--kl and --log-ratio are about two predictors with two different errors (the mean "
            "over the posterior, and that of the one network drawn): run the command once for each."
        )
    if "--kl" in present:
        mode = "sampled" if "--trials" in present else "randomized"
    elif "--log-ratio" in present:
        mode = "drawn"
    elif "--errors" in present and "--risk" not in present:
        mode = "held-out"
    elif "--risk" in present:
        raise UsageError(
            "--risk alone is not enough: add --kl (in nats) for a posterior, --log-ratio for one "
            "network drawn from it, or replace --risk by --errors for held-out examples."
        )
    else:
        raise UsageError(
            "nothing to calculate from: give --risk and --kl, or --risk and --log-ratio, "
            "or --errors."
        )
    required, optional = _MODES[mode]
    missing = sorted(required - present)
    if missing:
        have = " and ".join(sorted(required & present))
        raise UsageError(f"{' and '.join(missing)} must be given together with {have}.")
    unused = sorted(present - required - optional)
    if unused:
        raise UsageError(
            f"{' and '.join(unused)} would change nothing beside {' and '.join(sorted(required))}: "
            "leave it out, or see the help for the flags that belong together."
        )
    return "randomized" if mode == "sampled" else mode


percent_up = partial(wording.percent_up, digits=4)
percent_down = partial(wording.percent_down, digits=4)
_SUBJECTS = {
    "randomized": "the randomized network (weights drawn afresh from the posterior)",
    "drawn": "the one network drawn from the posterior",
    "held-out": "the network, from examples that trained nothing",
}


def _write_text(record: dict[str, Any]) -> None:
    vacuous = " (vacuous: this says nothing)" if record["is_vacuous"] else ""
    write_paragraphs(
        f"Risk of {_SUBJECTS[record['predictor']]}:\nat most {percent_up(record['risk_upper'])}"
        f"{vacuous} with confidence {rounding.shown_confidence(record['confidence'], 6)}, "
        f"by {record['best']}.",
        _table(record),
        *_notes(record),
    )


def _table(record: dict[str, Any]) -> str:
    rows = [("", "bound", "at most", "theorem", "free parameter")]
    for row in record["bounds"]:
        best = row["name"] == record["best"]
        mark = "*" if best else "+" if row["relation"] == OWN_EVENT else ""
        upper = percent_up(row["risk_upper"])
        rows.append((mark, row["name"], upper, row["theorem"], row["free_parameter"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"{mark:1}  {name:{widths[1]}}  {upper:>{widths[2]}}  {theorem:{widths[3]}}  {free}"
        for mark, name, upper, theorem, free in rows
    )


def _notes(record: dict[str, Any]) -> list[str]:
    if record["predictor"] == "held-out":
        low, high = record["interval"]
        return [
            f"At least {percent_down(record['risk_lower'])}, as a claim on its own at the same "
            f"confidence; both ends together: {percent_down(low)} to {percent_up(high)}.",
            "* exact, so the other rows are never smaller: they show what Chernoff's bound and the "
            "moment of PAC-Bayes-kl cost before any complexity is paid.",
            "Upper ends are rounded up, lower ends down.",
        ]
    # A certificate calls the theorem by the name of the function alone.
    name = "seeger" if record["predictor"] == "randomized" else "disintegrated"
    notes = [
        f"{name}_exact is the theorem that certificates quote as {name}: in Python "
        f"nv.bounds.{name}(..., exact_moment=True). Without that keyword it is the row {name}."
    ]
    if record["predictor"] == "randomized":
        reference = record["held_out_reference"]
        notes += [
            _choice_note(record),
            f"For scale: {reference['errors']} errors on {reference['examples']} held-out examples "
            f"would promise at most {percent_up(reference['risk_upper'])}.",
        ]
    inputs = record["inputs"]
    notes += [
        f"Sampling: {inputs['errors']} errors in {inputs['trials']} trials put the empirical risk "
        f"at most at {percent_up(inputs['empirical_risk'])}, for {entry['failure']:g} of the "
        "failure probability."
        for entry in record["budget"]["entries"]
        if entry["name"] == "sampling"
    ]
    return [*notes, "Percentages are rounded up."]


def _choice_note(record: dict[str, Any]) -> str:
    events = record["events"]
    if record["compared"]:
        return (
            f"* the smallest. Every row was given failure {record['failure_each']:g}, one share "
            f"for each of {events} events, so all rows hold together and picking the smallest is "
            "paid for, provided that this comparison was decided on before looking."
        )
    others = [row["name"] for row in record["bounds"] if row["relation"] == OWN_EVENT]
    total = 1.0 - events * record["budget"]["failure"]
    smaller = record["smaller_but_not_chosen"]
    remark = f" ({', '.join(smaller)} came out smaller here.)" if smaller else ""
    promise = "with no confidence at all"
    if total > 0:
        promise = f"with confidence {rounding.shown_confidence(total, 6)} only"
    return (
        "* to be chosen before looking: the unmarked rows follow from the same event and are never "
        "smaller, so nothing is gained by comparing them.\n"
        f"+ {', '.join(others)}: true on another event, valid if chosen alone beforehand. The "
        f"smallest of all, picked afterwards, would be guaranteed {promise}; --compare-paid "
        f"gives each of the {events} events its share and reports the smallest.{remark}"
    )
