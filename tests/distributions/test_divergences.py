"""KL, Rényi divergence and density ratio: against torch, mpmath and closed forms."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.distributions import gaussian as module
from nonvacuous.errors import BadInput
from tests.examples import some

mpmath.mp.dps = 60
finite_means = st.floats(-1e6, 1e6, width=32)
positive_scales = st.floats(2.0**-40, 2.0**40, width=32)
close_scales = st.floats(0.9999, 1.0001)


def single(mean: float, scale: float, dtype: torch.dtype = torch.float64) -> DiagonalGaussian:
    return DiagonalGaussian(
        means={"w": torch.tensor([mean], dtype=dtype)},
        scales={"w": torch.tensor([scale], dtype=dtype)},
    )


def exact_kl(m: float, s: float, prior_m: float, prior_s: float) -> mpmath.mpf:
    m, s, prior_m, prior_s = map(mpmath.mpf, (m, s, prior_m, prior_s))
    ratio = (s / prior_s) ** 2
    return (ratio - 1 - mpmath.log(ratio) + ((m - prior_m) / prior_s) ** 2) / 2


def exact_renyi(order: float, m: float, s: float, prior_m: float, prior_s: float) -> mpmath.mpf:
    a, m, s, prior_m, prior_s = map(mpmath.mpf, (order, m, s, prior_m, prior_s))
    mixed = a * prior_s**2 + (1 - a) * s**2
    if mixed <= 0:
        return mpmath.inf
    scale_part = mpmath.log(prior_s / s) + mpmath.log(prior_s**2 / mixed) / (2 * (a - 1))
    return scale_part + a * (m - prior_m) ** 2 / (2 * mixed)


def test_scale_is_a_standard_deviation_not_a_variance() -> None:
    # KL(N(0, 4) || N(0, 1)) with standard deviation 2 is (4 - 1 - ln 4) / 2.
    assert single(0, 2).kl_nats(single(0, 1)) == pytest.approx((3 - math.log(4)) / 2, rel=1e-12)
    # KL(N(3, 1) || N(0, 2^2)) = ln 2 + (1 + 9) / 8 - 1/2.
    expected = math.log(2) + 10 / 8 - 0.5
    assert single(3, 1).kl_nats(single(0, 2)) == pytest.approx(expected, rel=1e-12)


def test_agrees_with_torch_distributions() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (7, 5), "b": (3,), "c": ()}

    def random_gaussian() -> DiagonalGaussian:
        means = {n: torch.randn(s, generator=generator) for n, s in shapes.items()}
        scales = {n: torch.rand(s, generator=generator) + 0.05 for n, s in shapes.items()}
        return DiagonalGaussian(means=means, scales=scales)

    posterior, prior = random_gaussian(), random_gaussian()
    for name, value in posterior.kl_to(prior).items():
        normal = torch.distributions.Normal
        expected = torch.distributions.kl_divergence(
            normal(posterior.means[name].double(), posterior.scales[name].double()),
            normal(prior.means[name].double(), prior.scales[name].double()),
        ).sum()
        assert value == pytest.approx(float(expected), rel=1e-12)
    assert posterior.kl_nats(prior) >= math.fsum(posterior.kl_to(prior).values())


@settings(max_examples=some(600), deadline=None)
@given(finite_means, positive_scales, finite_means, positive_scales)
def test_kl_is_never_below_the_exact_value(
    m: float, s: float, prior_m: float, prior_s: float
) -> None:
    computed = single(m, s).kl_nats(single(prior_m, prior_s))
    exact = exact_kl(m, s, prior_m, prior_s)
    assert mpmath.mpf(computed) >= exact
    assert computed <= exact * (1 + mpmath.mpf(10) ** -9) + mpmath.mpf(10) ** -12


@settings(max_examples=some(400), deadline=None)
@given(close_scales, close_scales)
def test_kl_keeps_its_digits_for_almost_equal_scales(s: float, prior_s: float) -> None:
    computed = single(0.5, s).kl_nats(single(0.5, prior_s))
    exact = exact_kl(0.5, s, 0.5, prior_s)
    assert exact <= mpmath.mpf(computed) <= exact + mpmath.mpf(10) ** -16


@pytest.mark.parametrize(
    ("s", "prior_s"), [(1e-37, 1e37), (1e37, 1e-37), (1e-37, 1e-37), (3e-38, 1.0), (1.0, 3e-38)]
)
def test_kl_at_the_ends_of_float32(s: float, prior_s: float) -> None:
    posterior, prior = single(0, s, torch.float32), single(0, prior_s, torch.float32)
    exact = exact_kl(0, float(posterior.scales["w"]), 0, float(prior.scales["w"]))
    computed = posterior.kl_nats(prior)
    assert exact <= computed <= exact * (1 + mpmath.mpf(10) ** -10)


def test_kl_of_equal_distributions_is_exactly_zero() -> None:
    layer = torch.nn.Linear(50, 20)
    assert DiagonalGaussian.around(layer, 0.1).kl_nats(DiagonalGaussian.around(layer, 0.1)) == 0.0


@pytest.mark.slow
def test_kl_sums_in_float64_and_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ten million equal float32 terms: a float32 running sum would be off in the third digit.
    weights = 10_000_001
    posterior = DiagonalGaussian.from_means({"w": torch.full((weights,), 0.1)}, 1.0)
    prior = DiagonalGaussian.from_means({"w": torch.zeros(weights)}, 1.0)
    exact = exact_kl(float(posterior.means["w"][0]), 1, 0, 1) * weights
    assert exact <= posterior.kl_nats(prior) <= exact * (1 + mpmath.mpf(10) ** -10)
    small = DiagonalGaussian.from_means({"w": torch.linspace(-1, 1, 1000)}, 0.3)
    other = DiagonalGaussian.from_means({"w": torch.zeros(1000)}, 0.7)
    whole = small.kl_nats(other)
    monkeypatch.setattr(module, "_BLOCK", 7)
    assert small.kl_nats(other) == pytest.approx(whole, rel=1e-12)


@settings(max_examples=some(400), deadline=None)
@given(finite_means, positive_scales, finite_means, positive_scales, st.floats(-20, 20))
def test_kl_does_not_change_when_both_are_rescaled(
    m: float, s: float, prior_m: float, prior_s: float, log_factor: float
) -> None:
    factor = math.exp(log_factor)
    before = single(m, s).kl_nats(single(prior_m, prior_s))
    after = single(m * factor, s * factor).kl_nats(single(prior_m * factor, prior_s * factor))
    assert after == pytest.approx(before, rel=1e-6, abs=1e-9)


@settings(max_examples=some(600), deadline=None)
@given(
    finite_means,
    st.floats(1e-3, 1e3),
    finite_means,
    st.floats(1e-3, 1e3),
    st.floats(1.01, 20),
)
def test_renyi_is_never_below_the_exact_value(
    m: float, s: float, prior_m: float, prior_s: float, order: float
) -> None:
    computed = single(m, s).renyi_to(single(prior_m, prior_s), order)["w"]
    exact = exact_renyi(order, m, s, prior_m, prior_s)
    assert computed == math.inf or mpmath.mpf(computed) >= exact
    mixed = order - (order - 1) * (s / prior_s) ** 2
    if mixed > 1e-6:
        assert computed <= exact * (1 + mpmath.mpf(10) ** -6) + mpmath.mpf(10) ** -8


def test_renyi_does_not_exist_for_a_much_wider_posterior() -> None:
    assert single(0, 2).renyi_to(single(0, 1), 2.0)["w"] == math.inf
    assert math.isfinite(single(0, 1).renyi_to(single(0, 2), 2.0)["w"])


def test_renyi_approaches_kl_and_grows_with_the_order() -> None:
    posterior, prior = single(0.3, 0.8), single(0.0, 1.0)
    values = [posterior.renyi_to(prior, order)["w"] for order in (1.0001, 1.5, 2.0, 4.0)]
    assert values[0] == pytest.approx(posterior.kl_nats(prior), rel=1e-3)
    assert values == sorted(values)
    with pytest.raises(BadInput, match="order"):
        posterior.renyi_to(prior, 1.0)


def test_log_density_ratio_agrees_with_torch_and_averages_to_kl() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, 4)
    posterior = DiagonalGaussian.around(layer, 0.5)
    prior = DiagonalGaussian.centered(layer, 1.0)
    generator = torch.Generator().manual_seed(1)
    ratios = []
    for _ in range(4000):
        weights = posterior.sample(generator=generator)
        ratios.append(posterior.log_density_ratio(prior, weights))
    expected = 0.0
    for name in posterior.names:
        drawn = weights[name].double()
        for sign, gaussian in ((1, posterior), (-1, prior)):
            normal = torch.distributions.Normal(
                gaussian.means[name].double(), gaussian.scales[name].double()
            )
            expected += sign * float(normal.log_prob(drawn).sum())
    assert ratios[-1] == pytest.approx(expected, rel=1e-10, abs=1e-10)
    spread = torch.tensor(ratios).std() / math.sqrt(len(ratios))
    assert abs(sum(ratios) / len(ratios) - posterior.kl_nats(prior)) < 4 * spread


def test_log_density_ratio_may_be_negative_and_checks_its_weights() -> None:
    posterior, prior = single(0, 1), single(0, 0.1)
    assert posterior.log_density_ratio(prior, {"w": torch.zeros(1)}) < 0
    with pytest.raises(BadInput, match="shape"):
        posterior.log_density_ratio(prior, {"w": torch.zeros(2)})
    with pytest.raises(BadInput, match=r"lacks 1 .* 'w'"):
        posterior.log_density_ratio(prior, {"v": torch.zeros(1)})
