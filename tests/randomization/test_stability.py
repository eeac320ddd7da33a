from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nonvacuous.data import Examples, digits
from nonvacuous.errors import BadInput
from nonvacuous.models import build
from nonvacuous.randomization import corrupt
from nonvacuous.randomization.classical import Predictor, Rule, uniform_stability
from nonvacuous.seeds import derived_seed
from nonvacuous.training.erm import TrainSettings, train


def perceptron_rule(model: str, *, epochs: int, learning_rate: float = 0.2) -> Rule:
    """The rule that trains a reference network by SGD."""
    settings = TrainSettings(epochs=epochs, batch_size=50, learning_rate=learning_rate)

    def rule(examples: Examples, seed: int) -> Predictor:
        network = build(
            model, examples.example_shape, examples.classes, seed=derived_seed(seed, "weights")
        )
        return train(network, examples, settings, seed=derived_seed(seed, "order")).module

    return rule


QUICK = perceptron_rule("mlp:128", epochs=100, learning_rate=0.3)


def nearest_neighbor(examples: Examples, seed: int) -> Predictor:
    """Interpolates every labeling of distinct inputs, without any training."""

    def predict(inputs: Tensor) -> Tensor:
        nearest = torch.cdist(inputs.flatten(1), examples.inputs.flatten(1)).argmin(dim=1)
        return torch.nn.functional.one_hot(examples.labels[nearest], examples.classes).float()

    return predict


def always_zero(examples: Examples, seed: int) -> Predictor:
    return lambda inputs: torch.eye(examples.classes)[torch.zeros(len(inputs)).long()]


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["true", "random-labels"])
def test_an_interpolating_network_has_uniform_stability_one(spec: str) -> None:
    """C24: the same number for true and for random labels, so it cannot tell them apart."""
    examples = corrupt(digits(), spec, seed=0).train.subset(range(100))
    found = uniform_stability(QUICK, examples, position=3)
    assert found.errors_before == found.errors_after == 0
    assert (found.loss_before, found.loss_after, found.difference) == (0, 1, 1)
    assert found.difference == 1
    assert found.new_label != found.old_label == int(examples.labels[3])


@pytest.mark.parametrize("position", [0, 57, 199])
def test_any_interpolating_rule_has_it_at_any_position(position: int) -> None:
    examples = digits().train.subset(range(200))
    assert uniform_stability(nearest_neighbor, examples, position=position).difference == 1


def test_a_rule_that_learns_nothing_is_perfectly_stable() -> None:
    examples = digits().train.subset(range(200))
    found = uniform_stability(always_zero, examples)
    assert found.difference == 0
    assert found.difference < 1


def test_the_same_seed_and_order_are_used_for_both_networks() -> None:
    examples = digits().train.subset(range(60))
    rule = perceptron_rule("mlp:16", epochs=3)
    one, two, other = (rule(examples, seed)(examples.inputs) for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_bad_input() -> None:
    examples = digits().train.subset(range(20))
    twice = examples.subset([0, 1, 0])
    with pytest.raises(BadInput, match="occurs 2 times"):
        uniform_stability(nearest_neighbor, twice, position=2)
    for position in (20, -1, 1.0):
        with pytest.raises(BadInput, match="position must"):
            uniform_stability(nearest_neighbor, examples, position=position)  # type: ignore[arg-type]
