"""The study as a whole: its numbers against loops, and its refusals."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from nonvacuous.bounds import holdout
from nonvacuous.data import Examples
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.sparsity.conv_reading import read_network
from nonvacuous.sparsity.radii import PlainChain, forward
from nonvacuous.sparsity.study import study
from nonvacuous.sparsity.weights import Layers


def blobs(count: int = 200, seed: int = 0) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    centers = 2 * torch.randn(3, 8, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(count) % 3
    inputs = centers[labels] + torch.randn(count, 8, generator=generator)
    return Examples(inputs, labels, ("a", "b", "c"), "blobs")


def module(*, bias: bool = True, seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(8, 16, bias=bias),
            nn.ReLU(),
            nn.Linear(16, 12, bias=bias),
            nn.ReLU(),
            nn.Linear(12, 3, bias=bias),
        ).eval()


@pytest.mark.parametrize("bias", [True, False])
def test_activity_and_errors_are_those_of_the_module(bias):
    network, examples = module(bias=bias), blobs()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = study(network, examples, held_out=blobs(150, seed=1))
    with torch.no_grad():
        first = network[:2](examples.inputs)
        second = network[:4](examples.inputs)
        wrong = int((network(examples.inputs).argmax(1) != examples.labels).sum())
        test = blobs(150, seed=1)
        test_wrong = int((network(test.inputs).argmax(1) != test.labels).sum())
    assert found.errors == wrong and found.biases is bias
    assert found.sizes == (8, 16, 12, 3) and found.examples == 200
    for layer, values in zip(found.activity, (first, second), strict=True):
        lit = values > 0
        assert layer.mean == pytest.approx(float(lit.sum(1).double().mean()))
        assert layer.never == int((~lit.any(0)).sum())
        assert layer.always == int(lit.all(0).sum())
        assert layer.active[2] == float(np.quantile(lit.sum(1).numpy(), 0.5))
    (plain,) = found.held_out
    assert (plain.errors, plain.examples) == (test_wrong, 150)
    assert plain.risk == holdout(errors=test_wrong, examples=150, failure=0.05)
    assert found.certificates == ()
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])


def test_ratios_and_stability_belong_together():
    found = study(module(), blobs(), epsilons=[1e-2, 1e-4, 1e-3])
    assert [entry.epsilon for entry in found.epsilons] == [1e-4, 1e-3, 1e-2]
    ratios = [entry.mean_ratio for entry in found.epsilons]
    assert ratios == sorted(ratios) and ratios[-1] <= 1.0
    for entry in found.epsilons:
        for layer, activity in zip(entry.layers, found.activity, strict=True):
            assert layer.active + layer.inactive + layer.unstable == pytest.approx(1.0)
            assert layer.mean == pytest.approx(layer.inactive * activity.units)
            assert layer.smallest <= layer.sparsity[0] <= layer.sparsity[-1]
            assert sum(layer.kinds.values()) == activity.units
    for radii, activity in zip(found.radii, found.activity, strict=True):
        # So many units are inactive on 95 % of the examples, hence the rest has a zero radius.
        assert radii.zero <= 0.05
        assert radii.sparsity <= activity.units - activity.mean + 1
        assert list(radii.radius) == sorted(radii.radius)
    assert all(entry.risk <= 1.0 and entry.gap > 0 for entry in found.norm_bounds)


def test_the_record_is_frozen_and_plain():
    found = study(module(), blobs())
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["examples"] == 200 and record["answer"] == found.answer
    assert [entry["name"] for entry in record["activity"]] == ["1", "3"]
    assert "%" in found.answer
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.seed = 1
    assert study(module(), blobs()).to_dict() == found.to_dict()


def test_where_every_unit_may_be_active_every_radius_is_infinite():
    # Positive weights on positive inputs: nothing is ever inactive.
    generator = torch.Generator().manual_seed(0)
    weights = [torch.rand(5, 4, generator=generator), torch.randn(3, 5, generator=generator)]
    inputs = torch.rand(120, 4, generator=generator) + 0.1
    examples = Examples(inputs, torch.arange(120) % 3, ("a", "b", "c"), "positive")
    found = study(Layers.of(weights), examples)
    assert found.radii[0].sparsity == 0 and math.isinf(found.radii[0].radius[2])
    assert found.to_dict()["radii"][0]["radius"] == [None] * 5
    assert found.activity[0].always == 5


def test_biases_as_weights_on_a_constant_compute_the_same():
    network, examples = module(), blobs()
    layers = read_network(network, examples.inputs[:2])
    chain = PlainChain.of(layers)
    hidden, outputs = forward(chain.weights, chain.inputs(examples.inputs))
    assert chain.constant and hidden[0].shape == (200, 17)
    with torch.no_grad():
        expected = network.double()(examples.inputs.double())
    torch.testing.assert_close(outputs, expected)
    assert bool((hidden[0][:, -1] == 1).all())
    with torch.no_grad():
        for linear in (network[1], network[3], network[5]):
            linear.bias.zero_()
    assert not PlainChain.of(read_network(network, examples.inputs[:2].double())).constant


@pytest.mark.slow
def test_a_prior_brings_certificate_and_plain_test():
    network = module(bias=False)
    found = study(network, blobs(300), prior=module(bias=False, seed=1), seed=3)
    assert [entry.variant for entry in found.certificates] == ["sparse", "dense"]
    assert all(0 < entry.risk_upper <= 1 for entry in found.certificates)
    assert [entry.what for entry in found.held_out] == ["the prior itself on the same examples"]
    record = found.to_dict()["certificates"][0]
    assert {"kl_nats", "grid_nats", "escape", "errors", "trials", "scales"} <= record.keys()
    # A prior of zeros predicts nothing, so there is no plain test of it.
    zero = read_network(network, blobs().inputs[:2]).zero()
    assert study(network, blobs(), prior=zero).held_out == ()


@pytest.mark.slow_if("E")
@pytest.mark.parametrize("theorem", ["A", "E"])
def test_each_certificate_holds_with_the_confidence_asked_for(theorem):
    prior = module(bias=False, seed=1)
    found = study(module(bias=False), blobs(), prior=prior, confidence=0.9, theorem=theorem)
    for made in found.certificates:
        assert made.confidence == pytest.approx(0.9, abs=1e-12)


def test_the_longest_input_is_an_assumption_unless_given():
    network, examples = module(bias=False), blobs()
    longest = float(examples.inputs.double().norm(dim=1).max())
    assert study(network, examples).input_norm == pytest.approx(longest)
    given = study(network, examples, input_norm=100.0)
    assert (given.input_norm, given.seen_norm) == (100.0, False)
    with pytest.raises(BadInput, match="input_norm is 1"):
        study(network, examples, input_norm=1.0)


def changed(part: int, change) -> nn.Module:
    network = module()
    with torch.no_grad():
        change(network[part])
    return network


REFUSED = {
    "few examples": (module(), blobs(99), "99 examples"),
    "labels": (
        nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 2)).eval(),
        blobs(),
        "labels run from 0 to 2, but layer 2 has outputs for 0 to 1",
    ),
    "zero row": (changed(1, lambda layer: (layer.weight[3].zero_(), layer.bias[3].zero_())),
                 blobs(), "unit 3"),
    "zero layer": (changed(3, lambda layer: (layer.weight.zero_(), layer.bias.zero_())),
                   blobs(), "every weight of layer 3"),
    "dead layer": (changed(3, lambda layer: layer.bias.fill_(-1e6)), blobs(), "no unit of layer 3"),
    "nan": (changed(1, lambda layer: layer.weight[0, 0].fill_(math.nan)), blobs(), "NaN"),
    "not a network": ("mlp", blobs(), "torch.nn.Module"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_with_its_place(case):
    network, examples, message = REFUSED[case]
    with pytest.raises(BadInput, match=message):
        study(network, examples)


@pytest.mark.parametrize(
    ("network", "name"),
    [
        (nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3)), "1"),
        (nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)), "1"),
    ],
)
def test_unsupported_layers_are_named(network, name):
    with pytest.raises(NotYetSupported, match=rf"^{name} \("):
        study(network.eval(), blobs())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"epsilons": [0.0]}, "epsilons must be positive"),
        ({"epsilons": []}, "at least one"),
        ({"confidence": 1.0}, "confidence"),
        ({"input_norm": 0.0}, "input_norm"),
        ({"prior": nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)).eval()}, "prior"),
    ],
)
def test_bad_settings_are_refused(words, message):
    with pytest.raises(BadInput, match=message):
        study(module(), blobs(), **words)
