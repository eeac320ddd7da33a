from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nonvacuous.data import Examples, digits
from nonvacuous.errors import BadInput
from nonvacuous.randomization import corrupt
from nonvacuous.randomization.stability import (
    Predictor,
    average_stability,
    perceptron_rule,
    uniform_stability,
)

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
    average = average_stability(
        always_zero, examples, digits().train.subset(range(200, 300)), digits().test, swaps=4
    )  # type: ignore[arg-type]
    assert average.by_swap == average.by_seed == 0
    assert average.gap == 0


def test_average_stability_of_nearest_neighbors_by_a_loop() -> None:
    data = digits()
    examples, spare = data.train.subset(range(200)), data.train.subset(range(200, 230))
    assert data.test is not None
    calls: list[str] = []
    found = average_stability(
        nearest_neighbor, examples, spare, data.test, swaps=30, seed=5,
        progress=lambda phase, done, total, message: calls.append(f"{done}/{total}"),
    )  # fmt: skip
    assert calls == [f"{i}/34" for i in range(1, 35)]
    assert found.changed_by_seed == (0, 0, 0)  # the rule does not use its seed
    assert found.fitted_errors == 0
    # Recomputed: which positions were replaced is all that must be known.
    first = nearest_neighbor(examples, 0)(data.test.inputs).argmax(1) != data.test.labels
    generator_positions = positions_of(examples, seed=5, swaps=30)
    changed, left_out = [], 0
    for number, position in enumerate(generator_positions):
        kept = [i for i in range(200) if i != position]
        inputs = torch.cat([examples.inputs[kept], spare.inputs[number : number + 1]])
        labels = torch.cat([examples.labels[kept], spare.labels[number : number + 1]])
        other = nearest_neighbor(replace(examples, inputs=inputs, labels=labels), 0)
        changed.append(
            int(((other(data.test.inputs).argmax(1) != data.test.labels) != first).sum())
        )
        probe = other(examples.inputs[position : position + 1]).argmax(1)
        left_out += int(probe != examples.labels[position])
    assert found.changed_by_swap == tuple(changed)
    assert found.replaced_errors == left_out
    assert found.by_swap == pytest.approx(sum(changed) / (30 * len(data.test)))
    assert found.gap == pytest.approx(left_out / 30)


def positions_of(examples: Examples, *, seed: int, swaps: int) -> list[int]:
    """Which positions average_stability replaces, seen from outside by a rule that takes notes."""
    seen: list[int] = []

    def rule(given: Examples, own_seed: int) -> Predictor:
        different = (given.inputs != examples.inputs).flatten(1).any(1).nonzero().flatten()
        seen.extend(different.tolist())
        return always_zero(given, own_seed)

    data = digits()
    assert data.test is not None
    average_stability(
        rule, examples, data.train.subset(range(200, 230)), data.test, swaps=swaps, seed=seed
    )
    assert len(seen) == len(set(seen)) == swaps
    return seen


def test_the_same_seed_and_order_are_used_for_both_networks() -> None:
    examples = digits().train.subset(range(60))
    rule = perceptron_rule("mlp:16", epochs=3)
    one, two, other = (rule(examples, seed)(examples.inputs) for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.slow
def test_random_labels_are_less_stable_on_average_and_a_seed_changes_more_than_a_swap() -> None:
    shares = {}
    for spec in ("true", "random-labels"):
        made = corrupt(digits(), spec, seed=0)
        assert made.test is not None
        shares[spec] = average_stability(
            QUICK, made.train.subset(range(150)), made.train.subset(range(150, 180)), made.test,
            swaps=5, other_seeds=2,
        )  # fmt: skip
    assert shares["true"].by_swap < shares["random-labels"].by_swap
    assert shares["true"].gap < 0.5 < shares["random-labels"].gap
    for found in shares.values():
        assert found.by_swap < found.by_seed


def test_bad_input() -> None:
    examples = digits().train.subset(range(20))
    twice = examples.subset([0, 1, 0])
    with pytest.raises(BadInput, match="occurs 2 times"):
        uniform_stability(nearest_neighbor, twice, position=2)
    for position in (20, -1):
        with pytest.raises(BadInput, match=r"outside 0\.\.19"):
            uniform_stability(nearest_neighbor, examples, position=position)
    with pytest.raises(BadInput, match="not a whole number"):
        uniform_stability(nearest_neighbor, examples, position=1.0)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="21 swaps need"):
        average_stability(nearest_neighbor, examples, digits().train, examples, swaps=21)
    with pytest.raises(BadInput, match="1 or more"):
        average_stability(nearest_neighbor, examples, digits().train, examples, swaps=0)
