"""Attacked: scales that are asked for and silently ignored, because the prior brings its own."""

from __future__ import annotations

import pytest

import nonvacuous as nv
from nonvacuous.errors import BadInput


def test_scales_beside_a_prior_are_an_error() -> None:
    data = nv.data.digits().train
    network = nv.models.build("mlp:8", data.example_shape, 10, seed=0)
    prior = nv.priors.at_initialization(network)
    with pytest.raises(BadInput, match="prior_scales would be ignored"):
        nv.certify(network, data, prior=prior, prior_scales=0.3, trials=500, twin=False)
