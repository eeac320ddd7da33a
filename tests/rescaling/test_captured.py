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


class Tempered(torch.nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)
        self.inner = torch.nn.Parameter(torch.full(shape, 1.5))
        self.temperature = torch.nn.Parameter(torch.full(shape, 0.7))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.temperature * self.last(self.inner * torch.relu(self.first(inputs)))


def test_single_numbers_are_rescaled_as_vectors_of_one() -> None:
    inputs, values = torch.randn(4, 8), []
    for shape in ((), (1,)):
        torch.manual_seed(0)
        module = Tempered(shape).eval()
        groups = scale_groups(capture(module, inputs))
        Q = DiagonalGaussian.around(module, scale=0.1)
        found = rescale(Q, DiagonalGaussian.centered(module, scale=1.0), groups)
        moved = rescaled(module, groups, found.log_scales)
        assert moved.temperature.shape == shape
        torch.testing.assert_close(moved(inputs), module(inputs), rtol=1e-4, atol=1e-5)
        values.append((found.kl_before, found.kl_after))
    assert values[0] == values[1]
    assert values[0][1] < values[0][0]
