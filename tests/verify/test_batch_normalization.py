"""Certificates of networks with batch normalization: folded where it is random, else kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import nonvacuous as nv
from nonvacuous.errors import BadInput
from nonvacuous.models import build, rebuild

SMALL = nv.data.load("digits").train.subset(torch.arange(200))


class Normalized(nn.Sequential):
    def __init__(self, *, affine: bool = True) -> None:
        norm = nn.BatchNorm1d(16, affine=affine)
        super().__init__(nn.Flatten(), nn.Linear(64, 16), norm, nn.ReLU(), nn.Linear(16, 10))


@pytest.mark.slow
def test_the_network_and_its_twin_are_built_again(tmp_path: Path) -> None:
    digits = nv.data.load("digits").train
    train = digits.subset(torch.arange(60))
    train = replace(train, inputs=train.inputs[..., ::2, ::2].contiguous())
    network = nv.models.build("resnet:8", train.example_shape, train.classes, seed=0)
    prior = nv.priors.at_initialization(network, grid=nv.priors.ScaleGrid((0.05, 0.1)))
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(5):
        optimizer.zero_grad()
        cross_entropy(network(train.inputs), train.labels).backward()
        optimizer.step()
    method = nv.PostHoc(
        prior=prior,
        posterior_scales=(0.01,),
        trials=200,
        rescaling=False,
        plain_training=nv.PlainTraining(epochs=1),
    )
    nv.certify(network, train, method=method, folder=tmp_path / "run")
    for model in (None, network):  # by the name that is stored, and given
        findings = nv.verify(tmp_path / "run", data=train, trials=200, model=model)
        assert findings.failures == () and findings.verified
        fields = {finding.field for finding in findings.findings if finding.passed}
        assert {"held_out_twin.errors", "model"} <= fields


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a function", "resnet:8", "resnet9:4"])
def test_fixed_normalization_stays_what_it_is(tmp_path: Path, name: str) -> None:
    model = Normalized if name == "a function" else build(name, (1, 8, 8), 10, seed=0)
    method = nv.Posterior(
        random="last",
        prior_scale=(0.001,),
        trials=200,
        training=nv.PosteriorTraining(epochs=1),
        plain_training=nv.PlainTraining(epochs=1),
    )
    nv.certify(model, SMALL, method=method, folder=tmp_path / "run")
    given: Callable[[], nn.Module] | None = Normalized if name == "a function" else None
    findings = nv.verify(tmp_path / "run", data=SMALL, trials=200, model=given)
    assert findings.failures == () and findings.verified


@pytest.mark.slow
def test_normalization_without_weights_of_its_own_is_folded_too(tmp_path: Path) -> None:
    plain = partial(Normalized, affine=False)
    initial = nv.models.seeded(plain, seed=0)
    network = plain()
    network.load_state_dict(initial.state_dict())
    network(SMALL.inputs)  # the running mean and variance
    method = nv.PostHoc(
        prior=nv.priors.at_initialization(initial, grid=nv.priors.ScaleGrid((0.1,))),
        posterior_scales=(0.01,),
        trials=200,
        rescaling=False,
        twin=False,
    )
    nv.certify(network.eval(), SMALL, method=method, folder=tmp_path / "run")
    findings = nv.verify(tmp_path / "run", data=SMALL, trials=200, model=plain)
    assert findings.failures == () and findings.verified


def test_only_biases_of_layers_may_be_stored_beside_the_tensors_of_the_name() -> None:
    shapes = {
        key: tuple(t.shape) for key, t in build("resnet:8", (1, 8, 8), 10).state_dict().items()
    }
    rebuild("resnet:8", (1, 8, 8), 10, seed=0, shapes={**shapes, "first.bias": (16,)})
    for extra in ({"first.bias": (17,)}, {"other.bias": (16,)}, {"first.scale": (16,)}):
        with pytest.raises(BadInput, match="has no tensor"):
            rebuild("resnet:8", (1, 8, 8), 10, seed=0, shapes={**shapes, **extra})
