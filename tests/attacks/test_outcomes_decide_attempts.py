"""Attacked: an attempt that is known by its settings. What came out must decide.

Settings do not know the activation function, a number in the network's code, the threads or the
kernels that computed it: the best of many such networks looked like the only one.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nonvacuous as nv
from nonvacuous.data import Examples

QUICK = nv.Posterior(trials=500, twin=False, plain_training={"epochs": 2}, training={"epochs": 2})
ROW = "earlier certificates on these examples are paid for"


class Activated(nn.Module):
    """Equal weights, another function: no list of weights shows it."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.last = nn.Linear(64, 8), nn.Linear(8, 10)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(0.0, 0.2, generator=generator)
        self.activation = activation

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.activation(self.first(inputs.flatten(1))))


class Waves(nn.Module):
    """Which examples fall on which side depends on one Python number alone."""

    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.frequency = frequency

    def forward(self, inputs: Tensor) -> Tensor:
        wave = self.scale * torch.sin(self.frequency * inputs[:, :1])
        return torch.cat([wave, -wave], dim=1)


def coins(count: int, seed: int) -> Examples:
    """Labels that nobody can predict: the true risk of everything is a half."""
    draw = np.random.default_rng(seed)
    inputs = torch.from_numpy(draw.uniform(1.0, 2.0, (count, 1)).astype("float32"))
    return Examples(inputs, torch.from_numpy(draw.integers(0, 2, count)), ("0", "1"), "coins")


def paid(certificate: nv.Certificate) -> bool:
    (row,) = (entry for entry in certificate.assumptions if entry.name == ROW)
    return row.effect == "none"


def post_hoc(frequency: float, data: Examples, folder: Path) -> nv.Certificate:
    network = Waves(frequency)
    prior = nv.priors.at_initialization(network)
    method = nv.PostHoc(prior=prior, trials=2000, twin=False)
    return nv.certify(network, data, method=method, folder=folder)


def quick(model: nn.Module, folder: Path, **settings: Any) -> nv.Certificate:
    arguments = {"method": QUICK, "folder": folder, **settings}
    return nv.certify(model, nv.data.digits().train, **arguments)


@pytest.mark.slow
def test_four_activation_functions_are_four_attempts(tmp_path: Path) -> None:
    activations = (torch.relu, torch.tanh, torch.sigmoid, nn.functional.gelu)
    found = [
        quick(Activated(activation), tmp_path / f"{number}")
        for number, activation in enumerate(activations)
    ]
    assert [paid(certificate) for certificate in found] == [True, False, False, False]
    assert found[-1].status == "conditional"


@pytest.mark.slow
def test_one_python_number_makes_another_attempt(tmp_path: Path) -> None:
    data = coins(60, seed=1)
    found = [post_hoc(30.0 + number, data, tmp_path / f"{number}") for number in range(8)]
    assert [paid(certificate) for certificate in found] == [True] + [False] * 7
    best = min(found, key=lambda certificate: certificate.risk_upper)
    assert math.isclose(best.risk_upper, found[0].risk_upper) or best.status == "conditional"
    # The same number again is the same attempt, in whatever folder.
    assert paid(post_hoc(30.0, data, tmp_path / "again"))


@pytest.mark.slow
def test_other_kernels_make_another_attempt_where_they_make_another_posterior(
    tmp_path: Path,
) -> None:
    first = quick(Activated(torch.relu), tmp_path / "first")
    assert paid(quick(Activated(torch.relu), tmp_path / "same"))
    # Stands for other threads, another device, another version: sums in another order.
    with pytest.MonkeyPatch.context() as patch:
        linear = nn.functional.linear

        def reordered(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            turned = linear(inputs.flip(-1), weight.flip(-1))
            return turned if bias is None else turned + bias

        patch.setattr(nn.functional, "linear", reordered)
        other = quick(Activated(torch.relu), tmp_path / "other")
    assert first.posterior is not None and other.posterior is not None
    assert first.posterior.digest != other.posterior.digest, "the premise of this test"
    assert not paid(other)


@pytest.mark.slow
def test_a_training_that_was_stopped_after_a_look_counts(tmp_path: Path) -> None:
    class Stopped(Exception):
        """Somebody did not like the number."""

    def look(phase: str, done: int, total: int, message: str) -> None:
        if phase == "posterior":
            raise Stopped

    for seed in range(3):
        with pytest.raises(Stopped):
            quick(Activated(torch.relu), tmp_path / f"{seed}", seed=seed, progress=look)
    assert not paid(quick(Activated(torch.relu), tmp_path / "chosen", seed=3))
    # The one that was begun first is the same attempt when it is gone on with, or begun anew.
    assert paid(quick(Activated(torch.relu), tmp_path / "0", seed=0, resume=True))
    assert paid(quick(Activated(torch.relu), tmp_path / "0", seed=0, force=True))
    assert not paid(quick(Activated(torch.relu), tmp_path / "1", seed=1, resume=True))


@pytest.mark.slow
def test_a_training_that_was_stopped_before_any_look_does_not_count(tmp_path: Path) -> None:
    def stop(phase: str, done: int, total: int, message: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick(Activated(torch.relu), tmp_path / "typo", seed=1, progress=stop)
    assert paid(quick(Activated(torch.relu), tmp_path / "right", seed=2))


@pytest.mark.slow
def test_a_refused_certificate_was_seen_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused before anything is computed was not seen; this is refused at the end."""
    module = importlib.import_module("nonvacuous.certify")
    monkeypatch.setattr(module, "refuse_beforehand", lambda job, model: None)
    data = coins(60, seed=1)
    network = Waves(30.0)
    prior = nv.priors.at_initialization(network)
    network.table = torch.ones(3)  # a tensor that the prior's network did not have
    seen = []

    def use(inputs: Tensor) -> Tensor:
        seen.append(1)
        return Waves.forward(network, inputs) * network.table[0]

    network.forward = use  # type: ignore[method-assign]
    method = nv.PostHoc(prior=prior, trials=500, twin=False)
    refused = nv.certify(network, data, method=method, folder=tmp_path / "refused")
    assert refused.status == "refused"
    assert not paid(post_hoc(31.0, data, tmp_path / "next"))
