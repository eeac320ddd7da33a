"""Her network has batch normalization and is trained already: a number, not a dead end."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from torch import nn

import nonvacuous as nv
from nonvacuous.distributions.priors import Prior
from nonvacuous.errors import BadInput, NonvacuousError


def table() -> tuple[torch.Tensor, torch.Tensor]:
    """Eight columns of numbers and two classes, as a CSV has them."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (1200,), generator=generator)
    inputs = torch.randn(1200, 8, generator=generator) + 2.0 * labels[:, None]
    return 3.0 * inputs + 1.0, labels


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def network() -> nn.Module:
    return nv.models.seeded(layers, seed=0)


def trained() -> nn.Module:
    module, (inputs, labels) = network(), table()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()
        optimizer.step()
    return module


def quick(prior: Prior) -> nv.PostHoc:
    return nv.PostHoc(prior=prior, trials=5000, twin=False, posterior_scales=(0.03, 0.1))


@pytest.mark.slow
def test_it_is_folded_certified_and_verified(tmp_path):
    method = quick(nv.priors.at_initialization(network()))
    certificate = nv.certify(trained(), table(), method=method, folder=tmp_path / "run")
    assert certificate.status == "valid", certificate
    assert certificate.posterior is not None
    assert "batch normalization folded" in certificate.posterior.description
    assert certificate.shown_better, certificate
    checked = nv.verify(tmp_path / "run", model=network, data=table(), trials=2000)
    assert checked.passed, str(checked)


@pytest.mark.slow
def test_the_folded_network_is_hers():
    module, (inputs, _) = trained(), table()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    certificate = nv.certify(module, table(), method=quick(nv.priors.zero_mean()))
    assert certificate.status != "refused", certificate
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    wrong = int((module.eval()(inputs).argmax(dim=1) != table()[1]).sum())
    assert certificate.observed[0].errors == wrong


def test_what_cannot_be_folded_is_refused_at_once():
    module = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16, track_running_stats=False), nn.ReLU(), nn.Linear(16, 2)
    )
    start = time.monotonic()
    with pytest.raises(NonvacuousError, match=r"nv\.fold_batch_norm"):
        nv.certify(module, table(), method=quick(nv.priors.zero_mean()))
    assert time.monotonic() - start < 10.0


def test_a_prior_of_another_network_is_refused():
    """What the prior lacks must not be filled with trained weights, which would cost nothing."""
    shorter = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
    with pytest.raises(BadInput, match=r"the prior lacks 2 .*'3\.bias'"):
        nv.certify(trained(), table(), method=quick(nv.priors.at_initialization(shorter)))
    forgetful = replace(nv.priors.at_initialization(network()), fixed=None)
    with pytest.raises(BadInput, match=r"the prior lacks 3 .*num_batches_tracked"):
        nv.certify(trained(), table(), method=quick(forgetful))


class WithTable(nn.Module):
    """Keeps numbers of its own in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.table = network(), torch.zeros(8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs + self.table)


def test_numbers_in_an_attribute_are_those_of_the_prior_not_of_the_trained_network():
    module, initial = WithTable(), WithTable()
    module.layers, module.table = trained(), table()[0].mean(dim=0)
    method = nv.PostHoc(
        prior=nv.priors.at_initialization(initial),
        pretrained="made up for this test",
        trials=2000,
        twin=False,
        posterior_scales=(0.03,),
    )
    certificate = nv.certify(module, table(), method=method)
    assert certificate.status == "refused", certificate
    assert "'table' is neither random nor what it was" in str(certificate)
