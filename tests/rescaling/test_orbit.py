"""The KL along an orbit against torch.distributions, against exact arithmetic, and its laws."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput
from nonvacuous.rescaling.reading import chunks
from nonvacuous.rescaling.solver import kl_along_orbit, push, total_nats
from tests.rescaling.hand_groups import ARCHITECTURES, mlp
from tests.rescaling.problems import posterior, prior

BOTH = pytest.mark.parametrize("centered", [True, False], ids=["zero means", "other means"])


def random_scales(size: int, *, seed: int, spread: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-spread, spread, size)


@BOTH
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_equals_torch_distributions_on_the_rescaled_tensors(name: str, centered: bool) -> None:
    groups = ARCHITECTURES[name]()
    Q, P = posterior(groups, seed=3), prior(groups, seed=3, centered=centered)
    log_scales = random_scales(groups.size, seed=3)
    found = kl_along_orbit(Q, P, groups, log_scales)
    for tensor, factor in groups.factors(log_scales).items():
        r = torch.from_numpy(factor)
        moved = Normal(r * Q.means[tensor], r * Q.scales[tensor])
        fixed = Normal(P.means[tensor], P.scales[tensor])
        expected = float(kl_divergence(moved, fixed).sum())
        assert found[tensor] == pytest.approx(expected, rel=1e-11)


@BOTH
def test_push_moves_means_and_scales_alike(centered: bool) -> None:
    groups = ARCHITECTURES["grouped convolution"]()
    Q, P = posterior(groups, seed=5), prior(groups, seed=5, centered=centered)
    log_scales = random_scales(groups.size, seed=5)
    moved = push(Q, groups, log_scales)
    for name, factor in groups.factors(log_scales).items():
        torch.testing.assert_close(moved.means[name], torch.from_numpy(factor) * Q.means[name])
        torch.testing.assert_close(moved.scales[name], torch.from_numpy(factor) * Q.scales[name])
    expected = kl_along_orbit(Q, P, groups, log_scales)
    assert moved.kl_to(P) == pytest.approx(expected, rel=1e-11)


def test_moves_compose_and_undo() -> None:
    groups = ARCHITECTURES["two stages"]()
    Q, P = posterior(groups, seed=6), prior(groups, seed=6, centered=False)
    first, second = (random_scales(groups.size, seed=seed) for seed in (1, 2))
    twice = kl_along_orbit(push(Q, groups, first), P, groups, second)
    assert twice == pytest.approx(kl_along_orbit(Q, P, groups, first + second), rel=1e-11)
    back = kl_along_orbit(push(Q, groups, first), P, groups, -first)
    assert back == pytest.approx(Q.kl_to(P), rel=1e-11)


def test_moving_both_sides_changes_nothing() -> None:
    groups = ARCHITECTURES["residual"]()
    Q, P = posterior(groups, seed=7), prior(groups, seed=7, centered=False)
    log_scales = random_scales(groups.size, seed=7, spread=3.0)
    moved = kl_along_orbit(Q, push(P, groups, log_scales), groups, log_scales)
    assert total_nats(moved) == pytest.approx(Q.kl_nats(P), rel=1e-11)


def exact_nats(Q: DiagonalGaussian, P: DiagonalGaussian, logs: dict[str, np.ndarray]) -> dict:
    """The KL of each tensor in arithmetic of sixty digits."""
    found = {}
    with mpmath.workdps(60):
        for name, log in logs.items():
            rows = zip(
                log.ravel(),
                Q.means[name].ravel().tolist(),
                Q.scales[name].ravel().tolist(),
                P.means[name].ravel().tolist(),
                P.scales[name].ravel().tolist(),
                strict=True,
            )
            total = mpmath.mpf(0)
            for y, m, s, m0, s0 in rows:
                r = mpmath.exp(mpmath.mpf(y))
                x = (r * s / mpmath.mpf(s0)) ** 2
                shift = (r * m - m0) / mpmath.mpf(s0)
                total += (x - 1 - mpmath.log(x) + shift**2) / 2
            found[name] = total
    return found


@given(seed=st.integers(0, 10_000), spread=st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 40.0]))
def test_never_below_the_exact_value_and_hardly_above(seed: int, spread: float) -> None:
    groups = mlp(3, 2, 2, 2)
    centered = seed % 2 == 0
    Q, P = posterior(groups, seed=seed), prior(groups, seed=seed, centered=centered)
    if seed % 3 == 0:
        # The delicate case: nearly equal, where everything cancels.
        Q = DiagonalGaussian(
            means={n: t * (1 + 1e-9) for n, t in P.means.items()},
            scales={n: t * (1 + 1e-9) for n, t in P.scales.items()},
        )
    # Multiples of a power of two, so that sums of two log-scales are exact in float64.
    log_scales = np.round(random_scales(groups.size, seed=seed, spread=spread) * 2**40) / 2**40
    padded = np.append(log_scales, 0.0)
    logs = {}
    for name, shape in groups.shapes.items():
        logs[name] = np.zeros(shape)
        for scale in groups.exponents[name]:
            where = [1] * len(shape)
            where[scale.axes[0]] = -1
            logs[name] = logs[name] + scale.power * padded[scale.index].reshape(where)
    found = kl_along_orbit(Q, P, groups, log_scales)
    for name, exact in exact_nats(Q, P, logs).items():
        assert mpmath.mpf(found[name]) >= exact
        # Where mean and prior mean cancel, the error is relative to their size.
        size = float((Q.means[name].abs() / P.scales[name]).max() * np.exp(logs[name].max()))
        assert found[name] <= float(exact) * (1 + 1e-11) + 1e-11 * (1 + size**2)


def test_the_prior_itself_is_at_zero() -> None:
    groups = ARCHITECTURES["convolutions"]()
    P = prior(groups, seed=1, centered=False)
    assert set(kl_along_orbit(P, P, groups, np.zeros(groups.size)).values()) == {0.0}
    assert total_nats({"a": 0.0, "b": 0.0}) == 0.0


def test_unmoved_equals_the_ordinary_kl() -> None:
    groups = ARCHITECTURES["dense block"]()
    Q, P = posterior(groups, seed=2), prior(groups, seed=2, centered=False)
    found = kl_along_orbit(Q, P, groups, np.zeros(groups.size))
    assert found == pytest.approx(Q.kl_to(P), rel=1e-12)


@BOTH
def test_equal_entries_are_recognized_without_changing_the_result(centered: bool) -> None:
    groups = ARCHITECTURES["convolutions"]()
    Q = DiagonalGaussian.from_means(posterior(groups, seed=4).means, 0.05)
    means = {n: 0 * m if centered else 0 * m + 0.25 for n, m in Q.means.items()}
    P = DiagonalGaussian.from_means(means, 0.4)
    log_scales = random_scales(groups.size, seed=4)
    expected = push(Q, groups, log_scales).kl_to(P)
    assert kl_along_orbit(Q, P, groups, log_scales) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(
    "widths", [(3, 400, 500, 2), (2, 1, 90_000, 1), (70_000, 2, 1)], ids=["many", "one", "wide"]
)
def test_large_tensors_are_taken_in_chunks(widths: tuple[int, ...]) -> None:
    groups = mlp(*widths)
    Q, P = posterior(groups, seed=8), prior(groups, seed=8, centered=False)
    log_scales = random_scales(groups.size, seed=8)
    expected = push(Q, groups, log_scales).kl_to(P)
    assert kl_along_orbit(Q, P, groups, log_scales) == pytest.approx(expected, rel=1e-11)


@given(
    shape=st.lists(st.integers(1, 300), min_size=0, max_size=3),
    axis=st.sampled_from([None, 0]),
)
def test_chunks_cover_every_entry_once(shape: list[int], axis: int | None) -> None:
    seen = torch.zeros(shape, dtype=torch.int8)
    for part in chunks(tuple(shape), torch.device("cpu"), axis=axis if shape else None):
        seen[part] += 1
    assert bool((seen == 1).all())


def test_single_precision_tensors_are_summed_in_double_precision() -> None:
    groups = ARCHITECTURES["two stages"]()
    Q = posterior(groups, seed=9, dtype=torch.float32)
    P = prior(groups, seed=9, centered=False, dtype=torch.float32)
    log_scales = random_scales(groups.size, seed=9)
    wide = [
        DiagonalGaussian(
            means={n: t.double() for n, t in d.means.items()},
            scales={n: t.double() for n, t in d.scales.items()},
        )
        for d in (Q, P)
    ]
    expected = kl_along_orbit(*wide, groups, log_scales)
    assert kl_along_orbit(Q, P, groups, log_scales) == expected
    assert push(Q, groups, log_scales).means["tensor0"].dtype == torch.float32
    assert push(Q, groups, log_scales, dtype=torch.float64).means["tensor0"].dtype == torch.float64


def test_nothing_given_is_changed() -> None:
    groups = ARCHITECTURES["convolutions"]()
    Q, P = posterior(groups, seed=1), prior(groups, seed=1, centered=False)
    log_scales = random_scales(groups.size, seed=1)
    before = Q.digest(), P.digest(), log_scales.copy()
    kl_along_orbit(Q, P, groups, log_scales)
    push(Q, groups, log_scales)
    assert (Q.digest(), P.digest()) == before[:2]
    np.testing.assert_array_equal(log_scales, before[2])


def test_an_overflow_is_infinite_and_not_small() -> None:
    groups = mlp(2, 2, 1)
    Q, P = posterior(groups, seed=1), prior(groups, seed=1)
    assert math.isinf(total_nats(kl_along_orbit(Q, P, groups, np.full(2, 400.0))))


def test_wrong_arguments_are_refused_by_name() -> None:
    groups = mlp(3, 2, 2)
    Q, P = posterior(groups, seed=1), prior(groups, seed=1)
    with pytest.raises(BadInput, match=r"shape \(3,\).*need \(2,\)"):
        kl_along_orbit(Q, P, groups, np.zeros(3))
    with pytest.raises(BadInput, match=r"log_scales\[1\] is nan"):
        push(Q, groups, np.array([0.0, math.nan]))
    other = mlp(3, 3, 2)
    with pytest.raises(BadInput, match=r"'tensor0' has shape \(3, 3\) in the prior"):
        kl_along_orbit(Q, prior(other, seed=1), groups, np.zeros(2))
    deeper = mlp(3, 2, 2, 2)
    with pytest.raises(BadInput, match="the network of the groups lacks"):
        push(posterior(deeper, seed=1), groups, np.zeros(2))
