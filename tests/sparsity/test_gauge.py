"""The same function in other weights: what may be chosen freely, and what it gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from nonvacuous.data import Examples
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.gauge import gauged, rescaled
from nonvacuous.sparsity.weights import Layers
from tests.sparsity.calls import certify_sparse
from tests.sparsity.weight_noise import random_layers


def _scores(layers: Layers, points: torch.Tensor) -> torch.Tensor:
    values = points
    for k, (matrix, bias) in enumerate(zip(layers.weights, layers.biases, strict=True)):
        values = values @ matrix.T + (0.0 if bias is None else bias)
        values = values.clamp(min=0) if k < layers.hidden else values
    return values


def _disguised(layers: Layers, generator: torch.Generator, spread: float) -> Layers:
    logs = (spread * torch.randn(width, generator=generator).double() for width in layers.widths)
    return rescaled(layers, tuple(logs))


def _distance(layers: Layers, prior: Layers) -> float:
    return math.fsum(layers.squared_distances(prior))


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), bias=st.booleans(), spread=st.floats(0.0, 1.5))
def test_the_function_stays_and_the_distance_never_grows(
    seed: int, bias: bool, spread: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    prior = random_layers((4, 6, 5, 3), generator, bias=bias)
    layers = _disguised(random_layers((4, 6, 5, 3), generator, bias=bias), generator, spread)
    points = torch.randn(20, 4, generator=generator).double()
    for gauge in ("given", "nearest", "balanced"):
        moved, center = gauged(layers, prior, gauge)
        assert torch.allclose(_scores(moved, points), _scores(layers, points), rtol=1e-9)
        assert torch.allclose(_scores(center, points), _scores(prior, points), rtol=1e-9)
    near = gauged(layers, prior, "nearest")[0]
    assert _distance(near, prior) <= _distance(layers, prior) * (1 + 1e-9)


def test_a_disguised_prior_is_recognized() -> None:
    generator = torch.Generator().manual_seed(0)
    prior = random_layers((6, 8, 8, 8, 3), generator, bias=True)
    nearest, _ = gauged(_disguised(prior, generator, 1.0), prior, "nearest")
    assert _distance(nearest, prior) < 1e-20 * sum(float(w.norm()) for w in prior.weights)


def test_one_hidden_layer_agrees_with_a_general_minimizer() -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        prior, layers = (random_layers((3, 4, 2), generator) for _ in range(2))

        def distance(logs: np.ndarray, layers: Layers = layers, prior: Layers = prior) -> float:
            return _distance(rescaled(layers, (torch.from_numpy(logs),)), prior)

        # Without slopes, unlike the one under test.
        slow = min(minimize(distance, np.full(4, s), method="Powell").fun for s in (-1, 0, 1))
        fast = _distance(gauged(layers, prior, "nearest")[0], prior)
        assert fast <= slow * (1 + 1e-6)


def test_a_balanced_prior_depends_on_the_prior_alone() -> None:
    generator = torch.Generator().manual_seed(2)
    prior = random_layers((4, 6, 5, 3), generator)
    first, second = (random_layers((4, 6, 5, 3), generator) for _ in range(2))
    one, other = (gauged(layers, prior, "balanced")[1] for layers in (first, second))
    assert all(torch.equal(a, b) for a, b in zip(one.weights, other.weights, strict=True))
    for into, out in zip(one.weights, one.weights[1:], strict=False):
        assert torch.allclose(into.square().sum(1), out.square().sum(0), rtol=1e-2)
    # A prior of zeros has no balance of its own, and is left as it is.
    _, zero = gauged(first, first.zero(), "balanced")
    assert _distance(zero, first.zero()) == 0.0


@pytest.mark.slow
def test_the_certificate_of_a_badly_gauged_network_comes_back() -> None:
    generator = torch.Generator().manual_seed(3)
    prior = random_layers((6, 12, 10, 3), generator)
    network = Layers.of(
        [w + 1e-3 * torch.randn(w.shape, generator=generator).double() for w in prior.weights]
    )
    points = torch.randn(2000, 6, generator=generator)
    points = points / points.norm(dim=1, keepdim=True)
    labels = _scores(network, points.double()).argmax(1)
    examples = Examples(points, labels, ("a", "b", "c"), "points")
    bad = _disguised(network, generator, 0.7)
    good, lost, back = (
        certify_sparse(layers, prior, examples, theorem="F", subset=400, passes=1, gauge=gauge)
        for layers, gauge in ((network, "given"), (bad, "given"), (bad, "nearest"))
    )
    assert good.risk_upper < 0.5 and lost.risk_upper > 0.9
    assert back.risk_upper < good.risk_upper + 0.03
    assert back.details["gauge"] == "nearest" and "gauge" not in good.details
    assert back.network_errors == lost.network_errors
    with pytest.raises(BadInput, match="no gauge"):
        certify_sparse(network, prior, examples, gauge="lucky")  # type: ignore[arg-type]
