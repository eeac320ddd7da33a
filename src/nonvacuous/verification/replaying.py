"""The randomized network sampled again: with the recorded seed, then with one that nobody knew."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from nonvacuous.audit.probing import Recount, close_calls
from nonvacuous.bounds import holdout_lower, kl_inverse_lower, kl_inverse_upper
from nonvacuous.bounds.rounding import shown_up
from nonvacuous.certificate import Certificate
from nonvacuous.certification.assemble import software
from nonvacuous.data import Examples
from nonvacuous.risk import Loss, estimate_risk
from nonvacuous.rules.arithmetic import SAMPLING_LINE, line, recompute_bound, sampled_risk, share
from nonvacuous.verification.findings import FALSE_ALARM, Disagreement, same_rate
from nonvacuous.verification.inquiry import Inquiry

REPLAY = "the recorded trials give the recorded errors"
FRESH = "the risk holds in fresh trials"


def check_samples(inquiry: Inquiry, module: nn.Module, loss: Loss) -> None:
    """Both samples, on the CPU."""
    certificate, bound_part = inquiry.certificate, inquiry.known.bound_part
    claimed = certificate.empirical
    field = "empirical.errors" if claimed.total is None else "empirical.total"

    def replay() -> str:
        if claimed.scheme != "pairs":
            raise Disagreement(f"{claimed.scheme!r} is no scheme of a run.", "empirical.scheme")
        again = sampled(inquiry, module, bound_part, loss, claimed.trials, claimed.seed)
        return compare(certificate, again, errors=claimed.errors, total=claimed.total)

    inquiry.expect(REPLAY, field, replay)
    # Whoever made the certificate must not know it: a posterior can be fitted to known draws.
    seed = secrets.randbits(63) if inquiry.seed is None else inquiry.seed

    def fresh() -> str:
        phase = "fresh trials"
        again = sampled(inquiry, module, bound_part, loss, inquiry.trials, seed, phase)
        _compare_fresh(certificate, again)
        return (
            f"{again.total:g} in {again.trials} fresh trials (seed {seed}) agree; with them in "
            f"place of the recorded ones the bound is {_own_bound(certificate, again)}."
        )

    inquiry.expect(FRESH, "empirical.risk_upper", fresh)


def sampled(
    inquiry: Inquiry,
    module: nn.Module,
    examples: Examples,
    loss: Loss,
    trials: int,
    seed: int,
    phase: str = "replay",
) -> Recount:
    """Independent trials of the posterior, and how many of them hang on rounding."""
    posterior, progress = inquiry.contents.posterior, inquiry.progress
    assert posterior is not None
    close = 0

    def watched(outputs: Tensor, labels: Tensor) -> Tensor:
        nonlocal close
        values = loss(outputs, labels)
        if loss.binary:
            close += close_calls(outputs, labels, loss, values)
        return values

    estimate = estimate_risk(
        module,
        posterior,
        examples,
        loss=replace(loss, function=watched),
        trials=trials,
        generator=torch.Generator().manual_seed(seed),
        progress=None
        if progress is None
        else lambda done, total: progress(phase, done, total, "independent trials"),
    )
    return Recount(estimate.errors, estimate.total, estimate.trials, close)


def compare(
    certificate: Certificate, again: Recount, *, errors: int | None, total: float | None
) -> str:
    """The same draws on the same kind of machine; elsewhere the seed may draw others."""
    amount = errors if errors is not None else total
    counts = f"{again.total:g} of {again.trials}"
    if again.agrees_with(errors=errors, total=total):
        return f"the recorded seed gives {counts}."
    # Why the recorded seed draws other numbers here, if it does: of devices the kind counts.
    decides = ("device", "torch", "nonvacuous", "draws")
    elsewhere = differences(certificate, decides, lambda text: text.partition(" (")[0])
    if not elsewhere:
        raise Disagreement(
            f"it says {amount:g}; the recorded seed gives {counts} ({again.close} hang on "
            "rounding)."
        )
    if _apart(amount or 0.0, again.trials, again, whole=errors is not None):
        raise Disagreement(
            f"{amount:g} in {again.trials} recorded and {counts} sampled here do not come from the "
            f"same network and examples ({elsewhere[0]})."
        )
    return f"{counts}, compared within sampling error only: {elsewhere[0]}."


def differences(
    certificate: Certificate, names: tuple[str, ...], same: Callable[[str], str] = str
) -> list[str]:
    """What is not as it was where the certificate was made, in words."""
    made, here = certificate.software, software(torch.device("cpu"))
    return [
        f"{name} {made.get(name, 'unknown')} there, {here[name]} here"
        for name in names
        if same(made.get(name, "unknown")) != same(here[name])
    ]


def _compare_fresh(certificate: Certificate, fresh: Recount) -> None:
    """Fail only where an honest certificate would agree with probability 1 - FALSE_ALARM."""
    claimed = certificate.empirical
    if fresh.errors is not None:
        lower = holdout_lower(errors=fresh.errors, examples=fresh.trials, failure=FALSE_ALARM)
    else:
        lower = _end(fresh.total, fresh.trials, FALSE_ALARM, upper=False)
    if lower > claimed.risk_upper:
        raise Disagreement(
            f"{fresh.total:g} in {fresh.trials} fresh trials put the risk above {lower:.6g}; the "
            f"certificate says at most {shown_up(claimed.risk_upper, 6)}."
        )
    if _apart(claimed.amount, claimed.trials, fresh, whole=claimed.errors is not None):
        raise Disagreement(
            f"{claimed.amount:g} in {claimed.trials} recorded and {fresh.total:g} in "
            f"{fresh.trials} fresh trials do not come from the same network and examples.",
            "empirical.errors" if claimed.total is None else "empirical.total",
        )


def _apart(amount: float, trials: int, again: Recount, *, whole: bool) -> bool:
    """Whether two samples of one law would differ like this with chance below FALSE_ALARM."""
    if whole and again.errors is not None:
        return same_rate(int(amount), trials, again.errors, again.trials) < FALSE_ALARM
    half = FALSE_ALARM / 4
    lower, upper = (_end(again.total, again.trials, half, upper=end) for end in (False, True))
    return lower > _end(amount, trials, half, upper=True) or upper < _end(
        amount, trials, half, upper=False
    )


def _end(total: float, trials: int, failure: float, *, upper: bool) -> float:
    """One end of a confidence interval for the mean of independent trials in [0, 1]."""
    mean, exponent = min(1.0, total / trials), -math.log(failure) / trials
    inverse = kl_inverse_upper if upper else kl_inverse_lower
    return float(inverse(mean, exponent))


def _own_bound(certificate: Certificate, fresh: Recount) -> str:
    """The bound as the verifier's own trials give it: nobody's word about sampling is in it."""
    counts = certificate.empirical.model_copy(
        update={
            "errors": fresh.errors,
            "total": None if fresh.errors is not None else fresh.total,
            "trials": fresh.trials,
        }
    )
    risk = sampled_risk(counts, share(line(certificate.budget, SAMPLING_LINE)))
    inputs = {**certificate.bound.inputs, "empirical_risk": risk}
    return shown_up(recompute_bound(certificate.bound.model_copy(update={"inputs": inputs})))
