"""What stands beside the promise, counted again: the held-out twin and the observed errors."""

from __future__ import annotations

from functools import partial

from torch import nn

from nonvacuous.audit.probing import Network, Recount, recount
from nonvacuous.certification.candidate import frozen_copy, with_weights
from nonvacuous.certification.measurement import (
    ON_BOUND,
    ON_TEST,
    RANDOMIZED_ON_TEST,
    observation_seed,
    observed_network,
)
from nonvacuous.certification.twin import plain_test, twin_split
from nonvacuous.records import Observation
from nonvacuous.risk import zero_one
from nonvacuous.rules.digests import fixed_tensors
from nonvacuous.rules.drawing import OBSERVED as TILTED
from nonvacuous.rules.drawing import set_aside
from nonvacuous.verification.findings import Disagreement, equal
from nonvacuous.verification.inquiry import Inquiry, agree
from nonvacuous.verification.network import fixed_into, unfolded_module_of
from nonvacuous.verification.replaying import compare, sampled

_TWIN = "the held-out twin errs as recorded"


def check_beside(inquiry: Inquiry, module: nn.Module) -> None:
    """Neither is part of the promise, but people compare it with them."""
    if inquiry.certificate.held_out_twin is not None:
        _check_twin(inquiry, module)
    for position, observation in enumerate(inquiry.certificate.observed):
        field, name = f"observed.{position}", f"counted again: {observation.name}"
        if observation.name.endswith(ON_TEST) and inquiry.known.test is None:
            why = "the test examples were not given."
            inquiry.skip(name, f"{field}.errors", why, needed=False)
            continue
        work = partial(_observed, inquiry, module, observation, field)
        inquiry.expect(name, f"{field}.errors", work)


def _observed(inquiry: Inquiry, module: nn.Module, seen: Observation, field: str) -> str:
    certificate, contents, known = inquiry.certificate, inquiry.contents, inquiry.known
    posterior, test = contents.posterior, known.test
    if seen.name == RANDOMIZED_ON_TEST and posterior is not None and test is not None:
        seed = observation_seed(certificate.seed, posterior.digest())
        again = sampled(inquiry, module, test, zero_one, seen.trials, seed)
        return compare(certificate, again, errors=seen.errors, total=None)
    if seen.name == TILTED and contents.prior is not None:
        aside = known.examples.subset(set_aside(known.split.prior, certificate.seed)[1])
        own = Network.of(with_weights(module, contents.prior.means))
        return _counted(recount(own, aside, zero_one), seen, field)
    who = observed_network(certificate.predictor)
    tested = {f"{who} {ON_BOUND}": known.bound_part, f"{who} {ON_TEST}": test}.get(seen.name)
    if tested is None:
        raise Disagreement(f"no run observes {seen.name!r}.", f"{field}.name")
    network = module if posterior is None else with_weights(module, posterior.means)
    return _counted(recount(Network.of(network), tested, zero_one), seen, field)


def _counted(again: Recount, seen: Observation, field: str) -> str:
    equal(seen.trials, again.trials, f"{field}.trials")
    agree(again, errors=seen.errors)
    return f"{again.errors} of {again.trials}."


def _check_twin(inquiry: Inquiry, module: nn.Module) -> None:
    certificate, contents, known = inquiry.certificate, inquiry.contents, inquiry.known
    claimed, prior = certificate.held_out_twin, contents.prior
    assert claimed is not None
    learned = certificate.prior is not None and certificate.prior.saw is not None
    if (prior if learned else contents.twin) is None:
        why = "its network is not stored."
        inquiry.skip(_TWIN, "held_out_twin.errors", why, needed=False)
        return

    def work() -> str:
        if learned and prior is not None:
            network, split = with_weights(module, prior.means), known.split
        else:
            tensors = contents.twin or {}
            fits = tensors.keys() <= fixed_tensors(module).keys()
            network = frozen_copy(module if fits else unfolded_module_of(inquiry))
            network = fixed_into(network, tensors)
            split = twin_split(known.examples, certificate.seed)
        again = plain_test(
            network, known.examples, split, failure=claimed.failure, separate=not learned
        )
        equal(claimed.description, again.description, "held_out_twin.description")
        equal(claimed.examples, again.examples, "held_out_twin.examples")
        counted = recount(Network.of(network), known.examples.subset(split.bound), zero_one)
        agree(counted, errors=claimed.errors)
        return f"{counted.errors} of {counted.trials}, counted again."

    inquiry.expect(_TWIN, "held_out_twin.errors", work)
