"""``nonvacuous bound``: the calculator. Numbers in, every bound that follows from them out."""

from __future__ import annotations

import math
from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any

from cyclopts import Parameter

from nonvacuous import bounds
from nonvacuous.bounds import checks
from nonvacuous.cli import families
from nonvacuous.cli.bound_text import write_text
from nonvacuous.cli.exits import DONE, UsageError
from nonvacuous.cli.flags import SWITCH, Json, OptionalWholeNumber, WholeNumber, failure_of
from nonvacuous.cli.output import write_json
from nonvacuous.errors import BadInput

#: How the failure probability is shared when the empirical risk was itself sampled.
SAMPLING_SHARE = 5


def bound(
    *,
    examples: WholeNumber,
    risk: float | None = None,
    kl: float | None = None,
    log_ratio: Annotated[float | None, Parameter(allow_leading_hyphen=True)] = None,
    errors: OptionalWholeNumber = None,
    trials: OptionalWholeNumber = None,
    sampling_failure: float | None = None,
    temperature: float | None = None,
    second_moment: float | None = None,
    compare_paid: Annotated[bool, SWITCH] = False,
    confidence: float = 0.95,
    json: Json = False,
) -> int:
    """Calculate every bound that follows from a few numbers, side by side.

    Parameters
    ----------
    examples
        Number of independent examples the error was measured on, not counting any that trained
        the prior.
    risk
        Error on these examples, in [0, 1]: the mean over the posterior with --kl, that of the
        drawn network itself with --log-ratio.
    kl
        KL(posterior || prior), in nats.
    log_ratio
        ln(posterior density / prior density) at the drawn weights, in nats. May be negative.
    errors
        Number of errors: on the held-out examples, or with --trials among random trials.
    trials
        The mean error over the posterior was itself sampled: --errors errors in this many
        independent trials, each with a random example and fresh weights.
    sampling_failure
        Failure probability set aside for the sampling; a fifth of the whole by default.
    temperature
        Adds Catoni's bound at this temperature, if it was fixed before the data were seen.
    second_moment
        Adds the empirical Bernstein bound: the mean squared loss, for losses between 0 and 1.
    compare_paid
        Pay for the comparison: give each event its share of the failure probability and report
        the smallest bound. Decide on this before looking at the numbers.
    confidence
        Probability, over the draw of the examples, that the bound holds.
    """
    try:
        record = _calculate(
            examples=checks.count("--examples", examples, minimum=1),
            risk=_optional(checks.unit_interval, "--risk", risk),
            kl=_optional(checks.non_negative, "--kl", kl),
            log_ratio=_optional(checks.real, "--log-ratio", log_ratio),
            errors=_optional(checks.count, "--errors", errors),
            trials=None if trials is None else checks.count("--trials", trials, minimum=1),
            sampling_failure=sampling_failure,
            temperature=_optional(checks.positive, "--temperature", temperature),
            second_moment=_optional(checks.unit_interval, "--second-moment", second_moment),
            compare_paid=compare_paid,
            confidence=checks.real("--confidence", confidence),
        )
    except UsageError:
        raise
    except BadInput as error:
        # Everything this command reads comes from its flags.
        raise UsageError(str(error)) from error
    if json:
        write_json(record)
    else:
        write_text(record)
    return DONE


def _optional(check: Any, flag: str, value: Any) -> Any:
    return None if value is None else check(flag, value)


def _calculate(
    *,
    examples: int,
    risk: float | None,
    kl: float | None,
    log_ratio: float | None,
    errors: int | None,
    trials: int | None,
    sampling_failure: float | None,
    temperature: float | None,
    second_moment: float | None,
    compare_paid: bool,
    confidence: float,
) -> dict[str, Any]:
    given = {
        "--risk": risk,
        "--kl": kl,
        "--log-ratio": log_ratio,
        "--errors": errors,
        "--trials": trials,
        "--sampling-failure": sampling_failure,
        "--temperature": temperature,
        "--second-moment": second_moment,
        "--compare-paid": compare_paid or None,
    }
    present = {flag for flag, value in given.items() if value is not None}
    predictor = _predictor(present)
    budget = bounds.ConfidenceBudget(failure_of(confidence))
    inputs: dict[str, float | int] = {"examples": examples}
    extra: dict[str, Any] = {}

    if predictor == "held-out":
        assert errors is not None
        _check_errors(errors, "--examples", examples)
        failure = budget.spend_rest("bound", reason="exact binomial tail")
        comparison = families.held_out(errors=errors, examples=examples, failure=failure)
        inputs["errors"] = errors
        extra = _other_ends(errors, examples, failure)
    elif predictor == "drawn":
        assert risk is not None and log_ratio is not None
        failure = budget.spend_rest("bound", reason="PAC-Bayes-kl for one draw")
        comparison = families.drawn_network(
            empirical_risk=risk, log_density_ratio=log_ratio, examples=examples, failure=failure
        )
        inputs |= {"empirical_risk": risk, "log_density_ratio": log_ratio}
    else:
        assert kl is not None
        if trials is not None:
            assert errors is not None
            _check_errors(errors, "--trials", trials)
            risk = _sampled_risk(errors, trials, sampling_failure, budget)
            inputs |= {"errors": errors, "trials": trials}
        assert risk is not None
        if second_moment is not None and second_moment > risk:
            raise UsageError(
                f"--second-moment must not exceed --risk (losses lie in [0, 1], so squares are "
                f"smaller), got --second-moment = {second_moment!r} and --risk = {risk!r}."
            )
        failure = budget.spend_rest("bound", reason="PAC-Bayes")
        comparison = families.randomized_predictor(
            empirical_risk=risk,
            kl_nats=kl,
            examples=examples,
            failure=failure,
            temperature=temperature,
            second_moment=second_moment,
            compare_paid=compare_paid,
        )
        inputs |= {"empirical_risk": risk, "kl_nats": kl}
        observed = errors / trials if errors is not None and trials is not None else risk
        extra = _held_out_reference(observed, examples, budget.failure)

    return {
        "predictor": predictor,
        "inputs": inputs,
        "confidence": confidence,
        "budget": budget.to_dict(),
        "risk_upper": comparison.risk_upper,
        "is_vacuous": comparison.risk_upper >= 1.0,
        "best": comparison.best,
        "compared": comparison.compared,
        "events": comparison.events,
        "failure_each": comparison.failure,
        "smaller_but_not_chosen": list(comparison.cheaper_elsewhere),
        "bounds": [asdict(row) for row in comparison.rows],
        **extra,
    }


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


def _check_errors(errors: int, flag: str, total: int) -> None:
    if errors > total:
        raise UsageError(
            f"--errors must not exceed {flag}, got --errors = {errors} and {flag} = {total}."
        )


def _sampled_risk(
    errors: int, trials: int, share: float | None, budget: bounds.ConfidenceBudget
) -> float:
    failure = budget.failure / SAMPLING_SHARE if share is None else share
    if not 0.0 < failure < budget.failure:
        raise UsageError(
            f"--sampling-failure must lie strictly between 0 and {budget.failure:g}, what "
            f"--confidence leaves for the whole, got --sampling-failure = {failure!r}."
        )
    budget.spend("sampling", failure, reason="the empirical risk was sampled")
    return bounds.sampling(errors=errors, trials=trials, failure=failure)


def _other_ends(errors: int, examples: int, failure: float) -> dict[str, Any]:
    """The lower end alone, and both ends at once for half the failure probability each."""
    half: dict[str, Any] = {"errors": errors, "examples": examples, "failure": failure / 2}
    return {
        "risk_lower": bounds.holdout_lower(errors=errors, examples=examples, failure=failure),
        "interval": [bounds.holdout_lower(**half), bounds.holdout(**half)],
    }


def _held_out_reference(risk: float, examples: int, failure: float) -> dict[str, Any]:
    """What a plain test would promise for the same error on as many held-out examples."""
    errors = min(examples, math.ceil(Decimal(repr(risk)) * examples))
    return {
        "held_out_reference": {
            "errors": errors,
            "examples": examples,
            "risk_upper": bounds.holdout(errors=errors, examples=examples, failure=failure),
        }
    }
