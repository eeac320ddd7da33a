"""The lifted KL against integrals of densities, and the functions under it against mpmath."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import kve, logsumexp
from scipy.stats import norm

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.rescaling.lifted import (
    Fiber,
    highest_point,
    lifted_kl,
    log_integral,
)
from nonvacuous.rescaling.solver import push, rescale
from nonvacuous.rescaling.surfaces import Pairs, Surface, pairs_of
from tests.examples import some
from tests.rescaling.hand_groups import HandGroups, Sketch, mlp, pinned
from tests.rescaling.problems import minimize_slowly, posterior, prior

# ---------------------------------------------------------------------------------- Bessel function


def mp_log_bessel_k(order: float, x: float) -> float:
    """ln of (1/2) integral of exp(order u - x cosh u), by the trapezoidal rule in 30 digits."""
    with mpmath.workdps(30):
        v, z = mpmath.mpf(order), mpmath.mpf(x)
        peak = mpmath.asinh(v / z)
        top = v * peak - z * mpmath.cosh(peak)
        step = min(mpmath.mpf(1), 1 / mpmath.sqrt(mpmath.sqrt(v * v + z * z))) / 6
        total = mpmath.mpf(1)
        for side in (1, -1):
            place, drop = peak, mpmath.mpf(0)
            while drop > -50:
                place += side * step
                drop = v * place - z * mpmath.cosh(place) - top
                total += mpmath.exp(drop)
        return float(top + mpmath.log(total * step / 2))


def log_bessel_k(order: float, x: float) -> float:
    """The same as the integral along an orbit of a Gaussian with zero means."""
    return float(log_integral(fiber(x, 0.0, x, 0.0, 2 * order))[0])


@settings(max_examples=some(120), deadline=None)
@given(
    order=st.one_of(st.floats(0, 60), st.floats(0, 5000), st.integers(0, 200).map(lambda k: k / 2)),
    log_x=st.floats(-25, 11.5),
)
def test_integrals_of_centered_gaussians_against_mpmath(order: float, log_x: float) -> None:
    x = math.exp(log_x)
    expected = mp_log_bessel_k(order, x)
    assert log_bessel_k(order, x) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("order", "x"),
    [(0.5, 2.0), (29.999, 1e-9), (30.0, 1e-9), (30.0, 30.0), (5000.0, 1e5), (2.0, 1e-200)],
)
def test_integrals_of_centered_gaussians_at_the_ends(order: float, x: float) -> None:
    expected = mp_log_bessel_k(order, x)
    assert log_bessel_k(order, x) == pytest.approx(expected, rel=1e-12)
    assert log_bessel_k(-order, x) == pytest.approx(expected, rel=1e-12)


# ------------------------------------------------------------------------------ integrals on orbits


def fiber(into: float, rising: float, out: float, falling: float, count: float) -> Fiber:
    square, cross = np.array([[into], [out]]), np.array([[rising], [falling]])
    return Fiber(square, cross, np.array([float(count)]))


def mp_log_integral(curve: Fiber) -> float:
    """By mpmath's quadrature, cut at the peaks that a fine grid shows."""
    (into, out), (rising, falling) = curve.square[:, 0], curve.cross[:, 0]
    numbers = [mpmath.mpf(float(x)) for x in (into, rising, out, falling, curve.count[0])]
    grid = np.linspace(-30, 30, 600_001)
    with np.errstate(over="ignore", invalid="ignore"):
        heights = curve.height(grid)
    top = float(heights.max())
    inside = grid[heights > top - 60]
    with mpmath.workdps(30):
        a, b, c, d, n = numbers

        def value(s: mpmath.mpf) -> mpmath.mpf:
            up = mpmath.exp(s)
            height = -a * up**2 / 2 + b * up - c / up**2 / 2 + d / up + n * s
            return mpmath.exp(height - top)

        points = [float(p) for p in np.linspace(inside[0], inside[-1], 40)]
        return float(top + mpmath.log(mpmath.quad(value, points)))


@pytest.mark.parametrize("seed", range(6))
def test_quadrature_against_mpmath(seed: int) -> None:
    rng = np.random.default_rng(seed)
    squares = np.exp(rng.uniform(-2, 8, 2))
    crosses = rng.normal(size=2) * np.sqrt(squares) * np.exp(rng.uniform(-1, 2, 2))
    count = float(np.round(rng.normal(0, 30)))
    curve = fiber(squares[0], crosses[0], squares[1], crosses[1], count)
    found = float(log_integral(curve)[0])
    assert found == pytest.approx(mp_log_integral(curve), rel=1e-10, abs=1e-10)


def test_unequal_squares_shift_the_bessel_function() -> None:
    rng = np.random.default_rng(0)
    count = 2000
    squares = np.exp(rng.uniform(-3, 4, (2, count)))
    numbers = np.round(rng.normal(0, 30, count) * (rng.random(count) < 0.8))
    curve = Fiber(squares, np.zeros((2, count)), numbers)
    x = np.sqrt(squares[0] * squares[1])
    bessel = np.log(kve(numbers / 2, x)) - x
    exact = bessel + numbers / 4 * np.log(squares[1] / squares[0])
    np.testing.assert_allclose(log_integral(curve), exact, rtol=1e-12, atol=1e-9)


@pytest.mark.slow
def test_two_peaks_are_both_integrated() -> None:
    """The theory's example of two local minima, and one with peaks of nearly equal height."""
    tau = 0.03
    twin = fiber(
        (1.347 / tau) ** 2, 1.347 * 6.009 / tau**2, (0.117 / tau) ** 2, 0.117 * 9.429 / tau**2, 0
    )
    mirror = fiber(4.0, 20.0, 4.0, 20.0, 0.0)  # symmetric in s, with a valley at 0
    for curve in (twin, mirror):
        found = float(log_integral(curve)[0])
        assert found == pytest.approx(mp_log_integral(curve), rel=1e-10)
    assert float(mirror.derivatives(np.zeros(1))[1][0]) < 0  # it is a valley


@settings(max_examples=some(200), deadline=None)
@given(
    squares=st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 1e4)),
    crosses=st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)),
    count=st.integers(-500, 500),
)
def test_the_highest_point_is_the_highest_of_a_fine_grid(
    squares: tuple[float, float], crosses: tuple[float, float], count: int
) -> None:
    curve = fiber(squares[0], crosses[0], squares[1], crosses[1], count)
    found = highest_point(curve)
    grid = np.linspace(-20, 20, 40_001)
    with np.errstate(over="ignore", invalid="ignore"):
        best = np.nanmax(curve.height(grid))
    assert float(curve.height(found)[0]) >= best - 1e-9 * (1 + abs(best))


# ----------------------------------------------------------------------------- the lifted KL itself


def one_unit(
    means: tuple[float, float],
    scales: tuple[float, float],
    prior_means: tuple[float, float],
    prior_scales: tuple[float, float],
) -> tuple[HandGroups, DiagonalGaussian, DiagonalGaussian]:
    """A network 1-1-1 without biases."""
    groups = mlp(1, 1, 1, bias=False)

    def gaussian(centers: tuple[float, float], widths: tuple[float, float]) -> DiagonalGaussian:
        tensors = [
            {
                name: torch.full((1, 1), number, dtype=torch.float64)
                for name, number in zip(groups.shapes, numbers, strict=True)
            }
            for numbers in (centers, widths)
        ]
        return DiagonalGaussian(means=tensors[0], scales=tensors[1])

    return groups, gaussian(means, scales), gaussian(prior_means, prior_scales)


def product_kl(Q: DiagonalGaussian, P: DiagonalGaussian) -> float:
    """KL between the laws of (w1 w2, sign w1, sign w2), from densities on a logarithmic grid.

    With a = ln |w1| and t = ln |w1 w2| the density of t, for given signs, is the integral over a
    of the two densities at the signed exp(a) and exp(t - a) times the volume factor exp(t).
    """
    a = np.linspace(-24.0, 4.0, 1401)[None, :]
    t = np.linspace(-26.0, 5.0, 776)[:, None]
    laws = []
    for side in (Q, P):
        first, second = (
            norm(float(side.means[name]), float(side.scales[name])) for name in side.names
        )
        law = []
        for sign in (1, -1):
            for other in (1, -1):
                logs = first.logpdf(sign * np.exp(a)) + second.logpdf(other * np.exp(t - a)) + t
                law.append(logsumexp(logs, axis=1) + math.log(a[0, 1] - a[0, 0]))
        laws.append(np.stack(law))
    step = t[1, 0] - t[0, 0]
    mass = np.exp(laws[0]).sum() * step
    assert mass == pytest.approx(1.0, abs=1e-4)
    return float((np.exp(laws[0]) * (laws[0] - laws[1])).sum() * step)


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [
        ((1.0, -0.5), (0.3, 0.2), (0.0, 0.0), (1.0, 1.0)),
        ((0.2, 1.5), (0.5, 0.4), (0.0, 0.0), (0.5, 2.0)),
        ((1.0, 1.0), (0.2, 0.2), (0.5, -0.3), (1.0, 0.7)),
        ((-1.0, 0.4), (0.6, 0.3), (1.0, 1.0), (0.8, 0.8)),
    ],
)
def test_a_network_of_one_unit_against_the_integrated_densities(
    numbers: tuple[tuple[float, float], ...],
) -> None:
    groups, Q, P = one_unit(*numbers)
    found = lifted_kl(Q, P, groups, draws=10_000)
    exact = product_kl(Q, P)
    assert abs(found.lifted_nats - exact) < 5 * found.standard_error + 1e-3
    assert found.standard_error < 0.03
    assert exact <= found.best_lambda_nats + 1e-6 <= found.weight_space_nats + 2e-6


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_chain(seed: int, centered: bool) -> None:
    groups = mlp(6, 5, 3)
    Q, P = posterior(groups, seed=seed), prior(groups, seed=seed, centered=centered)
    found = lifted_kl(Q, P, groups, draws=200, seed=seed)
    assert found.fiber_gap > -4 * found.standard_error
    assert 0 <= found.lifted_nats <= found.best_lambda_nats <= found.weight_space_nats
    assert found.lifted_nats == pytest.approx(found.best_lambda_nats - found.fiber_gap)
    assert found.weight_space_nats == pytest.approx(Q.kl_nats(P), rel=1e-12)
    solved = rescale(Q, P, groups)
    assert found.best_lambda_nats <= solved.kl_after * (1 + 1e-9)


@pytest.mark.parametrize("centered", [True, False])
def test_the_exact_best_scales_are_at_least_as_good_as_a_slow_search(centered: bool) -> None:
    groups = mlp(5, 4, 3)
    Q, P = posterior(groups, seed=5), prior(groups, seed=5, centered=centered)
    slow, _ = minimize_slowly(Q, P, groups)
    found = lifted_kl(Q, P, groups, draws=2).best_lambda_nats
    assert found <= slow * (1 + 1e-10)
    if centered:
        assert found == pytest.approx(slow, rel=1e-9)


def test_the_best_scales_are_global_where_a_descent_can_get_stuck() -> None:
    """The theory's example with two local minima."""
    groups, Q, P = one_unit((1.347, 0.117), (0.009, 0.009), (6.009, 9.429), (0.03, 0.03))
    values = [
        push(Q, groups, np.array([s]), dtype=torch.float64).kl_nats(P)
        for s in np.linspace(-8, 8, 401)
    ]
    assert lifted_kl(Q, P, groups, draws=2).best_lambda_nats <= min(values) * (1 + 1e-12)


def test_nothing_is_lost_when_posterior_and_prior_agree() -> None:
    groups = mlp(4, 3, 2)
    P = prior(groups, seed=0)
    found = lifted_kl(P, P, groups, draws=10)
    assert found.fiber_gap == pytest.approx(0.0, abs=1e-9)
    assert found.lifted_nats == pytest.approx(0.0, abs=1e-9)
    # The Gaussian approximation is not exact, even here.
    assert abs(found.laplace_gap) < 3.0


def test_the_lifted_kl_does_not_depend_on_how_the_network_was_scaled() -> None:
    groups = mlp(6, 5, 3)
    Q, P = posterior(groups, seed=1), prior(groups, seed=1)
    moved = push(Q, groups, np.random.default_rng(0).normal(size=5))
    first, second = (lifted_kl(side, P, groups, draws=50) for side in (Q, moved))
    assert second.lifted_nats == pytest.approx(first.lifted_nats, rel=1e-9)
    assert second.laplace_gap == pytest.approx(first.laplace_gap, rel=1e-9)


def classifier(inputs: int, units: int, *, scale: float, prior_scale: float) -> tuple:
    """Weights of the size that PyTorch's layers start with."""
    groups = mlp(inputs, units, 10)
    generator = torch.Generator().manual_seed(0)
    means = {
        name: torch.randn(shape, generator=generator).double()
        / math.sqrt(inputs if inputs in shape else units)
        for name, shape in groups.shapes.items()
    }
    Q = DiagonalGaussian.from_means(means, scale)
    zero = {name: torch.zeros_like(mean) for name, mean in means.items()}
    return groups, Q, DiagonalGaussian.from_means(zero, prior_scale)


def test_a_layer_of_real_size_has_a_gap_of_a_few_nats() -> None:
    """784-32-10 with the scales of the theory's example: 84 thousand nats, a gap of ten or so."""
    groups, Q, P = classifier(784, 32, scale=0.0222, prior_scale=1.0)
    found = lifted_kl(Q, P, groups, draws=100)
    assert 80_000 < found.weight_space_nats < 90_000
    assert 15_000 < found.best_lambda_nats < 30_000
    assert 3 < found.fiber_gap < 20
    assert abs(found.laplace_gap - found.fiber_gap) < 5 * found.standard_error + 0.5


@pytest.mark.parametrize(("scale", "prior_scale"), [(0.05, 1.0), (0.06, 0.1), (0.3, 1.0)])
def test_the_laplace_approximation_is_near_the_gap(scale: float, prior_scale: float) -> None:
    """Without the term for the distance of the two centers it would be off by a factor."""
    groups, Q, P = classifier(50, 30, scale=scale, prior_scale=prior_scale)
    found = lifted_kl(Q, P, groups, draws=400)
    assert found.laplace_gap == pytest.approx(found.fiber_gap, rel=0.12)


def test_a_convolution_read_by_a_linear_layer_is_one_hidden_layer_too() -> None:
    sketch = Sketch()
    channels = sketch.group(3)
    sketch.linear(pinned(2), channels, kernel=(3, 3))
    sketch.linear(np.repeat(channels, 4), pinned(3))
    groups = sketch.finish()
    Q, P = posterior(groups, seed=2), prior(groups, seed=2)
    found = lifted_kl(Q, P, groups, draws=100)
    assert found.best_lambda_nats == pytest.approx(rescale(Q, P, groups).kl_after, rel=1e-9)
    assert found.lifted_nats < found.best_lambda_nats


# ---------------------------------------------------------------------------------- deeper networks


def drawn_from(Q: DiagonalGaussian, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        name: mean.numpy() + Q.scales[name].numpy() * generator.standard_normal((1, *mean.shape))
        for name, mean in Q.means.items()
    }


def log_density(groups: HandGroups, Q: DiagonalGaussian, weights, point: np.ndarray) -> float:
    """ln of the density at the moved weights, with the volume factor: the definition."""
    total = 0.0
    for name, factor in groups.factors(point).items():
        moved = factor * weights[name]
        total += norm.logpdf(moved, Q.means[name].numpy(), Q.scales[name].numpy()).sum()
        total += np.log(factor).sum()
    return float(total)


def test_heights_on_surfaces_are_densities() -> None:
    groups = mlp(3, 2, 3, 2)
    pairs = pairs_of(groups)
    for Q in (posterior(groups, seed=1), prior(groups, seed=1)):
        weights = drawn_from(posterior(groups, seed=1), 0)
        surface = Surface.through(weights, Q, pairs)
        points = np.random.default_rng(2).normal(size=(5, groups.size))
        expected = np.array([log_density(groups, Q, weights, point) for point in points])
        found = surface.height(points)
        assert found - found[0] == pytest.approx(expected - expected[0], rel=1e-9)
        # Slopes and curvature by differences.
        step = 1e-5 * np.eye(groups.size)
        slopes = (surface.height(points[0] + step) - surface.height(points[0] - step)) / 2e-5
        assert surface.slope(points[0]) == pytest.approx(slopes, rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_sampled_integrals_against_a_grid_in_two_dimensions() -> None:
    groups = mlp(3, 1, 1, 2)
    pairs = pairs_of(groups)
    Q, P = posterior(groups, seed=3), prior(groups, seed=3)
    weights = drawn_from(Q, 1)
    for distribution in (Q, P):
        surface = Surface.through(weights, distribution, pairs)
        center = surface.peak()
        reach = np.linspace(-8, 8, 1601)
        mesh = np.stack(np.meshgrid(reach, reach, indexing="ij"), -1).reshape(-1, 2)
        with np.errstate(over="ignore", invalid="ignore"):
            heights = np.nan_to_num(surface.height(center + mesh), nan=-np.inf)
        exact = logsumexp(heights) + 2 * math.log(reach[1] - reach[0])
        low, _ = surface.log_integral(np.random.default_rng(0), 200_000, own=False)
        assert low == pytest.approx(exact, abs=0.01)


@pytest.mark.slow
def test_both_ends_enclose_the_integral_on_average() -> None:
    groups = mlp(6, 4, 2)
    Q, pairs = posterior(groups, seed=4), pairs_of(groups)
    lows, highs = [], []
    for seed in range(300):
        surface = Surface.through(drawn_from(Q, seed), Q, pairs)
        low, high = surface.log_integral(np.random.default_rng(seed), 2, own=True)
        exact, _ = surface.log_integral(np.random.default_rng(seed), 2_000, own=False)
        lows.append(low - exact)
        highs.append(high - exact)
    assert np.mean(lows) < 0 < np.mean(highs)


def test_sampled_and_exact_integrals_agree_with_one_hidden_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = mlp(8, 5, 3)
    Q, P = posterior(groups, seed=5), prior(groups, seed=5)
    exact = lifted_kl(Q, P, groups, draws=300)
    monkeypatch.setattr(Pairs, "deep", True)
    sampled = lifted_kl(Q, P, groups, draws=150, samples=128)
    spread = math.hypot(exact.standard_error, sampled.standard_error)
    assert sampled.best_lambda_nats == pytest.approx(exact.best_lambda_nats, rel=1e-9)
    assert abs(sampled.lifted_nats - exact.lifted_nats) <= 4 * spread


def test_deeper_networks_have_the_chain_and_no_gauge() -> None:
    groups = mlp(6, 4, 3, 2)
    Q, P = posterior(groups, seed=6), prior(groups, seed=6)
    here = lifted_kl(Q, P, groups, draws=60, samples=64)
    assert here.integrals == "sampled" and here.laplace_gap is None
    assert here.lifted_nats < here.best_lambda_nats < here.weight_space_nats
    moved = push(Q, groups, np.random.default_rng(0).normal(size=groups.size))
    there = lifted_kl(moved, P, groups, draws=60, samples=64, seed=1)
    assert abs(here.lifted_nats - there.lifted_nats) <= 4 * math.hypot(
        here.standard_error, there.standard_error
    )


# ----------------------------------------------------------------------------------------- refusals


def test_what_has_no_orbit_is_refused() -> None:
    with pytest.raises(NotYetSupported, match="power"):
        groups = mlp(4, 3, 2, read=-2.0)
        lifted_kl(posterior(groups, seed=0), prior(groups, seed=0), groups)
    with pytest.raises(BadInput, match="no tensor is rescaled"):
        groups = mlp(4, 2)
        lifted_kl(posterior(groups, seed=0), prior(groups, seed=0), groups)
    sketch = Sketch()
    sketch.linear(pinned(2), sketch.group(3))
    groups = sketch.finish()
    with pytest.raises(BadInput, match="no weights out of it"):
        lifted_kl(posterior(groups, seed=0), prior(groups, seed=0), groups)
    groups = mlp(4, 3, 2)
    with pytest.raises(BadInput, match="draws"):
        lifted_kl(posterior(groups, seed=0), prior(groups, seed=0), groups, draws=1)
