"""The solver on captured networks: same function, and the optimum of a slow optimizer."""

from __future__ import annotations

import pytest
import torch

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.networks import capture, rescaled, scale_groups
from nonvacuous.rescaling.solver import rescale
from tests.networks.architectures import ARCHITECTURES
from tests.rescaling.problems import minimize_slowly, posterior, prior

QUICK = {"lenet", "densenet", "mobilenet relu", "grouped convolutions", "recurrent", "llama"}


CASES = [
    pytest.param(
        architecture,
        centered,
        id=f"{architecture.name}-{'zero' if centered else 'other'} means",
        # Every architecture once; a few both ways at once, all of them at night.
        marks=[]
        if architecture.name in QUICK
        else [pytest.mark.slow, *([pytest.mark.nightly] if centered else [])],
    )
    for architecture in ARCHITECTURES
    if architecture.free > 0
    for centered in (True, False)
]


@pytest.mark.nightly_if("resnet50")
@pytest.mark.slow_if(
    "densenet-other means",
    "mobilenet relu-zero means",
    "densenet-zero means",
    "mobilenet relu-other means",
)
@pytest.mark.parametrize(("architecture", "centered"), CASES)
def test_finds_what_a_slow_optimizer_finds(architecture, centered: bool) -> None:
    module, example = architecture.made()
    groups = scale_groups(capture(module, example))
    Q, P = posterior(groups, seed=1), prior(groups, seed=1, centered=centered)
    found = rescale(Q, P, groups)
    best, _ = minimize_slowly(Q, P, groups)
    assert found.converged
    assert found.kl_after == pytest.approx(best, rel=1e-8)
    assert found.kl_after <= found.kl_before


def test_the_rescaled_network_computes_the_same_function() -> None:
    (architecture,) = (a for a in ARCHITECTURES if a.name == "lenet")
    module, example = architecture.made()
    groups = scale_groups(capture(module, example))
    Q = DiagonalGaussian.around(module, scale=0.03)
    P = DiagonalGaussian.centered(module, scale=1.0)
    found = rescale(Q, P, groups)
    assert found.kl_after < found.kl_before
    moved = rescaled(module, groups, found.log_scales)
    with torch.no_grad():
        torch.testing.assert_close(moved(example), module(example), rtol=1e-10, atol=1e-10)
