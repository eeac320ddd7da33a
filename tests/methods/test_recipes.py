"""Settings by name: what they fill in, what may replace it, and what they promise."""

from __future__ import annotations

import pytest

import nonvacuous as nv
from nonvacuous.errors import BadInput
from nonvacuous.methods.posterior.recipes import RECIPES


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_fills_in_what_was_not_given(name: str) -> None:
    whole = nv.Posterior(recipe=name)
    assert {field: getattr(whole, field) for field in RECIPES[name]} == RECIPES[name]
    changed = nv.Posterior(
        recipe=name, prior_fraction=0.3, plain_training=nv.PlainTraining(epochs=7)
    )
    assert changed.prior_fraction == 0.3
    assert changed.plain_training == whole.plain_training.changed(epochs=7)
    assert nv.Posterior(**changed.record()) == changed


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(BadInput, match="images"):
        nv.Posterior(recipe="dinner")


@pytest.mark.slow
def test_digits_are_certified_below_one_in_twenty_five() -> None:
    data = nv.data.load("digits")
    network = nv.models.build("cnn:32,64", data.train.example_shape, 10, seed=0)
    certificate = nv.certify(network, data, method=nv.Posterior(recipe="images"), attempts=10)
    assert certificate.status == "valid"
    assert certificate.risk_upper <= 0.040
