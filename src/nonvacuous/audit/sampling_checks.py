"""How the posterior's risk was measured: independent trials, one shot, paid for."""

from __future__ import annotations

from nonvacuous.audit.evidence import Evidence
from nonvacuous.audit.registry import Outcome, check, holds, refuse
from nonvacuous.bounds.rounding import same_upper_end
from nonvacuous.kinds import PRIOR_MODES, RANDOM_MODES
from nonvacuous.rules.arithmetic import ONCE, sampled_risk
from nonvacuous.rules.drawing import sampling_seed

FREEZE = "freeze"
SAMPLING = "sampling"


@check(rows=(18,), since=1, name="the risk was measured on the evaluation inputs")
def no_augmentation(evidence: Evidence) -> Outcome:
    if evidence.risk_transform != evidence.evaluation_transform:
        return refuse(
            f"the risk was measured on inputs transformed by {evidence.risk_transform!r}, but the "
            f"promise is about {evidence.evaluation_transform!r}: augmented inputs are other "
            "examples. Measure again without augmentation."
        )
    return holds(f"both are transformed by: {evidence.evaluation_transform}.")


@check(rows=(11, 14, 15), since=1, name="the risk is a count of independent trials")
def independent_trials(evidence: Evidence) -> Outcome:
    risk, stochastic = evidence.risk, evidence.predictor == "stochastic"
    counts = [risk.trials] if risk.errors is None else [risk.trials, risk.errors]
    if any(isinstance(n, bool) or not isinstance(n, int) for n in counts):
        return refuse(
            f"errors and trials must be whole numbers, got {risk.errors!r} of {risk.trials!r}: an "
            "average of averages is not a count. Add up counts over all batches."
        )
    if risk.errors is not None and not evidence.loss.binary:
        return refuse(
            f"the loss {evidence.loss.name!r} is not only 0 or 1, so its sum must be recorded; "
            "a number of errors says nothing. Record the total of its losses."
        )
    if risk.scheme == ONCE:
        if stochastic:
            return refuse(
                "the randomized network was measured once on every example, which is one draw of "
                "many: its risk is an average over draws. Use estimate_risk."
            )
        if risk.trials != evidence.bound_examples:
            return refuse(
                f"{risk.trials} trials are recorded for {evidence.bound_examples} bound examples, "
                "each once: the division uses a wrong count."
            )
        return holds(f"{risk.trials} bound examples, each once.")
    if evidence.kind.noisy:
        return _noisy(evidence)
    if not stochastic or risk.scheme == "fresh noise":
        return refuse(
            f"the scheme {risk.scheme!r} averages over draws of the weights, but the promise is "
            "about one network. Measure that network on every bound example."
        )
    if not risk.identical:
        return holds("independent trials of different laws; the kl form of the tail is used.")
    return holds(f"{risk.trials} pairs of an example and weights, each drawn afresh.")


def _noisy(evidence: Evidence) -> Outcome:
    """Every example equally often, with noise of its own each time."""
    risk, record = evidence.risk, evidence.sparsity
    if record is None or risk.scheme != "fresh noise" or risk.identical:
        return refuse(
            f"noisy losses of different examples are independent trials of different laws, but "
            f"they are recorded as {risk.scheme!r}, identical: {risk.identical}. Record them as "
            "'fresh noise', not identical: only the kl form of the tail holds for them."
        )
    expected = record.passes * evidence.bound_examples
    if record.passes < 1 or risk.trials != expected:
        return refuse(
            f"{record.passes} noisy networks for each of {evidence.bound_examples} bound examples "
            f"make {expected} trials, not {risk.trials}: the division uses a wrong count."
        )
    return holds(
        f"{record.passes} noisy networks for each bound example, {risk.trials} in all, each with "
        "noise of its own; the kl form of the tail is used."
    )


def drawn_after(
    evidence: Evidence, expected: int, *, what: str, used: str, samples: int = 1
) -> Outcome:
    """Whether it was frozen once, then sampled so often, always from this seed."""
    purposes = [purpose for purpose, _ in evidence.draws]
    if purposes.count(FREEZE) != 1:
        return refuse(
            f"the {what} was frozen {purposes.count(FREEZE)} times according to the record of "
            "draws; it must be frozen exactly once, before anything is sampled."
        )
    frozen = purposes.index(FREEZE)
    if any(seed == expected or purpose == SAMPLING for purpose, seed in evidence.draws[:frozen]):
        return refuse(
            f"the sampling seed was used before the {what} was frozen, which may have been fitted "
            "to these draws. Sample once, at the end."
        )
    after = [seed for purpose, seed in evidence.draws[frozen:] if purpose == SAMPLING]
    if after != [expected] * samples:
        return refuse(
            f"the risk was sampled {len(after)} times after freezing, and the recorded seed must "
            "be the only one: repeating until the number is smaller makes it false. Sample once."
        )
    return holds(used)


@check(
    rows=(12,), since=1, name="the sampling seed was used once, after freezing", modes=RANDOM_MODES
)
def one_shot(evidence: Evidence) -> Outcome:
    if evidence.posterior is None:
        return refuse("there is no posterior, so nothing was frozen.")
    expected = sampling_seed(evidence.seed, evidence.posterior.digest(), evidence.noise_digest)
    if evidence.risk.seed != expected:
        return refuse(
            f"the risk was sampled with seed {evidence.risk.seed}, not with the one derived from "
            "the frozen posterior: seeds may have been tried until one pleased. Use "
            'derived_seed(seed, "sampling", posterior.digest()).'
        )
    used = "derived from the frozen posterior's digest and used once."
    return drawn_after(evidence, expected, what="posterior", used=used)


@check(rows=(3, 12), since=1, name="the risk belongs to the frozen posterior", modes=PRIOR_MODES)
def risk_is_current(evidence: Evidence) -> Outcome:
    if evidence.posterior is None or evidence.posterior_at_risk != evidence.posterior.digest():
        words = "the posterior changed after its risk was measured (another digest)."
        return refuse(f"{words} Measure the frozen posterior.")
    return holds("the posterior has the digest it had when its risk was measured.")


@check(rows=(10,), since=1, name="the sampling error is paid for")
def sampling_paid(evidence: Evidence) -> Outcome:
    risk = evidence.risk
    failure = None if risk.scheme == ONCE else evidence.budget.sampling.share
    expected = sampled_risk(risk, failure)
    if not same_upper_end(risk.risk_upper, expected):
        return refuse(
            f"the empirical risk enters the bound as {risk.risk_upper!r}, but the counts and the "
            f"ledger give {expected!r}. Use rules.arithmetic.sampled_risk."
        )
    nothing = "nothing was sampled: every bound example was looked at once."
    return holds(nothing if failure is None else f"the ledger pays {failure:.3g} for it.")
