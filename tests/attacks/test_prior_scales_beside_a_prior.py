"""Attacked: scales that are asked for and silently ignored, because the prior brings its own."""

from __future__ import annotations

import pytest

import nonvacuous as nv
from nonvacuous.errors import BadInput


def test_scales_beside_a_prior_are_an_error() -> None:
    data = nv.data.digits().train
    network = nv.models.build("mlp:8", data.example_shape, 10, seed=0)
    prior = nv.priors.at_initialization(network)
    with pytest.raises(BadInput, match="prior_scale would be ignored"):
        nv.PostHoc(prior=prior, prior_scale=0.3)
