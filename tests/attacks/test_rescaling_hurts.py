"""Attack: a certificate with rescaling that is worse than the one without.

Rescaling keeps the randomized network and lowers its KL, so it can only help. A certificate that
moves the weights first and puts its noise there is about another randomized network: under a wide
prior that one can be useless where plain noise would have done.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import nonvacuous as nv
from nonvacuous.networks import capture, rescaled, scale_groups
from nonvacuous.risk.losses import bounded_cross_entropy
from nonvacuous.rules.arithmetic import recompute_bound

from .forging import forged

Grid = nv.priors.ScaleGrid
NOISE = Grid.geometric(0.01, 0.3, 6)
GRIDS = {
    "scale 1": Grid((1.0,)),
    "two wide scales": Grid((0.3, 3.0)),
    "wide": Grid.geometric(0.001, 10.0, 25),
    "narrow": Grid.geometric(0.02, 0.08, 3),
    "too narrow": Grid((0.001,)),
}


def perceptron(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


NETWORKS = {
    "wide": lambda: perceptron(16, 24, 3),
    "deep": lambda: perceptron(16, 12, 12, 8, 3),
    "convolutional": convolutional,
}


def world(name: str, seed: int) -> tuple[nn.Module, nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """A network before and after training, and the examples: easy, but not without errors."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (1200,), generator=generator)
    inputs = torch.randn(1200, 16, generator=generator)
    inputs[torch.arange(1200), labels] += 3.0
    initial = nv.models.seeded(NETWORKS[name], seed=seed).eval()
    trained = NETWORKS[name]()
    trained.load_state_dict(initial.state_dict())
    optimizer = torch.optim.Adam(trained.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        functional.cross_entropy(trained(inputs), labels).backward()
        optimizer.step()
    return initial, trained.eval(), (inputs, labels)


def with_and_without(
    network: nn.Module,
    examples: tuple[torch.Tensor, torch.Tensor],
    prior: object,
    **settings: object,
) -> tuple[nv.Certificate, nv.Certificate]:
    asked = {"loss": settings.pop("loss")} if "loss" in settings else {}
    common = {"prior": prior, "posterior_scales": NOISE, "trials": 4_000, "twin": False, **settings}
    return tuple(  # type: ignore[return-value]
        nv.certify(network, examples, method=nv.PostHoc(rescaling=on, **common), **asked)
        for on in (True, False)
    )


def _night(condition: bool) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow, pytest.mark.nightly] if condition else []


#: All combinations at night; by day any two choices meet.
CASES = [
    pytest.param(
        *(name, grid, center, per_tensor),
        marks=_night(k != (i + j) % 4) or ([pytest.mark.slow] if i + j else []),
    )
    for i, name in enumerate(NETWORKS)
    for j, grid in enumerate(GRIDS)
    for k, (center, per_tensor) in enumerate(
        (center, per_tensor)
        for center in ("zero", "initialization")
        for per_tensor in (False, True)
    )
]


@pytest.mark.parametrize(("name", "grid", "center", "per_tensor"), CASES)
def test_rescaling_never_hurts(name: str, grid: str, center: str, per_tensor: bool) -> None:
    initial, trained, examples = world(name, seed=len(grid) + len(center))
    choices = {"grid": GRIDS[grid], "per_tensor": per_tensor}
    prior = (
        nv.priors.zero_mean(**choices)
        if center == "zero"
        else nv.priors.at_initialization(initial, **choices)
    )
    on, off = with_and_without(trained, examples, prior)
    assert on.status == off.status == "valid"
    assert on.risk_upper <= off.risk_upper


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=_night(seed < 3)) for seed in range(4)])
def test_nor_does_it_in_any_other_gauge_or_loss(seed: int) -> None:
    _, trained, examples = world("deep", seed)
    groups = scale_groups(capture(trained, examples[0][:2]))
    moves = np.random.default_rng(seed).normal(size=groups.size) * 0.5 * seed
    moved = rescaled(trained, groups, moves)
    plain = {"translation": False, "permutation": False}
    for settings in ({}, {"loss": bounded_cross_entropy(0.01)}, plain):
        on, off = with_and_without(moved, examples, nv.priors.zero_mean(1.0), **settings)
        assert on.risk_upper <= off.risk_upper


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=_night(seed > 0)) for seed in range(3)])
@pytest.mark.parametrize("grid", ["scale 1", "wide"])
def test_nor_does_it_for_one_drawn_network(grid: str, seed: int) -> None:
    """One draw pays for its own weights, above the KL or below: several are tried, and paid."""
    _, trained, examples = world("wide", seed)
    prior = nv.priors.zero_mean(grid=GRIDS[grid])
    on, off = with_and_without(trained, examples, prior, predictor="drawn")
    shared = {**off.bound.inputs, "failure": off.bound.inputs["failure"] / 3}
    assert on.risk_upper <= recompute_bound(off.bound.model_copy(update={"inputs": shared}))
    assert on.budget.entries[-1].choices in (2 * len(GRIDS[grid]), 3 * len(GRIDS[grid]))


@pytest.mark.slow
def test_two_measured_posteriors_are_paid_for(tmp_path: Path) -> None:
    """The better of two samples is a choice: the ledger says so, and verify asks for it."""
    _, trained, examples = world("wide", seed=0)
    prior, few = nv.priors.zero_mean(1.0), {"trials": 300, "posterior_scales": NOISE, "twin": False}
    folder = tmp_path / "run"
    method = nv.PostHoc(prior=prior, **few)
    certificate = nv.certify(trained, examples, method=method, folder=folder)
    paid = certificate.budget.sampling
    assert paid.choices == 2 and "2 posteriors" in paid.reason
    nv.verify(folder, data=examples, model=trained).raise_if_failed()
    entries = tuple(
        entry.model_copy(update={"choices": 4}) if entry is paid else entry
        for entry in certificate.budget.entries
    )
    forged(folder, budget=certificate.budget.model_copy(update={"entries": entries}))
    failed = nv.verify(folder, data=examples, model=trained).failures
    assert any(finding.field.startswith("budget") for finding in failed)
    drawn = nv.PostHoc(prior=prior, predictor="drawn", posterior_scales=NOISE, twin=False)
    certificate = nv.certify(trained, examples, method=drawn, folder=tmp_path / "drawn")
    assert "2 networks drawn" in certificate.budget.entries[-1].reason
    nv.verify(tmp_path / "drawn", data=examples, model=trained).raise_if_failed()


@pytest.mark.slow
def test_it_helps_a_lot_under_a_wide_prior() -> None:
    """The published setting: a prior of scale 1 around zero."""
    _, trained, examples = world("wide", seed=0)
    on, off = with_and_without(trained, examples, nv.priors.zero_mean(1.0))
    assert on.risk_upper < off.risk_upper - 0.1


@pytest.mark.slow
def test_the_draws_are_those_without_rescaling(tmp_path: Path) -> None:
    """One noise, one way to put it: the two certificates then differ in nothing but the KL."""
    _, trained, examples = world("wide", seed=1)
    prior = nv.priors.zero_mean(grid=GRIDS["wide"])
    on, off = with_and_without(trained, examples, prior, posterior_scales=Grid((0.1,)))
    assert on.rescaling is not None and off.posterior is not None
    assert on.rescaling.noise_digest == off.posterior.digest
    assert on.empirical.seed == off.empirical.seed
    method = nv.PostHoc(prior=prior, trials=500, twin=False)
    nv.certify(trained, examples, method=method, folder=tmp_path / "run")
    nv.verify(tmp_path / "run", data=examples, model=trained).raise_if_failed()
