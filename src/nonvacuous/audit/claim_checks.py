"""What is claimed: a known theorem, its inputs, its value, and nothing beyond it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from nonvacuous.audit.evidence import Evidence
from nonvacuous.audit.registry import Outcome, check, doubtful, holds, refuse
from nonvacuous.bounds import maurer_moment, rounding
from nonvacuous.certificate import PREDICTORS
from nonvacuous.records import ComplexityRecord, RiskRecord
from nonvacuous.rules.arithmetic import recompute_bound, theorem
from nonvacuous.sparsity_records import SparsityRecord

#: What the losses of a sparsity certificate are measured on; its theorem speaks of the network.
NOISY = "noise around the network"
_NOISY_INPUTS = ("loss_upper", "escape", "grid_nats")


@check(rows=(9, 22), since=1, name="the bound is a known theorem")
def known_theorem(evidence: Evidence) -> Outcome:
    # Raises for a name outside the registry: bounds by code length, for instance, are not there.
    named = theorem(evidence.bound.name)
    if evidence.bound.theorem != named.source:
        return refuse(
            f"the theorem of {named.name!r} is recorded as {evidence.bound.theorem!r}; it is "
            f"{named.source!r}. Use rules.arithmetic.bound_record."
        )
    return holds(named.source + ".")


@check(rows=(14, 22), since=1, name="the bound was computed from the recorded facts")
def recorded_inputs(evidence: Evidence) -> Outcome:
    wrong = disagreeing_input(
        evidence.bound.inputs, evidence.risk, evidence.complexity, evidence.sparsity
    )
    if wrong is not None:
        name, used, recorded = wrong
        return refuse(
            f"the bound was computed with {name} = {used!r}, but the certificate records "
            f"{recorded!r}: a bound of other numbers, or an average of bounds over batches, is not "
            "this bound. Aggregate the counts, and apply the bound once."
        )
    return holds("empirical risk and complexity are those recorded, applied once.")


def disagreeing_input(
    inputs: Mapping[str, float | int],
    risk: RiskRecord,
    complexity: ComplexityRecord | None,
    sparsity: SparsityRecord | None = None,
) -> tuple[str, float | int, float | int | None] | None:
    """The first input of the bound that is not the recorded number, with both."""
    recorded = {"empirical_risk": risk.risk_upper, "errors": risk.errors}
    recorded |= {name: getattr(complexity, name, None) for name in ("kl_nats", "log_density_ratio")}
    recorded |= {name: getattr(sparsity, name, None) for name in _NOISY_INPUTS}
    odd = (name for name, value in recorded.items() if inputs.get(name, value) != value)
    return next(((name, inputs[name], recorded[name]) for name in odd), None)


@check(rows=(13, 22), since=1, name="the bound can be recomputed")
def recomputed(evidence: Evidence) -> Outcome:
    value = recompute_bound(evidence.bound)
    claimed = evidence.risk_upper
    if claimed is not None and not rounding.same_upper_end(claimed, value):
        return refuse(
            f"the bound is claimed to be {evidence.risk_upper!r}, but its inputs give {value!r}."
        )
    if not solves_its_equation(evidence.bound.name, evidence.bound.inputs, value):
        return refuse(
            f"the bound {value!r} lies below the end of the confidence interval: the inverse of "
            "the binary kl was taken from the wrong side, or cut off."
        )
    return holds(f"recomputed from its inputs: {value:.6g}.")


def solves_its_equation(name: str, inputs: Mapping[str, float | int], value: float) -> bool:
    """For bounds that invert the binary kl: kl(empirical risk, value) reaches the right side.

    Written out plainly, apart from the functions that it checks.
    """
    if name not in ("seeger", "disintegrated", "derandomized") or value >= 1.0:
        return True
    n = int(inputs["examples"])
    if name == "derandomized":
        q, cost = float(inputs["loss_upper"]), float(inputs["kl_nats"]) + float(inputs["grid_nats"])
        # The noisy loss sees all but this share of the errors.
        value *= 1.0 - float(inputs["escape"])
    else:
        q = float(inputs["empirical_risk"])
        cost = float(inputs["kl_nats" if name == "seeger" else "log_density_ratio"])
    moment = maurer_moment(n) if inputs.get("exact_moment") else 2.0 * math.sqrt(n)
    right = max(0.0, cost + math.log(moment) - math.log(float(inputs["failure"]))) / n
    left = 0.0 if q == 0.0 else q * math.log(q / value)
    left += 0.0 if q == 1.0 else (1.0 - q) * math.log((1.0 - q) / (1.0 - value))
    # The plain formula cancels; its error is a few units of rounding of the terms themselves.
    return value >= q * (1.0 - 1e-15) and left >= right - 1e-9 * right - 1e-14


@check(rows=(17,), since=1, name="the promise is about the predictor that was measured")
def right_predictor(evidence: Evidence) -> Outcome:
    measured = evidence.measured_predictor
    if evidence.kind.noisy and measured != NOISY:
        return refuse(
            f"losses were measured on the {measured} predictor; the theorem starts from losses of "
            "noise around the network, which see its errors. Measure those."
        )
    if not evidence.kind.noisy and evidence.predictor != measured:
        return refuse(
            f"the promise is about the {evidence.predictor} predictor, but the risk of the "
            f"{measured} one was measured; the mean network, the ensemble and "
            "the randomized network have different risks. Measure the one that is promised."
        )
    if evidence.predictor not in evidence.kind.predictors:
        return refuse(
            f"a certificate of mode {evidence.mode!r} cannot be about the {evidence.predictor} "
            "predictor."
        )
    named = theorem(evidence.bound.name)
    if evidence.predictor not in named.about:
        return refuse(
            f"{named.name!r} is a theorem about the {' or '.join(named.about)} predictor, not "
            f"about the {evidence.predictor} one. Use a bound for it."
        )
    if evidence.kind.noisy:
        return holds(
            "measured: noise around the network; promised: the network itself, whose every error "
            "the noisy loss sees with the chance that the bound is divided by."
        )
    return holds(f"measured and promised: {PREDICTORS[evidence.predictor]}.")


@check(rows=(19,), since=1, name="the test examples were read after the end")
def test_read_last(evidence: Evidence) -> Outcome:
    reads = evidence.test_reads
    if "freeze" not in reads and any(reads):
        return doubtful(
            "test examples were read, and nothing shows that the network was frozen before. The "
            "measured test error may be too good; the promise itself rests on the bound examples."
        )
    early = reads[: reads.index("freeze")] if "freeze" in reads else ()
    if early:
        return doubtful(
            f"test examples were read for {early[0]!r} before the network was frozen, so they may "
            "have shaped it: the measured test error is not a test any more. Use other examples "
            "for such choices."
        )
    return holds("nothing looked at test examples before the network was frozen.")


@check(rows=(24,), since=1, name="the promise says no more than the theorem")
def not_beyond(evidence: Evidence) -> Outcome:
    confidence = 1.0 - evidence.budget.failure
    if evidence.confidence is not None and abs(evidence.confidence - confidence) > 1e-15:
        return refuse(
            f"confidence {evidence.confidence!r} is claimed, but the ledger pays for "
            f"{confidence!r}."
        )
    data, examples = evidence.data, evidence.examples
    if data is not None:
        for what, claimed, measured in (
            ("name", data.name, examples.name),
            ("classes", data.classes, examples.classes),
            ("preprocessing", data.preprocessing, evidence.evaluation_transform),
        ):
            if claimed != measured:
                return refuse(
                    f"the promise is about data with {what} {claimed!r}, but the bound examples "
                    f"have {measured!r}: it does not carry over to other data."
                )
    return holds(
        f"it is about inputs drawn as the {evidence.bound_examples} bound examples of "
        f"{examples.name} were, with confidence {confidence:g}."
    )
