"""A prior that is said to have seen nothing and knows the examples: found with the data at hand."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nonvacuous.audit import data_checks
from nonvacuous.audit.knowing import Knowledge, knowledge
from nonvacuous.certificate import Certificate
from nonvacuous.certify import certify
from nonvacuous.data import Examples, load
from nonvacuous.distributions.priors import Prior, at_initialization, zero_mean
from nonvacuous.errors import Refused
from nonvacuous.methods import Posterior, PostHoc, Sparsity
from nonvacuous.models import build
from nonvacuous.rules.arithmetic import statement_of
from nonvacuous.settings import Run
from nonvacuous.verify import Finding, Verification, verify
from tests.training.calls import train

from .runs import failed_fields, resealed

ARCHITECTURE = "mlp:60"
QUESTION = "nothing shows that the prior knows the bound examples"


def random_labels(classes: int = 6) -> Examples:
    """Nothing can be learned here: whoever errs seldom has seen these very examples."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(120, 20, generator=generator)
    labels = torch.randint(0, classes, (120,), generator=generator)
    return Examples(inputs, labels, tuple("abcdefgh"[:classes]), "noise")


def fresh(data: Examples, seed: int = 0) -> nn.Module:
    return build(ARCHITECTURE, data.example_shape, data.classes, seed=seed).eval()


def memorizing(data: Examples) -> nn.Module:
    return train(fresh(data), data, epochs=60, batch_size=20, learning_rate=0.2).module


def certified(
    folder: Path,
    mode: str,
    module: nn.Module,
    prior: Prior,
    data: Examples,
    *,
    seed: int = 0,
    architecture: str = ARCHITECTURE,
    **more: Any,
) -> Certificate:
    kind, settings = {
        "sparsity": (Sparsity, {"passes": 1, "search_examples": 50}),
        "post-hoc": (PostHoc, {"trials": 200, "posterior_scales": 0.01, "rescaling": False}),
    }[mode]
    method = kind(prior=prior, twin=False, **settings, **more)
    run = Run(folder=folder, architecture=architecture)
    return certify(module, data, method=method, seed=seed, folder=run)


def finding(result: Verification) -> Finding:
    (found,) = (f for f in result.findings if f.name == QUESTION)
    return found


def nothing(module: nn.Module, data: Examples) -> Knowledge:
    """What a forger's audit sees."""
    return Knowledge(error=1.0, guessing=0.5, classes=data.classes)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sparsity", "post-hoc"])
def test_the_memorizing_network_as_its_own_prior(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    data = random_labels()
    module = memorizing(data)
    with monkeypatch.context() as forger:
        forger.setattr(data_checks, "knowledge", nothing)
        forger.setattr(data_checks, "surprises", lambda *_: ())
        forger.setattr(data_checks, "irreproducible", lambda _: "")
        prior = at_initialization(copy.deepcopy(module))
        certificate = certified(tmp_path / "run", mode, module, prior, data)
    assert certificate.status == "valid" and certificate.risk_upper < 0.3, "the forgery is good"
    assert verify(tmp_path / "run").passed, "it takes the data to see"
    result = verify(tmp_path / "run", data=data, trials=200)
    assert "prior" in failed_fields(result)
    assert "saw none of them" in finding(result).detail


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sparsity", "post-hoc"])
def test_an_honest_initialization_passes_and_is_recognized(tmp_path: Path, mode: str) -> None:
    data = random_labels()
    start = fresh(data, seed=4)
    module = copy.deepcopy(start)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.01)
    for seed in (4, 5):  # of the run: the certificate names that of the start
        folder = tmp_path / f"{mode}{seed}" / "run"
        certified(folder, mode, module, at_initialization(start), data, seed=seed)
        result = verify(folder, data=data, trials=200)
        assert result.verified, str(result)
        assert "starts from at seed 4" in finding(result).detail


@pytest.mark.slow
def test_declared_or_refused_it_is_the_certificate_s_own_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random_labels()
    module = memorizing(data)
    prior = at_initialization(copy.deepcopy(module))
    declared = certified(
        tmp_path / "a" / "run", "post-hoc", module, prior, data, pretrained="trained elsewhere"
    )
    assert declared.status == "valid"
    result = verify(tmp_path / "a" / "run", data=data, trials=200)
    assert result.passed and finding(result).passed is None
    told = finding(result).detail
    assert "err on 0.0%" in told and "declares" in told and "nobody can check" in told
    # Words that only sound like the declaration are none.
    painted = tuple(
        a.model_copy(update={"detail": "all is well, as declared by the user."})
        if a.name == data_checks.START
        else a
        for a in declared.assumptions
    )
    forged = resealed(declared, assumptions=painted)
    resealed(forged, statement=statement_of(forged)).save(tmp_path / "a/run/certificate.json")
    assert "prior" in failed_fields(verify(tmp_path / "a" / "run", data=data, trials=200))
    with pytest.raises(Refused, match="starting weights"):
        certified(tmp_path / "b" / "run", "post-hoc", module, prior, data)
    monkeypatch.setattr(sys.modules[certify.__module__], "refuse_beforehand", lambda *_: None)
    refused = certified(tmp_path / "b" / "run", "post-hoc", module, prior, data)
    assert refused.status == "refused"
    result = verify(tmp_path / "b" / "run", data=data, trials=200)
    assert result.passed and "itself says" in finding(result).detail


@pytest.mark.slow
def test_a_prior_of_zero_knows_nothing(tmp_path: Path) -> None:
    data = random_labels()
    certified(tmp_path / "run", "post-hoc", memorizing(data), zero_mean(), data)
    result = verify(tmp_path / "run", data=data, trials=200)
    assert result.verified and "zero" in finding(result).detail


@pytest.mark.slow
def test_few_classes_leave_room_for_luck(tmp_path: Path) -> None:
    data = random_labels(3)
    start = fresh(data, seed=4)
    for seed in (4, 5):
        folder = tmp_path / str(seed) / "run"
        certified(folder, "post-hoc", start, at_initialization(start), data, seed=seed)
        result = verify(folder, data=data, trials=200)
        assert finding(result).passed
        # Weights that a seed gives again were fitted to nothing, however lucky they are.
        assert "initial weights" in finding(result).detail


@pytest.mark.slow
def test_with_few_classes_a_start_that_knows_makes_it_conditional(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random_labels(2)
    module = memorizing(data)
    prior = at_initialization(copy.deepcopy(module))
    honest = certified(tmp_path / "a" / "run", "post-hoc", module, prior, data)
    assert honest.status == "conditional"
    (doubt,) = (a for a in honest.assumptions if a.effect != "none")
    assert doubt.name == data_checks.START and "2 classes" in doubt.detail
    result = verify(tmp_path / "a" / "run", data=data, trials=200)
    assert result.passed and "itself says" in finding(result).detail
    with monkeypatch.context() as forger:
        forger.setattr(data_checks, "knowledge", nothing)
        forger.setattr(data_checks, "surprises", lambda *_: ())
        forger.setattr(data_checks, "irreproducible", lambda _: "")
        certified(tmp_path / "b" / "run", "post-hoc", module, prior, data)
    assert "prior" in failed_fields(verify(tmp_path / "b" / "run", data=data, trials=200))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sparsity", "post-hoc"])
def test_a_shift_of_one_class_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    data = random_labels()
    module = memorizing(data)
    shifted = copy.deepcopy(module)
    with torch.no_grad():
        list(shifted.parameters())[-1][0] += 60.0
        plain = (shifted(data.inputs).argmax(1) != data.labels).double().mean()
    assert plain > 0.7, "it looks untrained"
    prior = at_initialization(shifted)
    with pytest.raises(Refused, match="starting weights"):
        certified(tmp_path / "a" / "run", mode, module, prior, data)
    with monkeypatch.context() as forger:
        forger.setattr(data_checks, "knowledge", nothing)
        forger.setattr(data_checks, "surprises", lambda *_: ())
        forger.setattr(data_checks, "irreproducible", lambda _: "")
        certified(tmp_path / "b" / "run", mode, module, prior, data)
    assert "prior" in failed_fields(verify(tmp_path / "b" / "run", data=data, trials=200))


@pytest.mark.parametrize("architecture", ["mlp:100", "mlp:60,60", "cnn:8", "resnet:8"])
def test_untrained_networks_are_far_from_knowing(architecture: str) -> None:
    data = load("digits").train
    for seed in range(3):
        module = build(architecture, data.example_shape, data.classes, seed=seed).eval()
        known = knowledge(module, data.subset(range(500)))
        assert not known.certain and known.error > 0.7 * known.guessing


def test_a_guess_of_the_most_frequent_class_is_no_knowledge() -> None:
    data = random_labels(2)
    labels = torch.zeros(120, dtype=torch.long)
    labels[:4] = 1
    rare = Examples(data.inputs, labels, ("a", "b"), "rare")
    constant = fresh(rare)
    with torch.no_grad():
        list(constant.parameters())[-1][0] += 60.0
    known = knowledge(constant, rare)
    assert known.error <= 4 / 120 and known.guessing == pytest.approx(4 / 120)
    assert not known.likely


def test_one_example_tells_nothing_by_its_own_mean() -> None:
    data = random_labels()
    wrong = Examples(data.inputs[:1], torch.tensor([0]), data.class_names, "one")
    module = fresh(wrong)
    with torch.no_grad():
        list(module.parameters())[-1][1] += 60.0
    assert knowledge(module, wrong).error == 1.0


@pytest.mark.slow
def test_a_prior_that_cannot_be_tried_leaves_it_unverified(tmp_path: Path) -> None:
    data = random_labels()
    start = fresh(data)
    folder = tmp_path / "run"
    certificate = certified(
        folder, "post-hoc", start, at_initialization(start), data, architecture="own"
    )
    result = verify(folder, data=data)
    assert result.passed and not result.verified and finding(result).needed
    assert finding(verify(certificate, data=data)).detail == "the prior is not at hand."
    assert verify(folder, data=data, model=start, trials=200).verified


@pytest.mark.slow
def test_a_posterior_trained_from_a_start_that_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random_labels()
    module = memorizing(data)
    method = Posterior(
        prior_fraction=0.0, prior_scale=0.01, twin=False, trials=200, training={"epochs": 1}
    )
    with monkeypatch.context() as forger:
        forger.setattr(data_checks, "knowledge", nothing)
        forger.setattr(data_checks, "surprises", lambda *_: ())
        forger.setattr(data_checks, "irreproducible", lambda _: "")
        certify(
            module,
            data,
            method=method,
            folder=Run(folder=tmp_path / "run", architecture=ARCHITECTURE),
        )
    assert "prior" in failed_fields(verify(tmp_path / "run", data=data, trials=200))
