"""Worlds whose risk is known: sparsity certificates end to end, training included, against truth.

Two clouds in the plane and a chain with one hidden layer, whose risk is counted on many fresh
examples; and, to see that the counting can fail, labels by coin toss, where every risk is 1/2.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import nonvacuous as nv
from nonvacuous.data import Examples
from nonvacuous.distributions.priors import at_initialization
from nonvacuous.distributions.storage import load_tensors
from nonvacuous.methods import Sparsity
from nonvacuous.models import build
from nonvacuous.sparsity.training import ChainTraining, train_chain
from tests.sparsity.weight_noise import chain_module
from tests.validity.test_certify_world import assert_at_most

QUICK = Sparsity(
    prior="learned:0.4", passes=1, search_examples=100, steps=40, prior_steps=80, unit_norm=False
)


def clouds(seed: int, examples: int) -> Examples:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, examples)
    mean = np.where(labels[:, None] == 1, 1.0, -1.0) * np.array([1.2, 0.5])
    inputs = 0.4 * (generator.standard_normal((examples, 2)) + mean)
    return Examples(
        torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels), ("minus", "plus"), "clouds"
    )


def errors(module: nn.Module, examples: Examples) -> float:
    with torch.no_grad():
        scores = module(examples.inputs)
    labels = examples.labels[:, None]
    wrong = scores.gather(1, labels) <= scores.scatter(1, labels, -torch.inf)
    return float(wrong.any(1).float().mean())


@pytest.mark.slow
@pytest.mark.parametrize("worlds", [18, pytest.param(100, marks=pytest.mark.nightly)])
def test_networks_that_are_trained_here_keep_their_promise(tmp_path: Path, worlds: int) -> None:
    fresh = clouds(999, 20_000)
    failures, promises = 0, []
    for world in range(worlds):
        folder = tmp_path / f"w{world}" / "run"
        certificate = nv.certify(
            build("mlp:6/no-bias", (2,), 2, seed=world),
            clouds(world, 250),
            method=QUICK.changed(twin=False),
            confidence=0.6,
            seed=world,
            folder=folder,
        )
        assert certificate.status == "valid", str(certificate)
        network = build("mlp:6/no-bias", (2,), 2, seed=0)
        network.load_state_dict(
            load_tensors(folder / "weights.safetensors", kind="weights", device="cpu")
        )
        promises.append(certificate.risk_upper)
        failures += certificate.risk_upper < errors(network, fresh)
    assert_at_most(failures, worlds, 0.4)
    assert np.median(promises) < 0.5, "the worlds must be ones in which something is promised"


@pytest.mark.slow
def test_this_counting_can_fail() -> None:
    """A prior that has seen the bound examples, against its maker's word: the promise is false."""
    failures = 0
    for world in range(3):
        generator = torch.Generator().manual_seed(world)
        inputs = torch.randn(150, 400, generator=generator)
        inputs = inputs / inputs.norm(dim=1, keepdim=True)
        labels = torch.randint(0, 2, (150,), generator=generator)
        data = Examples(inputs, labels, ("heads", "tails"), "coins")
        start = [torch.randn(20, 400, generator=generator) / 20, torch.randn(2, 20) / 5]
        fitted = train_chain(
            start, data, settings=ChainTraining(steps=200, learning_rate=0.5), seed=world
        )
        module = chain_module(fitted)
        certificate = nv.certify(
            module,
            data,
            method=QUICK.model_copy(
                update=dict(
                    prior=at_initialization(module), pretrained="trained elsewhere", twin=False
                )
            ),
            confidence=0.6,
            seed=world,
        )
        failures += certificate.risk_upper < 0.5
    assert failures == 3
