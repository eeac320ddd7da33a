"""A world whose risk is known exactly: certificates end to end, training included, against truth.

Two classes, N(+m, I) and N(-m, I) in the plane, and a linear network. Given the weights, the risk
is a normal tail; the risk of a Gaussian posterior is its average over draws of the weights.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import nonvacuous as nv
from nonvacuous.data import Examples
from nonvacuous.distributions.storage import load_tensors
from tests.training.calls import train

MEAN = np.array([0.7, 0.3])
QUICK = {
    "plain_training": nv.PlainTraining(epochs=2, batch_size=30, learning_rate=0.2),
    "training": nv.PosteriorTraining(epochs=2, batch_size=60, learning_rate=0.05),
}


def long_too(short: int, long: int) -> pytest.MarkDecorator:
    """So many worlds; and many more at night, which see failures that are a little too frequent."""
    return pytest.mark.parametrize("worlds", [short, pytest.param(long, marks=pytest.mark.nightly)])


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of runs are synced to it file by file."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def draw_world(seed: int, examples: int) -> Examples:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, examples)
    inputs = generator.standard_normal((examples, 2)) + np.where(labels[:, None] == 1, MEAN, -MEAN)
    return Examples(
        torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels), ("minus", "plus"), "world"
    )


def linear(seed: int) -> torch.nn.Module:
    def made() -> torch.nn.Module:
        layer = torch.nn.Linear(2, 2)
        torch.nn.init.normal_(layer.weight, std=0.5)
        torch.nn.init.normal_(layer.bias, std=0.5)
        return layer

    return nv.models.seeded(made, seed=seed)


def true_risk(weight: torch.Tensor, bias: torch.Tensor) -> float:
    """Average risk over the leading axis of weights: plus is predicted where v.x + c > 0."""
    v = (weight[..., 1, :] - weight[..., 0, :]).double().numpy()
    c = (bias[..., 1] - bias[..., 0]).double().numpy()
    length = np.linalg.norm(v, axis=-1)
    wrong_plus = stats.norm.cdf(-(v @ MEAN + c) / length)
    wrong_minus = stats.norm.cdf((-(v @ MEAN) + c) / length)
    return float(np.mean(0.5 * wrong_plus + 0.5 * wrong_minus))


def posterior_risk(folder: Path, draws: int = 1000) -> float:
    posterior = nv.DiagonalGaussian.load(folder / "posterior.safetensors")
    generator = torch.Generator().manual_seed(12345)
    noise = {
        name: torch.randn(draws, *m.shape, generator=generator)
        for name, m in posterior.means.items()
    }
    weights = {n: posterior.means[n] + posterior.scales[n] * noise[n] for n in posterior.names}
    return true_risk(weights["weight"], weights["bias"])


def doubted_start(certificate: nv.Certificate) -> bool:
    """Whether an honest start looks as if it knew the examples: by luck, one in twenty at most."""
    doubts = [a.name for a in certificate.assumptions if a.effect != "none"]
    assert doubts in ([], ["the starting weights saw no bound example"]), doubts
    return bool(doubts)


def count_false(claim: Callable[[int], tuple[float, float]], worlds: int) -> int:
    """How often a certificate is below the truth; each world gives (promise, truth)."""
    return sum(promise < truth for promise, truth in map(claim, range(worlds)))


def assert_at_most(failures: int, worlds: int, failure: float) -> None:
    surprise = stats.binom.sf(failures - 1, worlds, failure)
    assert surprise > 1e-4, f"{failures} false certificates of {worlds}, allowed rate {failure}"


@pytest.mark.slow
@long_too(50, 2000)
def test_trained_posteriors_keep_their_promise(memory: Path, worlds: int) -> None:
    def claim(world: int) -> tuple[float, float]:
        folder = memory / f"w{world}" / "run"
        certificate = nv.certify(
            linear(world),
            draw_world(world, 60),
            method=nv.Posterior(trials=500, prior_scale=0.3, twin=False, **QUICK),
            confidence=0.8,
            seed=world,
            folder=folder,
        )
        doubted.append(doubted_start(certificate))
        return certificate.risk_upper, posterior_risk(folder)

    doubted: list[bool] = []
    assert_at_most(count_false(claim, worlds), worlds, 0.2)
    assert_at_most(sum(doubted), worlds, 0.05)


@pytest.mark.slow
@long_too(40, 400)
def test_tilted_posteriors_keep_their_promise(memory: Path, worlds: int) -> None:
    def claim(world: int) -> tuple[float, float]:
        folder = memory / f"w{world}" / "run"
        certificate = nv.certify(
            linear(world),
            draw_world(world, 460),
            method=nv.Posterior(trials=500, prior_scale=0.3, twin=False, **QUICK),
            confidence=0.5,
            seed=world,
            folder=folder,
        )
        assert certificate.bound.name == "catoni"
        doubted.append(doubted_start(certificate))
        return certificate.risk_upper, posterior_risk(folder)

    doubted: list[bool] = []
    assert_at_most(count_false(claim, worlds), worlds, 0.5)
    assert_at_most(sum(doubted), worlds, 0.05)


@pytest.mark.slow
@long_too(40, 500)
def test_one_drawn_network_keeps_its_promise(memory: Path, worlds: int) -> None:
    def claim(world: int) -> tuple[float, float]:
        folder = memory / f"w{world}" / "run"
        certificate = nv.certify(
            linear(world),
            draw_world(world, 60),
            method=nv.Posterior(
                predictor="drawn", prior_fraction=0.0, prior_scale=0.5, twin=False, **QUICK
            ),
            confidence=0.6,
            seed=world,
            folder=folder,
        )
        drawn = load_tensors(folder / "drawn.safetensors", kind="weights", device="cpu")
        return certificate.risk_upper, true_risk(drawn["weight"], drawn["bias"])

    assert_at_most(count_false(claim, worlds), worlds, 0.4)


@pytest.mark.slow
@long_too(20, 300)
def test_post_hoc_certificates_keep_their_promise(memory: Path, worlds: int) -> None:
    grid = nv.priors.ScaleGrid((0.3, 1.0))
    noise = nv.priors.ScaleGrid((0.1, 0.5))

    def claim(world: int) -> tuple[float, float]:
        folder = memory / f"w{world}" / "run"
        examples = draw_world(world, 60)
        start = linear(world)
        trained = train(start, examples, epochs=2, batch_size=30, learning_rate=0.2)
        certificate = nv.certify(
            trained.module,
            examples,
            method=nv.PostHoc(
                prior=nv.priors.at_initialization(start, grid=grid),
                posterior_scales=noise,
                trials=500,
                twin=False,
            ),
            confidence=0.8,
            seed=world,
            folder=folder,
        )
        return certificate.risk_upper, posterior_risk(folder)

    assert_at_most(count_false(claim, worlds), worlds, 0.2)


def two_layers(seed: int) -> torch.nn.Module:
    def made() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))

    return nv.models.seeded(made, seed=seed)


def sampled_risk(folder: Path, world: int, draws: int = 200, points: int = 4000) -> float:
    """The risk of a posterior over two layers, by fresh examples: no formula is known."""
    fresh = draw_world(10_000 + world, points)
    posterior = nv.DiagonalGaussian.load(folder / "posterior.safetensors")
    generator = torch.Generator().manual_seed(54321)
    w = {
        name: mean + posterior.scales[name] * torch.randn(draws, *mean.shape, generator=generator)
        for name, mean in posterior.means.items()
    }
    hidden = torch.relu(
        torch.einsum("dhi,ni->dnh", w["0.weight"], fresh.inputs) + w["0.bias"][:, None]
    )
    scores = torch.einsum("dch,dnh->dnc", w["2.weight"], hidden) + w["2.bias"][:, None]
    return float((scores.argmax(2) != fresh.labels).double().mean())


@pytest.mark.slow
@long_too(15, 60)
def test_certificates_that_forget_symmetries_keep_their_promise(memory: Path, worlds: int) -> None:
    grid = nv.priors.ScaleGrid((0.3, 1.0))
    used = set()

    def claim(world: int) -> tuple[float, float]:
        folder = memory / f"w{world}" / "run"
        examples = draw_world(world, 60)
        trained = train(two_layers(world), examples, epochs=3, batch_size=20, learning_rate=0.2)
        certificate = nv.certify(
            trained.module,
            examples,
            method=nv.PostHoc(
                prior=nv.priors.zero_mean(grid=grid),
                posterior_scales=nv.priors.ScaleGrid((0.05, 0.2)),
                trials=500,
                twin=False,
            ),
            confidence=0.6,
            seed=world,
            folder=folder,
        )
        assert certificate.status == "valid", str(certificate)
        assert certificate.complexity is not None
        used.update(saving.symmetry for saving in certificate.complexity.symmetries)
        return certificate.risk_upper, sampled_risk(folder, world)

    assert_at_most(count_false(claim, worlds), worlds, 0.4)
    assert used == {"translation", "permutation"}


def held_out(world: int, *, peek: bool) -> tuple[float, float]:
    """A plain test certificate; with ``peek`` the network was chosen on its own test examples."""
    examples = draw_world(world, 50)
    network = linear(world)
    if peek:
        network = min(candidates(), key=lambda candidate: errors_of(candidate, examples))
    certificate = nv.certify(
        network, examples, method=nv.HeldOut(unseen=True), confidence=0.8, seed=world
    )
    return certificate.risk_upper, true_risk(network.weight.detach(), network.bias.detach())


@cache
def candidates() -> list[torch.nn.Module]:
    return [linear(k) for k in range(200)]


def errors_of(network: torch.nn.Module, examples: Examples) -> int:
    with torch.no_grad():
        return int((network(examples.inputs).argmax(1) != examples.labels).sum())


@pytest.mark.slow
@long_too(100, 2000)
def test_held_out_certificates_keep_their_promise(worlds: int) -> None:
    assert_at_most(count_false(lambda w: held_out(w, peek=False), worlds), worlds, 0.2)


@pytest.mark.slow
def test_this_counting_can_fail() -> None:
    """A network chosen for its luck on the test examples breaks the promise, and is counted."""
    failures = count_false(lambda w: held_out(w, peek=True), 60)
    assert stats.binom.sf(failures - 1, 60, 0.2) < 1e-4
