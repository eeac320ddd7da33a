"""Counted again: the randomized network's errors, the held-out twin's, and those observed.

The randomized network is sampled with the recorded seed, then with one that nobody knew.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from nonvacuous.audit.probing import Network, Recount, close_calls, recount
from nonvacuous.bounds import holdout_lower, kl_inverse_lower, kl_inverse_upper, rounding
from nonvacuous.certificate import Certificate
from nonvacuous.certification import assemble, candidate, measurement
from nonvacuous.data import Examples
from nonvacuous.distributions.storage import read_tensors
from nonvacuous.files import inside
from nonvacuous.records import Observation, RiskRecord
from nonvacuous.risk.losses import Loss, zero_one
from nonvacuous.rules import arithmetic, digests, drawing
from nonvacuous.verification.findings import FALSE_ALARM, Disagreement, NotAsked, equal, same_rate
from nonvacuous.verification.inquiry import Inquiry, agree
from nonvacuous.verification.network import fixed_into, unfolded_module_of

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

    inquiry.expect("the recorded trials give the recorded errors", field, replay)
    # Whoever made the certificate must not know it: a posterior can be fitted to known draws.
    seed = secrets.randbits(63) if inquiry.seed is None else inquiry.seed

    def fresh() -> str:
        phase = "fresh trials"
        again = sampled(inquiry, module, bound_part, loss, inquiry.trials, seed, phase)
        compare_fresh(claimed, again, claimed.risk_upper)
        # The bound as the verifier's own trials give it: nobody's word about sampling is in it.
        total = None if again.errors is not None else again.total
        counts = {"errors": again.errors, "total": total, "trials": again.trials}
        share = certificate.budget.sampling.share
        risk = arithmetic.sampled_risk(claimed.model_copy(update=counts), share)
        inputs = {**certificate.bound.inputs, "empirical_risk": risk}
        own = arithmetic.recompute_bound(certificate.bound.model_copy(update={"inputs": inputs}))
        return (
            f"{again.total:g} in {again.trials} fresh trials (seed {seed}) agree; with them in "
            f"place of the recorded ones the bound is {rounding.shown_up(own)}."
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
    posterior, (watched, close) = inquiry.contents.posterior, watching(loss)
    assert posterior is not None
    estimate = measurement.trials_of(
        module,
        posterior,
        examples,
        loss=watched,
        trials=trials,
        seed=seed,
        device=torch.device("cpu"),
        progress=inquiry.progress,
        phase=phase,
    )
    return Recount(estimate.errors, estimate.total, estimate.trials, sum(close))


def watching(loss: Loss) -> tuple[Loss, list[int]]:
    """The same loss, and for each batch that it is asked about how many hang on rounding."""
    close: list[int] = []

    def watched(outputs: Tensor, labels: Tensor) -> Tensor:
        values = loss(outputs, labels)
        if loss.binary:
            close.append(close_calls(outputs, labels, loss, values))
        return values

    return replace(loss, function=watched), close


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
    made, here = certificate.software, assemble.software(torch.device("cpu"))
    return [
        f"{name} {made.get(name, 'unknown')} there, {here[name]} here"
        for name in names
        if same(made.get(name, "unknown")) != same(here[name])
    ]


def compare_fresh(claimed: RiskRecord, fresh: Recount, upper: float, field: str = "") -> None:
    """Fail only where an honest certificate would agree with probability 1 - FALSE_ALARM.

    ``upper`` is what the mean loss is said to be at most, in ``field``.
    """
    if fresh.errors is not None:
        lower = holdout_lower(errors=fresh.errors, examples=fresh.trials, failure=FALSE_ALARM)
    else:
        lower, _ = _interval(fresh.total, fresh.trials, FALSE_ALARM)
    if lower > upper:
        raise Disagreement(
            f"{fresh.total:g} in {fresh.trials} fresh trials put the risk above {lower:.6g}; the "
            f"certificate says at most {rounding.shown_up(upper, 6)}.",
            field or None,
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
    lower, upper = _interval(again.total, again.trials, FALSE_ALARM / 4)
    least, most = _interval(amount, trials, FALSE_ALARM / 4)
    return lower > most or upper < least


def _interval(total: float, trials: int, failure: float) -> tuple[float, float]:
    """For the mean of independent trials in [0, 1]; each end may fail."""
    mean, exponent = min(1.0, total / trials), -math.log(failure) / trials
    return kl_inverse_lower(mean, exponent), kl_inverse_upper(mean, exponent)


def check_beside(inquiry: Inquiry, module: nn.Module) -> None:
    """Held-out twin and observed errors, which people compare the promise with, counted again."""
    if inquiry.certificate.held_out_twin is not None:
        _check_twin(inquiry, module)
    for position, observation in enumerate(inquiry.certificate.observed):
        field, name = f"observed.{position}", f"counted again: {observation.name}"
        work = partial(_observed, inquiry, module, observation, field)
        inquiry.expect(name, f"{field}.errors", work)


def _observed(inquiry: Inquiry, module: nn.Module, seen: Observation, field: str) -> str:
    certificate, contents, known = inquiry.certificate, inquiry.contents, inquiry.known
    posterior, test = contents.posterior, known.test
    if seen.name.endswith(measurement.ON_TEST) and test is None:
        raise NotAsked("the test examples were not given.", needed=False)
    if seen.name == measurement.RANDOMIZED_ON_TEST and posterior is not None and test is not None:
        seed = measurement.observation_seed(certificate.seed, posterior.digest())
        again = sampled(inquiry, module, test, zero_one, seen.trials, seed)
        return compare(certificate, again, errors=seen.errors, total=None)
    if seen.name == drawing.OBSERVED and contents.prior is not None:
        aside = known.examples.subset(drawing.set_aside(known.split.prior, certificate.seed)[1])
        own = Network.of(candidate.with_weights(module, contents.prior.means))
        return counted(recount(own, aside, zero_one), seen, field)
    who = measurement.observed_network(certificate.predictor)
    tested = {
        f"{who} {measurement.ON_BOUND}": known.bound_part,
        f"{who} {measurement.ON_TEST}": test,
    }.get(seen.name)
    if tested is None:
        raise Disagreement(f"no run observes {seen.name!r}.", f"{field}.name")
    network = module if posterior is None else candidate.with_weights(module, posterior.means)
    return counted(recount(Network.of(network), tested, zero_one), seen, field)


def counted(again: Recount, seen: Observation, field: str) -> str:
    equal(seen.trials, again.trials, f"{field}.trials")
    agree(again, errors=seen.errors)
    return f"{again.errors} of {again.trials}."


def _check_twin(inquiry: Inquiry, module: nn.Module) -> None:
    certificate, contents, known = inquiry.certificate, inquiry.contents, inquiry.known
    claimed, prior = certificate.held_out_twin, contents.prior
    assert claimed is not None
    learned = inquiry.learned

    def work() -> str:
        if learned and prior is not None:
            network, split = candidate.with_weights(module, prior.means), known.split
        elif learned or inquiry.folder is None or measurement.TWIN_FILE not in contents.intact:
            raise NotAsked("its network is not stored.", needed=False)
        else:
            tensors = read_tensors(inside(inquiry.folder, measurement.TWIN_FILE))
            fits = tensors.keys() <= digests.fixed_tensors(module).keys()
            network = candidate.frozen_copy(module if fits else unfolded_module_of(inquiry))
            network = fixed_into(network, tensors)
            split = measurement.twin_split(known.examples, certificate.seed)
        again = measurement.plain_test(
            network, known.examples, split, failure=claimed.failure, separate=not learned
        )
        equal(claimed.description, again.description, "held_out_twin.description")
        equal(claimed.examples, again.examples, "held_out_twin.examples")
        counted = recount(Network.of(network), known.examples.subset(split.bound), zero_one)
        agree(counted, errors=claimed.errors)
        return f"{counted.errors} of {counted.trials}, counted again."

    inquiry.expect("the held-out twin errs as recorded", "held_out_twin.errors", work)
