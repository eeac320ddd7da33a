"""The solver against a slow optimizer, and everything that the theory promises about its result."""

from __future__ import annotations

from typing import ClassVar

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.rescaling.collapse import collapse
from nonvacuous.rescaling.descending import Limits, descend, extrapolated
from nonvacuous.rescaling.reading import Reading
from nonvacuous.rescaling.solver import kl_along_orbit, push, rescale, total_nats
from nonvacuous.rescaling.sweeps import Descent, Totals
from tests.rescaling.hand_groups import ARCHITECTURES, HandGroups, Sketch, mlp, pinned
from tests.rescaling.problems import kl_by_definition, minimize_slowly, posterior, prior

BOTH = pytest.mark.parametrize("centered", [True, False], ids=["zero means", "other means"])
EVERY = pytest.mark.parametrize("name", ARCHITECTURES)
FEW = pytest.mark.parametrize("name", ["three hidden layers", "recurrent"])
SOME = pytest.mark.parametrize(
    "name", ["three hidden layers", "residual", "grouped convolution", "recurrent", "dense block"]
)


QUICKLY_ALSO_OTHER_MEANS = {"convolutions", "grouped convolution", "recurrent", "bilinear"}


@pytest.mark.slow_if("ten hidden layers-True")
@pytest.mark.parametrize(
    ("name", "centered"),
    [
        pytest.param(
            name,
            centered,
            marks=[] if centered or name in QUICKLY_ALSO_OTHER_MEANS else [pytest.mark.slow],
        )
        for name in ARCHITECTURES
        for centered in (True, False)
    ],
)
def test_finds_what_a_slow_optimizer_finds(name: str, centered: bool) -> None:
    groups = ARCHITECTURES[name]()
    Q, P = posterior(groups, seed=1), prior(groups, seed=1, centered=centered)
    found = rescale(Q, P, groups)
    best, _ = minimize_slowly(Q, P, groups)
    assert found.converged
    assert found.kl_after <= best * (1 + 1e-9)
    if centered:
        assert found.kl_after >= best * (1 - 1e-12)


@EVERY
def test_the_result_is_that_of_the_full_tensors(name: str) -> None:
    groups = ARCHITECTURES[name]()
    Q, P = posterior(groups, seed=2), prior(groups, seed=2, centered=False)
    found = rescale(Q, P, groups)
    expected = kl_along_orbit(Q, P, groups, found.log_scales)
    assert dict(found.kl_terms) == pytest.approx(expected, rel=1e-10)
    assert found.kl_after == total_nats(dict(found.kl_terms))
    assert found.kl_before == pytest.approx(Q.kl_nats(P), rel=1e-11)
    assert found.kl_after <= found.kl_before
    direct = kl_by_definition(Q, P, groups, torch.from_numpy(found.log_scales)).item()
    assert found.kl_after == pytest.approx(direct, rel=1e-11)


class Watched(Descent):
    """Notes the KL before and after each common step of the groups: every move in between."""

    seen: ClassVar[list[float]] = []

    def coarse_step(self, totals: Totals) -> Totals:
        self.seen.append(self.nats(totals))
        after = super().coarse_step(totals)
        self.seen.append(self.nats(after))
        return after

    def at(self, log_scales: Tensor) -> Watched:
        return Watched(self.terms, log_scales)


@BOTH
@EVERY
def test_no_move_goes_up(name: str, centered: bool) -> None:
    groups = ARCHITECTURES[name]()
    Q, P = posterior(groups, seed=3), prior(groups, seed=3, centered=centered)
    rng = np.random.default_rng(3)
    for spread in (0.5, 15.0):
        start = torch.from_numpy(rng.uniform(-spread, spread, groups.size))
        Watched.seen.clear()
        descend(Watched(collapse(Reading.of(Q, P), groups), start), Limits(1e-13, 60))
        values = np.array(Watched.seen)
        assert len(values) > 5
        assert (np.diff(values) <= 1e-12 * np.abs(values[:-1])).all()


@pytest.mark.slow_if("three hidden layers")
@FEW
def test_one_limit_from_twenty_starts(name: str) -> None:
    groups = ARCHITECTURES[name]()
    Q, P = posterior(groups, seed=4), prior(groups, seed=4)
    terms = collapse(Reading.of(Q, P), groups)
    expected = rescale(Q, P, groups, tolerance=1e-13)
    rng = np.random.default_rng(4)
    for _ in range(20):
        start = torch.from_numpy(rng.normal(scale=3.0, size=groups.size))
        end = descend(Descent(terms, start), Limits(1e-13, 500))
        assert end.nats == pytest.approx(expected.kl_after, rel=1e-10)
        np.testing.assert_allclose(end.log_scales.numpy(), expected.log_scales, atol=1e-4)


@EVERY
def test_every_channel_is_balanced_at_the_end(name: str) -> None:
    """Weights in: sum of (r² a - 1). Weights out: the same. By loops over single weights."""
    groups = ARCHITECTURES[name]()
    Q, P = posterior(groups, seed=5), prior(groups, seed=5)
    found = rescale(Q, P, groups, tolerance=1e-14)
    factors = groups.factors(found.log_scales)
    balance, size = np.zeros(groups.size), np.zeros(groups.size)
    for tensor, shape in groups.shapes.items():
        squares = (Q.means[tensor] ** 2 + Q.scales[tensor] ** 2) / P.scales[tensor] ** 2
        pull = (factors[tensor] ** 2 * squares.numpy()) - 1
        for scale in groups.exponents[tensor]:
            for place in np.ndindex(*shape):
                channel = scale.index[tuple(place[axis] for axis in scale.axes)]
                if channel >= 0:
                    balance[channel] += scale.power * pull[place]
                    size[channel] += abs(scale.power) * (pull[place] + 2)
    assert np.abs(balance / size).max() < 1e-6
    # A weight from a channel to itself counts in the size here, but not for the solver.
    worst = np.abs(balance / size).max()
    assert found.balance_residual == pytest.approx(worst, rel=0.5, abs=1e-12)


@BOTH
@FEW
@pytest.mark.parametrize("spread", [1.0, 30.0, 60.0])
def test_the_result_does_not_depend_on_how_the_network_was_scaled(
    name: str, centered: bool, spread: float
) -> None:
    groups = ARCHITECTURES[name]()
    Q, P = posterior(groups, seed=6), prior(groups, seed=6, centered=centered)
    expected = rescale(Q, P, groups)
    moves = np.random.default_rng(6).uniform(-spread, spread, groups.size)
    found = rescale(push(Q, groups, moves), P, groups)
    assert found.converged
    assert found.kl_after == pytest.approx(expected.kl_after, rel=1e-9)
    if centered:
        np.testing.assert_allclose(found.log_scales + moves, expected.log_scales, atol=1e-3)


@SOME
def test_the_best_point_gains_nothing_more(name: str) -> None:
    groups = ARCHITECTURES[name]()
    Q, P = posterior(groups, seed=7), prior(groups, seed=7)
    best = push(Q, groups, rescale(Q, P, groups, tolerance=1e-14).log_scales)
    again = rescale(best, P, groups)
    assert again.kl_before - again.kl_after <= 1e-11 * again.kl_before
    assert np.abs(again.log_scales).max() < 1e-4


def test_a_posterior_equal_to_its_prior_stays() -> None:
    groups = ARCHITECTURES["residual"]()
    P = prior(groups, seed=8, centered=False)
    found = rescale(P, P, groups)
    assert (found.kl_before, found.kl_after) == (0.0, 0.0)
    assert not found.log_scales.any()


@pytest.mark.parametrize("sweeps", [1, 2, 3])
@BOTH
def test_stopping_early_is_valid_and_says_so(sweeps: int, centered: bool) -> None:
    groups = ARCHITECTURES["recurrent"]()
    Q, P = posterior(groups, seed=9), prior(groups, seed=9, centered=centered)
    found = rescale(Q, P, groups, max_sweeps=sweeps)
    assert not found.converged
    assert found.kl_after <= found.kl_before
    assert found.balance_residual > 1e-5


def two_minima() -> tuple[DiagonalGaussian, DiagonalGaussian, HandGroups]:
    """One input, one hidden channel, one output; prior means far away in another gauge."""
    groups = mlp(1, 1, 1, bias=False)
    one = torch.ones(1, 1, dtype=torch.float64)
    Q = DiagonalGaussian.from_means({"tensor0": 1.347 * one, "tensor1": 0.117 * one}, 0.009)
    P = DiagonalGaussian.from_means({"tensor0": 6.009 * one, "tensor1": 9.429 * one}, 0.03)
    return Q, P, groups


@pytest.mark.slow
def test_two_local_minima_exist_and_the_lower_one_is_returned() -> None:
    Q, P, groups = two_minima()
    grid = np.linspace(-8, 8, 801)
    values = np.array(
        [total_nats(kl_along_orbit(Q, P, groups, np.array([point]))) for point in grid]
    )
    inside = (values[1:-1] < values[:-2]) & (values[1:-1] < values[2:])
    assert int(inside.sum()) == 2
    found = rescale(Q, P, groups)
    assert found.converged
    assert found.kl_after <= values[1:-1][inside].min()
    # From either side of the hump, a descent ends in one of the two.
    terms = collapse(Reading.of(Q, P), groups)
    for point in (-7.0, -1.0, 0.0, 1.0, 3.0, 7.0):
        start = torch.tensor([point], dtype=torch.float64)
        end = descend(Descent(terms, start), Limits(1e-12, 500))
        assert np.abs(end.nats / values[1:-1][inside] - 1).min() < 1e-3


def test_prior_at_the_initialization() -> None:
    """The case of practice: trained weights not far from the prior means, narrow prior."""
    groups = mlp(20, 15, 12, 5)
    P = DiagonalGaussian.from_means(prior(groups, seed=10, centered=False).means, 0.1)
    noise = posterior(groups, seed=10).means
    Q = DiagonalGaussian.from_means({n: m + 0.2 * noise[n] for n, m in P.means.items()}, 0.02)
    found = rescale(Q, P, groups)
    best, _ = minimize_slowly(Q, P, groups)
    assert found.kl_after == pytest.approx(best, rel=1e-9)
    assert found.kl_after < found.kl_before


def test_a_network_without_free_scales() -> None:
    sketch = Sketch()
    sketch.linear(pinned(3), pinned(2))
    groups = sketch.finish()
    Q, P = posterior(groups, seed=1), prior(groups, seed=1)
    found = rescale(Q, P, groups)
    assert found.kl_after == found.kl_before == pytest.approx(Q.kl_nats(P))
    assert found.log_scales.shape == (0,) and found.sweeps == 0 and found.converged


@BOTH
def test_the_same_call_gives_the_same_bits(centered: bool) -> None:
    groups = ARCHITECTURES["two stages"]()
    Q, P = posterior(groups, seed=11), prior(groups, seed=11, centered=centered)
    first, second = rescale(Q, P, groups), rescale(Q, P, groups)
    np.testing.assert_array_equal(first.log_scales, second.log_scales)
    assert first.kl_after == second.kl_after


@BOTH
def test_nothing_given_is_changed(centered: bool) -> None:
    groups = ARCHITECTURES["convolutions"]()
    Q, P = posterior(groups, seed=12), prior(groups, seed=12, centered=centered)
    before = Q.digest(), P.digest()
    rescale(Q, P, groups)
    assert (Q.digest(), P.digest()) == before


def test_single_precision_weights_reach_the_same_point() -> None:
    groups = ARCHITECTURES["convolutions"]()
    wide = rescale(posterior(groups, seed=13), prior(groups, seed=13), groups)
    Q = posterior(groups, seed=13, dtype=torch.float32)
    P = prior(groups, seed=13, dtype=torch.float32)
    narrow = rescale(Q, P, groups)
    assert narrow.kl_after == pytest.approx(wide.kl_after, rel=1e-5)
    np.testing.assert_allclose(narrow.log_scales, wide.log_scales, atol=1e-5)


def test_progress_is_told_after_every_sweep() -> None:
    groups = ARCHITECTURES["residual"]()
    Q, P = posterior(groups, seed=14), prior(groups, seed=14)
    calls: list[tuple[str, int, int, str]] = []
    found = rescale(Q, P, groups, progress=lambda *call: calls.append(call))
    assert [done for _, done, _, _ in calls] == list(range(1, found.sweeps + 1))
    assert all("nats" in message for *_, message in calls)


def test_senseless_limits_are_refused() -> None:
    groups = mlp(2, 2, 1)
    Q, P = posterior(groups, seed=1), prior(groups, seed=1)
    with pytest.raises(BadInput, match="tolerance must lie strictly between 0 and 1"):
        rescale(Q, P, groups, tolerance=0.0)
    with pytest.raises(BadInput, match="max_sweeps must be at least 1"):
        rescale(Q, P, groups, max_sweeps=0)


def test_weights_beyond_float64_are_refused() -> None:
    groups = mlp(1, 1, 1, bias=False)
    one = torch.ones(1, 1, dtype=torch.float64)
    Q = DiagonalGaussian.from_means({"tensor0": 1e160 * one, "tensor1": one}, 0.1)
    P = DiagonalGaussian.from_means({"tensor0": 0 * one, "tensor1": 0 * one}, 1.0)
    with pytest.raises(BadInput, match=r"'tensor0'.*range of float64"):
        rescale(Q, P, groups)
    # Each square fits, their sum does not.
    wide = mlp(1, 2, 1, bias=False)
    means = {"tensor0": 1.2e154 * torch.ones(2, 1).double(), "tensor1": torch.ones(1, 2).double()}
    Q = DiagonalGaussian.from_means(means, 0.1)
    P = DiagonalGaussian.from_means({name: 0 * mean for name, mean in means.items()}, 1.0)
    with pytest.raises(BadInput, match="scaled so unevenly"):
        rescale(Q, P, wide)


def test_extrapolation_ends_a_linear_sequence_at_once() -> None:
    generator = torch.Generator().manual_seed(1)
    turn = 0.9 * torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))[0]
    limit = torch.arange(1.0, 5.0, dtype=torch.float64)
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    point = torch.zeros(4, dtype=torch.float64)
    assert extrapolated(pairs) is None
    for _ in range(5):
        following = limit + turn @ (point - limit)
        pairs.append((point, following))
        point = following
    assert float((point - limit).abs().max()) > 0.1
    torch.testing.assert_close(extrapolated(pairs), limit, rtol=0, atol=1e-6)
    assert extrapolated(pairs[-1:]) is None


@pytest.mark.gpu
@BOTH
@SOME
def test_on_a_gpu(name: str, centered: bool) -> None:
    groups = ARCHITECTURES[name]()
    Q, P = posterior(groups, seed=15), prior(groups, seed=15, centered=centered)
    here = rescale(Q, P, groups)
    there = rescale(Q.to("cuda"), P.to("cuda"), groups)
    assert there.kl_after == pytest.approx(here.kl_after, rel=1e-9)
    again = rescale(Q.to("cuda"), P.to("cuda"), groups)
    np.testing.assert_array_equal(again.log_scales, there.log_scales)


@pytest.mark.gpu
@SOME
def test_on_a_gpu_with_one_scale_for_all_weights(name: str) -> None:
    """Single precision, one scale, prior means zero: the tensors are summed in a shorter way."""
    groups = ARCHITECTURES[name]()
    means = posterior(groups, seed=16, dtype=torch.float32).means
    Q = DiagonalGaussian.from_means(means, 0.05)
    P = DiagonalGaussian.from_means({n: torch.zeros_like(m) for n, m in means.items()}, 0.7)
    here = rescale(Q, P, groups)
    there = rescale(Q.to("cuda"), P.to("cuda"), groups)
    assert there.kl_before == pytest.approx(here.kl_before, rel=1e-11)
    assert there.kl_after == pytest.approx(here.kl_after, rel=1e-9)
    full = total_nats(kl_along_orbit(Q.to("cuda"), P.to("cuda"), groups, there.log_scales))
    assert there.kl_after == pytest.approx(full, rel=1e-11)
    again = rescale(Q.to("cuda"), P.to("cuda"), groups)
    np.testing.assert_array_equal(again.log_scales, there.log_scales)


@pytest.mark.parametrize("value", [1.0165276527404785, 1.2697867155075073])
def test_the_kl_of_a_very_wide_layer_is_not_below_the_true_one(value: float) -> None:
    """A million equal weights: where they are added one by one, all errors go the same way."""
    groups = mlp(1_000_000, 1, 1, bias=False)
    Q = DiagonalGaussian.from_means(
        {name: torch.full(shape, value) for name, shape in groups.shapes.items()}, 0.7
    )
    P = DiagonalGaussian.from_means(
        {name: torch.zeros(shape) for name, shape in groups.shapes.items()}, 1.0
    )
    with mpmath.workdps(40):
        mean, scale = (
            mpmath.mpf(float(tensors[next(iter(groups.shapes))][0, 0]))
            for tensors in (Q.means, Q.scales)
        )
        exact = (scale**2 + mean**2 - 1 - 2 * mpmath.log(scale)) / 2 * 1_000_001
        assert mpmath.mpf(rescale(Q, P, groups).kl_before) >= exact
