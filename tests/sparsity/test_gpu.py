"""Sparsity certificates computed on a GPU promise what those of the processor promise."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nonvacuous.data import Examples
from nonvacuous.sparsity.noise import noisy_pass, read_inputs, standard_noise
from nonvacuous.sparsity.setting import Setting
from nonvacuous.sparsity.weights import Layers
from tests.sparsity.calls import certify_sparse, judge

pytestmark = pytest.mark.gpu


def _chain(seed: int = 0) -> tuple[Layers, Layers]:
    """A random prior, and a network close to it."""
    generator = torch.Generator().manual_seed(seed)
    prior = [
        torch.randn(out, of, generator=generator) / of**0.5
        for of, out in ((16, 12), (12, 12), (12, 3))
    ]
    network = [matrix + 1e-4 * torch.randn(matrix.shape, generator=generator) for matrix in prior]
    return Layers.of(network), Layers.of(prior)


def _examples(layers: Layers, count: int = 2000) -> Examples:
    """Points on the sphere with the labels that the network gives them."""
    inputs = torch.randn(count, 16, generator=torch.Generator().manual_seed(1))
    inputs = inputs / inputs.norm(dim=1, keepdim=True)
    values = inputs.double()
    for matrix in layers.weights[:-1]:
        values = torch.relu(values @ matrix.T)
    labels = (values @ layers.weights[-1].T).argmax(1)
    return Examples(inputs, labels, ("a", "b", "c"), "points")


@pytest.mark.parametrize("variant", ["dense", "sparse"])
@pytest.mark.parametrize("theorem", ["D", "E", "F"])
def test_thresholds_under_the_same_noise(theorem: str, variant: str) -> None:
    layers, prior = _chain()
    examples = _examples(layers)
    anchored = variant == "sparse" and theorem != "D"
    setting = Setting(-20, (0,) * 3, 5, "cap", 8, anchored)
    generator = torch.Generator().manual_seed(2)
    noise = standard_noise(layers, len(examples), generator)
    found = []
    for device in ("cpu", "cuda"):
        evaluator = judge(layers, prior, theorem=theorem, sparse=variant == "sparse", device=device)
        inputs = read_inputs(evaluator.network, prior.to(device), examples)
        drawn = [part.to(device) for part in noise]
        noisy = noisy_pass(evaluator.network, inputs, setting.sigmas, drawn)
        found.append(evaluator.thresholds(setting, inputs, noisy).cpu())
    assert torch.allclose(*found, rtol=1e-9, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("variant", ["dense", "sparse"])
@pytest.mark.parametrize("theorem", ["A", "D", "E", "F"])
def test_certificates_of_chains(theorem: str, variant: str) -> None:
    layers, prior = _chain()
    examples = _examples(layers)
    here, there = (
        certify_sparse(
            layers, prior, examples, theorem=theorem, variant=variant, subset=500, device=device
        )
        for device in ("cpu", "cuda")
    )  # fmt: skip
    assert there.network_errors == here.network_errors < 10
    # The draws differ from device to device, and with them the setting that the search prefers.
    assert there.risk_upper == pytest.approx(here.risk_upper, abs=0.02)
    assert here.risk_upper < 0.5


def test_certificates_of_convolutions() -> None:
    torch.manual_seed(0)
    module, prior = (
        nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(36, 3, bias=False),
        ).eval()
        for _ in range(2)
    )  # fmt: skip
    with torch.no_grad():
        for own, other in zip(module.parameters(), prior.parameters(), strict=True):
            own.copy_(other + 1e-4 * torch.randn_like(other))
        images = torch.rand(2000, 1, 8, 8)
        images = images / images.flatten(1).norm(dim=1)[:, None, None, None]
        labels = module(images).argmax(1)
    examples = Examples(images, labels, ("a", "b", "c"), "images")
    here, there = (
        certify_sparse(module, prior, examples, subset=500, device=device)
        for device in ("cpu", "cuda")
    )
    assert there.network_errors == here.network_errors < 10
    assert there.risk_upper == pytest.approx(here.risk_upper, abs=0.02)
    assert here.risk_upper < 0.9
