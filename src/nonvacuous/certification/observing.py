"""Error rates beside the promise: what is observed, and under which names."""

from __future__ import annotations

import torch
from torch import nn

from nonvacuous.certification.counting import count_errors
from nonvacuous.certification.job import Job
from nonvacuous.data import Examples, Split
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.records import Observation
from nonvacuous.risk import estimate_risk, zero_one
from nonvacuous.seeds import derived_seed

ON_BOUND, ON_TEST = "on the bound examples", "on the test examples"
RANDOMIZED_ON_TEST = f"the randomized network {ON_TEST}"
#: Trials of the randomized network on the test examples, at most.
_TRIALS = 20_000


def observed_network(predictor: str) -> str:
    return "the network" if predictor == "deterministic" else "the network with the mean weights"


def observation_seed(seed: int, posterior_digest: str) -> int:
    return derived_seed(seed, "test", posterior_digest)


def observations(
    job: Job, module: nn.Module, split: Split, posterior: DiagonalGaussian | None
) -> tuple[Observation, ...]:
    """Plain error rates; the test examples are read here, once, at the end."""
    network = observed_network(job.predictor)
    parts: list[tuple[str, Examples]] = [(ON_BOUND, job.examples.subset(split.bound))]
    if job.test is not None:
        parts.append((ON_TEST, job.test))
    observed = [
        Observation(name=f"{network} {where}", errors=count_errors(module, part), trials=len(part))
        for where, part in parts
    ]
    if job.test is not None and job.predictor == "stochastic" and posterior is not None:
        seed = observation_seed(job.seed, posterior.digest())
        estimate = estimate_risk(
            module,
            posterior,
            job.test.to(job.device),
            loss=zero_one,
            trials=min(job.trials, _TRIALS),
            generator=torch.Generator(device=job.device).manual_seed(seed),
        )
        assert estimate.errors is not None
        observed.append(
            Observation(name=RANDOMIZED_ON_TEST, errors=estimate.errors, trials=estimate.trials)
        )
    return tuple(observed)
