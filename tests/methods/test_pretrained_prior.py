"""A prior from other data: most weights fixed, the others paid for, all examples counted."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import nonvacuous as nv
from nonvacuous.data import Examples
from nonvacuous.distributions.storage import save_tensors
from nonvacuous.errors import BadInput
from nonvacuous.rules.digests import tensors_digest
from tests.attacks.forging import forged, part
from tests.training.calls import train

SAID = "trained on examples of the same two clouds that nobody certifies"
NOT_CHECKED = (
    "the prior saw no bound example",
    "the starting weights saw no bound example",
    "what is not random was fixed before the bound examples",
)
SMALL = nv.priors.ScaleGrid((0.03,))
QUICK: dict[str, Any] = {
    "trials": 1000,
    "twin": False,
    "training": nv.PosteriorTraining(epochs=5, batch_size=50, learning_rate=0.1),
    "plain_training": nv.PlainTraining(epochs=2),
}


def clouds(seed: int, count: int = 200, *, coins: bool = False) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    inputs = torch.randn(count, 4, generator=generator) + 1.5 * labels[:, None] - 0.75
    if coins:  # labels that nobody can know
        labels = torch.randint(2, (count,), generator=generator)
    return Examples(inputs, labels, ("low", "high"), "clouds")


def backbone(seed: int, *, width: int = 6) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))


def elsewhere(seed: int) -> nn.Module:
    """Trained on other examples of the same clouds."""
    other = clouds(50_000 + seed)
    return train(backbone(seed), other, epochs=3, batch_size=20, learning_rate=0.1).module


def certified(network: nn.Module, data: Examples, folder: Path | None = None, **prior: Any) -> Any:
    made = nv.priors.pretrained(
        network, source=SAID, **{"grid": nv.priors.ScaleGrid((0.3, 1.0)), **prior}
    )
    return nv.certify(network, data, method=nv.Posterior(prior=made, **QUICK), folder=folder)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_what_moves_is_paid_for_and_everything_is_verified(tmp_path: Path, rank: int) -> None:
    network = elsewhere(0)
    moving = {"2.weight", "2.bias"}
    if rank:
        network = nv.priors.low_rank(network, rank=rank)
        moving |= {"0.down.weight", "0.up.weight"}
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    data, run = clouds(1), tmp_path / "run"
    certificate = certified(network, data, run, head="zero")
    assert certificate.status == "valid"
    assert certificate.data.bound.examples == len(data)
    assert {term.tensor for term in certificate.complexity.terms} == moving
    assert certificate.model.parameters == sum(
        p.numel() for n, p in network.named_parameters() if n in moving
    )
    assert SAID in " ".join(a.detail for a in certificate.assumptions)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    prior = nv.DiagonalGaussian.load(run / "prior.safetensors")
    assert not prior.means["2.weight"].any()
    verification = nv.verify(run / "certificate.json", run, data=data, model=network, retrain=True)
    assert verification.verified, str(verification)
    repeated = [f for f in verification.findings if "posterior.safetensors" in f.name]
    assert len(repeated) == 2 and all(finding.passed for finding in repeated)


def test_low_rank_updates_start_from_the_same_function() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    )
    moved = nv.priors.low_rank(network, rank=1, layers=["0", "3"], seed=4)
    images = torch.rand(5, 3, 8, 8)
    assert torch.equal(moved(images), network(images))
    assert nv.priors.low_rank(network, rank=1)[0].down.weight.shape == (1, 3, 3, 3)
    assert not hasattr(nv.priors.low_rank(network, rank=1)[3], "up")


def test_a_prior_at_the_given_head_starts_where_it_is() -> None:
    network = elsewhere(0)
    prior = nv.priors.pretrained(network, source=SAID)
    assert torch.equal(prior.means["2.weight"], network[2].weight)
    assert set(nv.priors.pretrained(network, source=SAID, random="0").means) == {
        "0.weight",
        "0.bias",
    }


def test_another_backbone_than_the_priors_is_refused() -> None:
    prior = nv.priors.pretrained(elsewhere(0), source=SAID)
    with pytest.raises(BadInput, match=r"'0\.(weight|bias)' is fixed"):
        nv.certify(elsewhere(1), clouds(1), method=nv.Posterior(prior=prior, **QUICK))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda n: nv.priors.pretrained(n, source=" "), "sentence"),
        (lambda n: nv.priors.pretrained(n, source=SAID, random="7"), "no layer or parameter '7'"),
        (lambda n: nv.priors.pretrained(n, source=SAID, head="one"), "head"),
        (lambda n: nv.priors.low_rank(n, rank=0), "rank"),
        (lambda n: nv.priors.low_rank(n, rank=1, layers=["1"]), "'1'"),
        (lambda n: nv.Posterior(prior=nv.priors.at_initialization(n)), "pretrained"),
        (lambda n: nv.Posterior(prior=_made(n), prior_fraction=0.5), "prior_fraction"),
        (lambda n: nv.Posterior(prior=_made(n), prior_scale=2.0), "prior_scale"),
        (lambda n: nv.Posterior(prior=_made(n), random="last"), "random"),
        (lambda n: nv.PostHoc(prior=_made(n)), "Posterior"),
    ],
)
def test_mistakes_are_explained(wrong: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        wrong(backbone(0))


def _made(network: nn.Module) -> Any:
    return nv.priors.pretrained(network, source=SAID)


def memorized(data: Examples) -> nn.Module:
    """A backbone that was trained on the very examples that are counted."""
    network = backbone(3, width=200)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(400):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(data.inputs), data.labels).backward()
        optimizer.step()
    return network


@pytest.mark.slow
def test_a_backbone_trained_on_the_bound_examples_is_never_called_checked(tmp_path: Path) -> None:
    """Its promise is false, which nobody can see; so the certificate says whose word it is."""
    data = clouds(2, coins=True)
    certificate = certified(memorized(data), data, tmp_path / "run", grid=SMALL)
    assert certificate.risk_upper < 0.45  # of coins
    rows = {a.name: a for a in certificate.assumptions}
    assert {rows[name].status for name in NOT_CHECKED} == {"asserted"}
    for name in NOT_CHECKED[1:]:
        assert SAID in rows[name].detail
    assert all(name in certificate.lines()[3] for name in NOT_CHECKED)


def test_a_backbone_exchanged_afterwards_is_found(tmp_path: Path) -> None:
    data, run = clouds(1), tmp_path / "run"
    network = elsewhere(0)
    certified(network, data, run)
    other = elsewhere(1)
    fixed = {name: other.state_dict()[name] for name in ("0.weight", "0.bias")}
    save_tensors(run / "network.safetensors", fixed, kind="network")
    certificate = nv.Certificate.load(run / "certificate.json")
    forged(run, **part(certificate, "model", fixed_digest=tensors_digest(fixed)))
    recorded = tomllib.loads((run / "config.toml").read_text())["method"]["prior"]["fixed"]
    assert recorded != tensors_digest(fixed)
    verification = nv.verify(run / "certificate.json", run, data=data, model=network)
    assert not verification.passed
    assert any("prior.fixed" in str(finding.field) for finding in verification.failures)


@pytest.mark.slow
@pytest.mark.parametrize("worlds", [40, pytest.param(160, marks=pytest.mark.nightly)])
def test_priors_from_other_data_keep_their_promise(tmp_path: Path, worlds: int) -> None:
    """Half of these certificates may be false; see the test above for what is not counted here."""
    false = 0
    for world in range(worlds):
        run = tmp_path / f"w{world}" / "run"
        network = nv.priors.low_rank(elsewhere(world), rank=1)
        prior = nv.priors.pretrained(
            network, source=SAID, grid=nv.priors.ScaleGrid((0.3, 1.0)), head="zero"
        )
        certificate = nv.certify(
            network,
            clouds(world, 60),
            method=nv.Posterior(prior=prior, **QUICK),
            confidence=0.5,
            seed=world,
            folder=run,
        )
        false += certificate.risk_upper < true_risk(network, run, world)
    assert stats.binom.sf(false - 1, worlds, 0.5) > 1e-4


def true_risk(network: nn.Module, run: Path, world: int) -> float:
    posterior = nv.DiagonalGaussian.load(run / "posterior.safetensors")
    fresh = clouds(90_000 + world, 2000)
    generator = torch.Generator().manual_seed(world)
    risks = []
    for _ in range(50):
        weights = posterior.sample(generator=generator)
        scores = torch.func.functional_call(network, weights, (fresh.inputs,))
        risks.append(float((scores.argmax(1) != fresh.labels).double().mean()))
    return float(np.mean(risks))
