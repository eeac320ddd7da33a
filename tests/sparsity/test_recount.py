"""A frozen setting gone through again gives the certificate's own counts and charges."""

from __future__ import annotations

import json

import pytest
import torch

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.certify import evaluator_of, final_seed, recount
from nonvacuous.sparsity.setting import SparseSettings, UniformSetting, frozen_setting
from nonvacuous.sparsity.weights import Layers
from tests.sparsity.calls import certify_sparse
from tests.sparsity.weight_noise import random_layers


def problem() -> tuple[Layers, Layers, Examples]:
    generator = torch.Generator().manual_seed(1)
    prior = random_layers((5, 9, 7, 3), generator, bias=True)
    network = Layers.of([1.01 * w for w in prior.weights], prior.biases)
    inputs = torch.randn(300, 5, generator=generator)
    labels = torch.randint(0, 3, (300,), generator=generator)
    return network, prior, Examples(inputs, labels, ("a", "b", "c"), "made for a test")


@pytest.mark.parametrize("theorem", ["A", "D", "E", "F"])
@pytest.mark.parametrize("variant", ["sparse", "dense"])
def test_the_same_counts_charges_and_scales(theorem: str, variant: str) -> None:
    network, prior, examples = problem()
    made = certify_sparse(
        network, prior, examples, theorem=theorem, variant=variant, passes=2, subset=100, seed=4
    )  # type: ignore[arg-type]
    record = json.loads(json.dumps(made.details["setting"]))
    setting = frozen_setting(theorem, variant, record)
    evaluator = evaluator_of(network, prior, SparseSettings(theorem=theorem, variant=variant))
    assert evaluator.charges(setting) == made.charges
    assert evaluator.scales(setting) == made.scales
    seed = final_seed(4, network.digest(), setting)
    again = recount(evaluator, setting, examples, passes=2, seed=seed)
    assert (again.errors, again.trials) == (made.errors, made.trials)
    assert again.agrees_with(errors=made.errors, trials=made.trials)
    assert not again.agrees_with(errors=made.errors + again.close + 1, trials=made.trials)
    assert not again.agrees_with(errors=made.errors, trials=made.trials + 1)


@pytest.mark.parametrize(
    "change",
    [
        {"first": 41},
        {"first": -3.0},
        {"first": True},
        {"escape": 12},
        {"escape": -1},
        {"steps": "1"},
        {"steps": [0.5]},
        {"tail": "fat"},
        {"tail": None},
        {"named": 1},
        {"luck": 7},
    ],
)
def test_settings_that_do_not_exist(change: dict[str, object]) -> None:
    honest = {
        "first": -8,
        "steps": [0, 1],
        "escape": 5,
        "tail": "cap",
        "factor": 1,
        "anchored": True,
        "named": False,
    }
    frozen_setting("E", "sparse", honest)
    with pytest.raises(BadInput):
        frozen_setting("E", "sparse", {**honest, **change})
    with pytest.raises(BadInput):
        frozen_setting("D", "sparse", honest)


def test_choices_that_cost_nothing_must_be_none() -> None:
    """Each would draw other noise for free, or be asked for without being paid."""
    plain = {"first": -8, "steps": [0], "escape": 5, "tail": None, "factor": 0, "anchored": False,
             "named": False}  # fmt: skip
    frozen_setting("D", "sparse", plain)
    for change in ({"factor": 3}, {"anchored": True}):
        with pytest.raises(BadInput, match="Theorem D"):
            frozen_setting("D", "sparse", {**plain, **change})
    tailed = {**plain, "tail": "cap", "factor": 2}
    frozen_setting("E", "dense", tailed)
    with pytest.raises(BadInput, match="Theorem E, dense"):
        frozen_setting("E", "dense", {**tailed, "anchored": True})
    uniform = {"first": -8, "steps": [0], "escape": 5, "inactive": [0, 0]}
    frozen_setting("A", "dense", uniform)
    frozen_setting("A", "sparse", {**uniform, "inactive": [3, 2]})
    with pytest.raises(BadInput, match="asks for some"):
        frozen_setting("A", "dense", {**uniform, "inactive": [3, 0]})
    with pytest.raises(BadInput, match="less than no"):
        frozen_setting("A", "sparse", {**uniform, "inactive": [-1, 0]})


def test_as_many_inactive_units_as_there_are_is_no_choice() -> None:
    network, prior, _ = problem()
    evaluator = evaluator_of(network, prior, SparseSettings(theorem="A", variant="sparse"))
    width = network.widths[0]
    rest = (0,) * (len(network.widths) - 1)
    steps = (0,) * len(network.widths)
    for count in (-1, width):
        setting = UniformSetting((count, *rest), -8, steps, 5)
        with pytest.raises(BadInput, match="inactive units are asked"):
            evaluator.charges(setting)
    evaluator.charges(UniformSetting((width - 1, *rest), -8, steps, 5))


def test_an_infinite_threshold_does_not_hang_on_rounding() -> None:
    """A loss for sure is no tolerance: else a forged count could be smaller by all of them."""
    from nonvacuous.sparsity.judging import close

    infinite = float("inf")
    level = torch.tensor([infinite, 1.0, 1.0, 1.0, float("nan")], dtype=torch.float64)
    margin = torch.tensor([1.0, 1.0, 2.0, infinite, 1.0], dtype=torch.float64)
    assert int(close(level, margin).sum()) == 1
