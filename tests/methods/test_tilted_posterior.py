"""A temperature chosen on the prior part, and posteriors over the last layer alone."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

import nonvacuous as nv
from nonvacuous.bounds import catoni, seeger
from nonvacuous.data import Examples
from nonvacuous.errors import BadInput
from nonvacuous.models import build
from nonvacuous.records import Observation
from nonvacuous.rules.drawing import OBSERVED, set_aside, temperature

FIXED = "what the theorem wants fixed was fixed before the data"
QUICK = {
    "plain_training": nv.PlainTraining(epochs=6, batch_size=32, learning_rate=0.1),
    "training": nv.PosteriorTraining(epochs=2),
    "trials": 5_000,
}


def blobs(count: int = 600, seed: int = 0) -> Examples:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    inputs = 2.0 * np.eye(6)[labels] + generator.standard_normal((count, 6))
    return Examples(
        torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels), ("a", "b", "c"), "blobs"
    )


def certified(**options: object) -> nv.Certificate:
    model = build("mlp:8", (6,), 3, seed=0)
    return nv.certify(model, blobs(), method=nv.Posterior(**QUICK, **options), seed=0)


def row(certificate: nv.Certificate, name: str = FIXED) -> object:
    return next(a for a in certificate.assumptions if a.name == name)


def test_the_temperature_follows_from_prior_examples() -> None:
    certificate = certified()
    assert certificate.status == "valid"
    assert certificate.bound.name == "catoni"
    seen = next(o for o in certificate.observed if o.name == OBSERVED)
    inputs = certificate.bound.inputs
    assert inputs["temperature"] == temperature(
        errors=seen.errors,
        trials=seen.trials,
        examples=inputs["examples"],
        failure=inputs["failure"],
    )
    assert row(certificate).status == "checked"
    common = {k: inputs[k] for k in ("empirical_risk", "kl_nats", "examples", "failure")}
    assert certificate.risk_upper == catoni(**common, temperature=inputs["temperature"])
    assert certificate.risk_upper < seeger(**common, exact_moment=True)


@pytest.mark.slow
def test_without_a_tilt_or_a_learned_prior_the_bound_is_the_kl_bound() -> None:
    assert certified(tilt=False).bound.name == "seeger"
    assert certified(prior_fraction=0.0).bound.name == "seeger"
    assert certified(predictor="drawn").bound.name == "disintegrated"


def test_few_prior_examples_are_not_divided_further() -> None:
    few = np.arange(199)
    fitted, aside = set_aside(few, 0)
    assert len(aside) == 0 and fitted is few
    fitted, aside = set_aside(np.arange(10_000), 0)
    assert len(aside) == 500 and set(fitted) | set(aside) == set(range(10_000))
    assert not set(fitted) & set(aside)
    assert len(set_aside(np.arange(60_000), 0)[1]) == 2_000


@pytest.mark.parametrize(
    "lie", ["a temperature that the bound examples chose", "counts that never were"]
)
def test_a_tilt_that_looked_is_refused(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = importlib.import_module("nonvacuous.certification.measurement")
    making = importlib.import_module("nonvacuous.methods.posterior.making")
    if lie.startswith("a temperature"):
        # The best of many temperatures on the very counts that the bound rests on.
        monkeypatch.setattr(
            measuring,
            "temperature",
            lambda **facts: nv.bounds.best_temperature(
                empirical_risk=0.05,
                kl_nats=0.0,
                examples=facts["examples"],
                failure=facts["failure"],
            ),
        )
    else:
        counted = Observation(name=OBSERVED, errors=27, trials=50)
        monkeypatch.setattr(making, "observation", lambda *_: counted)
    certificate = certified()
    assert certificate.status == "refused"
    assert row(certificate).effect == "refused"


def test_only_the_last_layer_is_random(tmp_path) -> None:
    model = build("mlp:8", (6,), 3, seed=0)
    run = tmp_path / "run"
    method = nv.Posterior(**QUICK, random="last")
    certificate = nv.certify(model, blobs(), method=method, seed=0, folder=run)
    assert certificate.status == "valid"
    assert certificate.model.parameters == 8 * 3 + 3
    assert {term.tensor for term in certificate.complexity.terms} == {
        "layers.2.weight",
        "layers.2.bias",
    }
    checked = nv.verify(run / "certificate.json", run, data=blobs(), model=model)
    assert checked.verified, str(checked)


def test_a_fixed_layer_that_saw_the_bound_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    making = importlib.import_module("nonvacuous.methods.posterior.making")
    honest = making.with_weights

    def trained_on(module: torch.nn.Module, weights: object) -> torch.nn.Module:
        network = honest(module, weights)
        next(b for n, b in network.named_buffers() if n.endswith("0.weight")).add_(0.01)
        return network

    monkeypatch.setattr(making, "with_weights", trained_on)
    assert certified(random="last").status == "refused"


def test_the_last_layer_alone_needs_a_learned_prior() -> None:
    with pytest.raises(BadInput, match="random='last'"):
        nv.Posterior(random="last", prior_fraction=0.0)


@pytest.mark.parametrize(("confidence", "failure"), [(0.95, 0.05), (0.8, 0.2)])
def test_training_plans_with_the_confidence_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, confidence: float, failure: float
) -> None:
    making = importlib.import_module("nonvacuous.methods.posterior.making")
    planned, train_posterior = [], making.train_posterior

    def watched(network, prior, examples, settings, **options):
        planned.append(settings.failure)
        return train_posterior(network, prior, examples, settings, **options)

    monkeypatch.setattr(making, "train_posterior", watched)
    model = build("mlp:8", (6,), 3, seed=0)
    method = nv.Posterior(**{**QUICK, "trials": 50}, twin=False)
    nv.certify(model, blobs(), method=method, confidence=confidence)
    assert planned == [failure]
