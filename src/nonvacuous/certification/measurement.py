"""A frozen posterior in numbers: its empirical risk, its cost, the bound, all paid for.

Beside the promise stand plain error rates, and the held-out twin: what a plain test on examples set
aside would promise, on the same data. The twin's network is kept in the run folder, so that whoever
verifies can count its errors again; that of a learned prior is the prior's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from nonvacuous import records
from nonvacuous.bounds import holdout
from nonvacuous.certification.candidate import Candidate, frozen_copy, with_weights
from nonvacuous.certification.job import Job
from nonvacuous.data import Examples, Split, make_split
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks import LayerGraph
from nonvacuous.progress import Progress
from nonvacuous.risk.losses import Loss, zero_one
from nonvacuous.risk.pairs import RiskEstimate, estimate_risk
from nonvacuous.rules import arithmetic, digests, outcomes, symmetries
from nonvacuous.rules.drawing import draw_network, sampling_seed, temperature
from nonvacuous.seeds import derived_seed
from nonvacuous.training import erm, loop
from nonvacuous.training_settings import PlainTraining


def summed_loss(module: nn.Module, examples: Examples, loss: Loss) -> float:
    """The sum of the loss over the examples, each seen once by the network in evaluation mode."""
    pairs = outcomes.predictions(module, examples)
    return float(sum(loss(scores, labels).double().sum() for scores, labels in pairs))


def count_errors(module: nn.Module, examples: Examples) -> int:
    """How many examples the network gets wrong; a tie is an error."""
    return round(summed_loss(module, examples, zero_one))


def observation(name: str, module: nn.Module, examples: Examples) -> records.Observation:
    """The errors of a network, to stand beside a promise."""
    errors = count_errors(module, examples)
    return records.Observation(name=name, errors=errors, trials=len(examples))


@dataclass(frozen=True, eq=False)
class Measured:
    """The numbers of one certificate, before anybody has looked for mistakes in them."""

    budget: records.BudgetRecord
    risk: records.RiskRecord
    bound: records.BoundRecord
    measured_predictor: str
    complexity: records.ComplexityRecord | None = None
    #: (purpose, seed) of every random stream used on the way.
    draws: tuple[tuple[str, int], ...] = ()
    drawn: dict[str, torch.Tensor] | None = None
    #: Facts for the audit that only certificates of one kind have.
    facts: dict[str, Any] = field(default_factory=dict)


def measure(job: Job, candidate: Candidate, complexity: records.ComplexityRecord) -> Measured:
    """The posterior, or one network drawn from it: whatever the promise is about."""
    drawn, tilt, examples = job.predictor == "drawn", candidate.tilt, len(job.split.bound)
    budget = job.budget(
        sampled=not drawn, choices=candidate.prior_choices, measured=candidate.measured
    )
    failure = budget.bound.share
    # The seed depends on the frozen posterior: it did not exist before, and is used once.
    frozen = frozen_posterior(candidate.posterior)
    seed = sampling_seed(job.seed, frozen["posterior_at_risk"], candidate.noise_digest)
    weights, further = None, dict[str, float](exact_moment=True)
    if drawn:
        weights = draw_network(candidate.posterior, seed)
        total = summed_loss(with_weights(candidate.module, weights), job.bound_part, job.loss)
        binary = job.loss.binary
        counts: Any = {"errors": round(total)} if binary else {"errors": None, "total": total}
        risk = arithmetic.counted_once(**counts, trials=examples, seed=seed)
        ratio = candidate.posterior.log_density_ratio(candidate.prior, weights)
        complexity = complexity.model_copy(update={"log_density_ratio": ratio})
        name, price = "disintegrated", {"log_density_ratio": ratio}
    else:
        estimate = trials_of(
            candidate.module,
            candidate.posterior,
            job.bound_part,
            loss=job.loss,
            trials=job.trials,
            seed=seed,
            device=job.device,
            progress=job.progress,
        )
        risk = arithmetic.risk_record(
            budget.sampling.share,
            errors=estimate.errors,
            total=estimate.total if estimate.errors is None else None,
            trials=estimate.trials,
            scheme="pairs",
            identical=estimate.identical,
            seed=seed,
        )
        name, price = "seeger", {"kl_nats": complexity.kl_nats}
    if not drawn and tilt is not None:
        # At the temperature that prior examples chose, instead of for all temperatures at once.
        suits = temperature(
            errors=tilt.errors, trials=tilt.trials, examples=examples, failure=failure
        )
        name, further = "catoni", {"temperature": suits}
    bound = arithmetic.bound_record(
        name, empirical_risk=risk.risk_upper, **price, examples=examples, failure=failure, **further
    )
    draws = (("sampling", seed),)
    return Measured(budget, risk, bound, job.predictor, complexity, draws, weights, frozen)


def frozen_posterior(posterior: DiagonalGaussian) -> dict[str, str]:
    """For the audit: the posterior as it is between its KL and the measuring of its risk."""
    digest = posterior.digest()
    return {"posterior_at_kl": digest, "posterior_at_risk": digest}


def trials_of(
    module: nn.Module,
    posterior: DiagonalGaussian,
    examples: Examples,
    *,
    loss: Loss,
    trials: int,
    seed: int,
    device: torch.device,
    progress: Progress | None = None,
    phase: str = "sampling",
) -> RiskEstimate:
    """The losses of so many independent pairs of an example and weights, drawn by the seed."""
    return estimate_risk(
        module,
        posterior,
        examples.to(device),
        loss=loss,
        trials=trials,
        generator=torch.Generator(device=device).manual_seed(seed),
        progress=None
        if progress is None
        else lambda done, total: progress(phase, done, total, "independent trials"),
    )


def complexity_of(
    job: Job,
    posterior: DiagonalGaussian,
    prior: DiagonalGaussian,
    graph: LayerGraph | None,
    *,
    overlaps: bool = True,
) -> records.ComplexityRecord:
    """The complexity that enters the bound; without a graph no symmetry is known.

    Without ``overlaps`` units are not compared, which takes long, and it is no larger: as much is
    saved then as if no two units were alike, which can be more than there is.
    """
    terms = tuple(
        records.KlTerm(tensor=name, size=posterior.means[name].numel(), nats=nats)
        for name, nats in posterior.kl_to(prior).items()
    )
    savings: tuple[records.SymmetrySaving, ...] = ()
    which, loss = job.method.quotients, job.loss.name
    if which and graph is not None:
        savings = symmetries.symmetry_savings(
            graph, posterior, prior, loss=loss, which=which, overlaps=overlaps
        )
    units = any(saving.symmetry == "permutation" for saving in savings)
    saved = sum(saving.nats for saving in savings)
    all_of_it = units and not overlaps and saved > arithmetic.complexity_nats(terms)
    nats = 0.0 if all_of_it else arithmetic.complexity_nats(terms, savings)
    return records.ComplexityRecord(terms=terms, symmetries=savings, kl_nats=nats)


ON_BOUND, ON_TEST = "on the bound examples", "on the test examples"
RANDOMIZED_ON_TEST = f"the randomized network {ON_TEST}"
DRAWN_ON_TEST = f"a checkpoint drawn for each input {ON_TEST}"
LAST_ON_TEST = f"the last checkpoint {ON_TEST}"
#: What is observed of two networks on the test examples, if anything is, by the predictor.
BOTH = {
    "stochastic": (f"the network with the mean weights {ON_TEST}", RANDOMIZED_ON_TEST),
    "mixture": (DRAWN_ON_TEST, LAST_ON_TEST),
}
#: Trials of the randomized network on the test examples, at most.
_TRIALS = 20_000


def observed_network(predictor: str) -> str:
    return "the network" if predictor == "deterministic" else "the network with the mean weights"


def observation_seed(seed: int, posterior_digest: str) -> int:
    return derived_seed(seed, "test", posterior_digest)


def observations(
    job: Job, module: nn.Module, posterior: DiagonalGaussian | None
) -> tuple[records.Observation, ...]:
    """Plain error rates; the test examples are read here, once, at the end."""
    network = observed_network(job.predictor)
    observed = [observation(f"{network} {ON_BOUND}", module, job.bound_part)]
    if job.test is not None:
        observed.append(observation(f"{network} {ON_TEST}", module, job.test))
    if job.test is not None and job.predictor == "stochastic" and posterior is not None:
        seed, trials = observation_seed(job.seed, posterior.digest()), min(job.trials, _TRIALS)
        estimate = trials_of(
            module, posterior, job.test, loss=zero_one, trials=trials, seed=seed, device=job.device
        )
        assert estimate.errors is not None
        counts = {"errors": estimate.errors, "trials": estimate.trials}
        observed.append(records.Observation(name=RANDOMIZED_ON_TEST, **counts))
    return tuple(observed)


#: The twin of a certificate that needs no prior data trains on this part and tests on the rest.
TRAINED_FRACTION = 0.8
#: Where the twin's network is kept.
TWIN_FILE = "twin.safetensors"


def twin_seed(seed: int) -> int:
    return derived_seed(seed, "held-out twin")


def twin_split(examples: Examples, seed: int) -> Split:
    """What a twin of its own trains on (``prior``), and what it is tested on (``bound``)."""
    return make_split(
        len(examples),
        prior_fraction=TRAINED_FRACTION,
        seed=twin_seed(seed),
        content_hashes=examples.content_hashes(),
    )


def plain_test(
    network: nn.Module, examples: Examples, split: Split, *, failure: float, separate: bool
) -> records.TwinRecord:
    """Of a network that was trained for it (:func:`twin_split`), or of a learned prior's own."""
    tested = examples.subset(split.bound)
    errors = count_errors(network, tested)
    trained, count = len(split.prior), len(tested)
    words = (
        f"the same architecture trained plainly on {trained} of the examples and tested once "
        f"on the other {count}"
        if separate
        else f"the network with the prior's mean weights, trained on {trained} examples and "
        f"tested once on the {count} bound examples"
    )
    return twin_record(words, errors, count, failure)


def twin_record(description: str, errors: int, examples: int, failure: float) -> records.TwinRecord:
    counts = {"errors": errors, "examples": examples}
    upper = holdout(**counts, failure=failure)
    return records.TwinRecord(description=description, **counts, failure=failure, risk_upper=upper)


def separate_twin(job: Job, network: nn.Module, split: Split) -> records.TwinRecord:
    """Keep the network of a twin, and test it."""
    job.folder.tensors(TWIN_FILE, digests.fixed_tensors(network))
    return plain_test(network, job.examples, split, failure=job.failure, separate=True)


def trained_twin(job: Job, start: nn.Module, training: PlainTraining) -> records.TwinRecord:
    """The same architecture, trained plainly on four fifths of the data and tested on the rest."""
    split = twin_split(job.examples, job.seed)
    trained = erm.train(
        start,
        job.examples.subset(split.prior),
        training.changed(patience=None),
        seed=twin_seed(job.seed),
        device=job.device,
        records=loop.Records(
            checkpoint=job.folder.file("twin.checkpoint"),
            progress=job.progress,
            phase="held-out twin",
        ),
    ).module
    return separate_twin(job, trained, split)


def candidate_twin(
    job: Job, candidate: Candidate, start: nn.Module, training: PlainTraining
) -> records.TwinRecord:
    """The prior's own network on the bound examples, or one that is trained from ``start``."""
    if candidate.prior_saw is None:
        return trained_twin(job, frozen_copy(start).requires_grad_(True), training)
    own = with_weights(candidate.module, candidate.prior.means)
    return plain_test(own, job.examples, job.split, failure=job.failure, separate=False)
