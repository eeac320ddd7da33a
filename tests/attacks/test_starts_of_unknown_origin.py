"""Starting weights of which nobody can say where they come from."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import nonvacuous as nv
from nonvacuous.audit.data_checks import START, NamedStart
from nonvacuous.certificate import Certificate
from nonvacuous.certification.method import Method
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.rules.arithmetic import statement_of
from tests.verify.runs import failed_fields, resealed

SAID = "trained on the clouds of another sky, by A. N. Other"


def clouds() -> nv.data.Examples:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (300,), generator=generator)
    centers = 2.0 * torch.randn(3, 6, generator=generator)
    inputs = centers[labels] + torch.randn(300, 6, generator=generator)
    return nv.data.Examples(inputs, labels, ("a", "b", "c"), "clouds")


def own() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))


def unexplained() -> nn.Module:
    torch.manual_seed(3)
    return own()


def trained_here(model: Any, method: Method | None = None, **more: Any) -> Certificate:
    quick = nv.Posterior(
        prior_fraction=0.0, twin=False, trials=200, training=nv.PosteriorTraining(epochs=1)
    )
    return nv.certify(model, clouds(), method=method or quick, **more)


def start_of(certificate: Certificate) -> Any:
    (stated,) = (a for a in certificate.assumptions if a.name == START)
    return stated


def methods(**more: Any) -> dict[str, Method]:
    """Each method that starts from the given network, or from the prior's."""
    epoch, training = nv.PlainTraining(epochs=1), nv.PosteriorTraining(epochs=1)
    posterior = nv.Posterior(twin=False, trials=200, training=training, plain_training=epoch)
    return {
        "data-free": posterior.changed(prior_fraction=0.0, **more),
        "learned": posterior.changed(**more),
        "sparsity": nv.Sparsity(steps=5, prior_steps=5, twin=False, search_examples=50, **more),
    }


def post_hoc(initial: nn.Module, **more: Any) -> Method:
    return nv.PostHoc(
        prior=nv.priors.at_initialization(initial),
        twin=False,
        trials=200,
        rescaling=False,
        posterior_scales=(0.01,),
        **more,
    )


@pytest.mark.slow_if("sparsity")
@pytest.mark.parametrize("kind", list(methods()))
def test_a_network_of_unknown_origin_a_function_and_a_sentence(kind: str) -> None:
    doubted = trained_here(unexplained(), methods()[kind])
    assert doubted.status == "conditional"
    assert "seed" in start_of(doubted).detail and "pretrained" in start_of(doubted).detail
    assert trained_here(own, methods()[kind]).status == "valid"
    declared = trained_here(unexplained(), methods(pretrained=SAID)[kind])
    assert declared.status == "valid" and SAID in start_of(declared).detail


@pytest.mark.slow
def test_the_prior_of_a_trained_network() -> None:
    model = unexplained()
    assert trained_here(model, post_hoc(unexplained())).status == "conditional"
    assert trained_here(model, post_hoc(nv.models.seeded(own, seed=3))).status == "valid"
    declared = trained_here(model, post_hoc(unexplained(), pretrained=SAID))
    assert declared.status == "valid" and SAID in start_of(declared).detail


@pytest.mark.slow
def test_a_batch_norm_network_is_folded_and_built_again() -> None:
    def normalized() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    initial = nv.models.seeded(normalized, seed=1)
    certificate = trained_here(normalized(), post_hoc(initial))
    assert "at seed 1" in start_of(certificate).detail


def test_built_in_networks_remember_their_seed() -> None:
    network = nv.models.build("mlp:8", (6,), 3, seed=5)
    certificate = trained_here(network)
    assert certificate.status == "valid" and "mlp:8 at seed 5" in start_of(certificate).detail
    assert trained_here(nv.models.build("mlp:8", (6,), 3)).status == "valid"
    with torch.no_grad():
        next(network.parameters())[0, 0] += 1e-7
    assert trained_here(network).status == "conditional"


def stored() -> Callable[[], nn.Module]:
    kept = nv.models.seeded(own, seed=7)

    def build() -> nn.Module:
        network = own()
        network.load_state_dict(kept.state_dict())
        return network

    return build


def from_elsewhere() -> nn.Module:
    network = own()
    with torch.no_grad():
        next(network.parameters()).mul_(1.0 + float(np.random.default_rng().random()))
    return network


@pytest.mark.parametrize(
    ("build", "why"), [(stored(), "whatever the seed"), (from_elsewhere, "has another")]
)
def test_a_function_that_no_seed_decides(build: Callable[[], nn.Module], why: str) -> None:
    certificate = trained_here(build)
    assert certificate.status == "conditional" and why in start_of(certificate).detail


@pytest.mark.parametrize("given", [True, "", "   ", 3])
def test_a_switch_says_nothing(given: Any) -> None:
    for kind in (nv.Posterior, nv.Sparsity):
        with pytest.raises(nv.errors.BadInput, match="sentence"):
            kind(pretrained=given)


def test_what_is_no_network() -> None:
    for given in (3, "mlp:8", lambda: 3, lambda x: x):
        with pytest.raises(nv.errors.BadInput, match=r"torch\.nn\.Module"):
            trained_here(given)


def test_a_seed_that_did_not_make_the_weights(tmp_path: Path) -> None:
    """Resealed: the certificate names another seed than the one that made its prior."""
    network, run = nv.models.build("mlp:8", (6,), 3, seed=5), tmp_path / "run"
    honest = trained_here(network, folder=run)
    assert not nv.verify(run, data=clouds()).failures
    changed = tuple(
        a.model_copy(update={"detail": a.detail.replace("at seed 5", "at seed 6")})
        for a in honest.assumptions
    )
    forged = resealed(honest, assumptions=changed)
    resealed(forged, statement=statement_of(forged)).save(run / "certificate.json")
    assert "prior" in failed_fields(nv.verify(run, data=clouds()))


def renamed(run: Path, honest: Certificate, detail: str) -> None:
    """Resealed: the start is named, and the certificate valid."""
    rows = tuple(
        a.model_copy(update={"status": "asserted", "effect": "none", "detail": detail})
        if a.name == START
        else a
        for a in honest.assumptions
    )
    forged = resealed(honest, assumptions=rows, status="valid")
    resealed(forged, statement=statement_of(forged)).save(run / "certificate.json")


@pytest.mark.slow_if("sparsity")
@pytest.mark.parametrize("kind", [*methods(), "progressive"])
@pytest.mark.parametrize("names", ["of the builder", "of another network"])
def test_a_start_that_the_named_seed_does_not_make(tmp_path: Path, kind: str, names: str) -> None:
    """Resealed: a network from nowhere is said to be a built-in one at a seed."""
    run, name = tmp_path / "run", "mlp:8/no-bias"
    built = nv.models.build(name, (6,), 3, seed=5)
    network = copy.deepcopy(built) if names == "of the builder" else unexplained()
    with torch.no_grad():
        next(network.parameters()).mul_(1.001)
    every = methods() | {
        "progressive": nv.Progressive(batches=2, plain_training=nv.PlainTraining(epochs=1))
    }
    honest = trained_here(network, every[kind], folder=nv.Run(folder=run, architecture=name))
    assert honest.status == "conditional"
    renamed(run, honest, NamedStart(name, 5, built_in=True).words)
    failed = failed_fields(nv.verify(run, data=clouds(), model=copy.deepcopy(network)))
    position = [a.name for a in honest.assumptions].index(START)
    assert f"assumptions.{position}.detail" in failed
    renamed(run, honest, "three laboratories saw it built.")
    failed = failed_fields(nv.verify(run, data=clouds(), model=copy.deepcopy(network)))
    assert f"assumptions.{position}.detail" in failed


def test_a_start_made_by_another_torch_is_not_compared(tmp_path: Path) -> None:
    network, run = nv.models.build("mlp:8", (6,), 3, seed=5), tmp_path / "run"
    with torch.no_grad():
        next(network.parameters()).mul_(1.001)
    learned = methods()["learned"]
    honest = trained_here(network, learned, folder=nv.Run(folder=run, architecture="mlp:8"))
    older = resealed(honest, software={**honest.software, "torch": "2.0.0"})
    renamed(run, older, NamedStart("mlp:8", 5, built_in=True).words)
    result = nv.verify(run, data=clouds())
    assert result.passed and not result.verified
    assert any(f.needed and "torch 2.0.0 there" in f.detail for f in result.findings)


def test_a_function_is_not_taken_for_a_built_in_network(tmp_path: Path) -> None:
    """In the words for functions, and in those that older versions had for both."""
    run, learned = tmp_path / "run", methods()["learned"]
    honest = trained_here(own, learned, folder=nv.Run(folder=run, architecture="own"))
    assert nv.verify(run, data=clouds(), model=own).verified
    renamed(run, honest, NamedStart("own", 0, built_in=True).words)
    assert nv.verify(run, data=clouds(), model=own).verified


def test_a_prior_with_other_tensors_than_the_named_network(tmp_path: Path) -> None:
    network, run = unexplained(), tmp_path / "run"
    prior = post_hoc(copy.deepcopy(network))
    honest = trained_here(network, prior, folder=nv.Run(folder=run, architecture="own"))
    renamed(run, honest, NamedStart("mlp:8/no-bias", 5, built_in=True).words)
    assert "prior" in failed_fields(nv.verify(run, data=clouds(), model=unexplained()))


@pytest.mark.slow
def test_on_the_command_line(invoke: Any, quick: Any, place: Path) -> None:
    """--initial from nowhere is doubted; a seed or a sentence accounts for it."""
    for name, seed in (("trained", 1), ("initial", 9)):
        state = dict(nv.models.build("mlp:8", (12,), 3, seed=seed).state_dict())
        save_tensors(place / f"{name}.safetensors", state, kind="weights")
    given = (
        *("certify", "--data", "x.npz", "--model", "mlp:8", "--weights", "trained.safetensors"),
        *("--initial", "initial.safetensors", "--trials", "200", "--no-twin", "--no-rescaling"),
        "--no-report",
    )
    cases = (
        ((*given,), "conditional"),
        ((*given, "--init-seed", "9"), "valid"),
        ((*given, "--pretrained", SAID), "valid"),
        (tuple(quick("--no-twin", model="my_model:build")), "valid"),
    )
    for number, (words, status) in enumerate(cases):
        result = invoke(*words, "--json", "--out", f"{number}/run")
        assert json.loads(result.out)["status"] == status, result
    assert invoke(*given, "--pretrained").code == 2
