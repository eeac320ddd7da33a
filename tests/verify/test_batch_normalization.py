"""Post-hoc certificates of built-in networks with batch normalization, built again by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import nonvacuous as nv
from nonvacuous.errors import BadInput
from nonvacuous.models import build, rebuild


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


def test_only_biases_of_layers_may_be_stored_beside_the_tensors_of_the_name() -> None:
    shapes = {
        key: tuple(t.shape) for key, t in build("resnet:8", (1, 8, 8), 10).state_dict().items()
    }
    rebuild("resnet:8", (1, 8, 8), 10, seed=0, shapes={**shapes, "first.bias": (16,)})
    for extra in ({"first.bias": (17,)}, {"other.bias": (16,)}, {"first.scale": (16,)}):
        with pytest.raises(BadInput, match="has no tensor"):
            rebuild("resnet:8", (1, 8, 8), 10, seed=0, shapes={**shapes, **extra})
