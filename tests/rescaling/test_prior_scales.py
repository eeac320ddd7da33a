"""Prior scales chosen together with channel scales: the optimum, the grid and the charge."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from nonvacuous.distributions import DiagonalGaussian, ScaleGrid
from nonvacuous.rescaling.prior_scales import rescale_with_prior_scales, rough_rescaling
from nonvacuous.rescaling.solver import kl_along_orbit, push, rescale, total_nats
from tests.rescaling.hand_groups import ARCHITECTURES, HandGroups, Sketch, mlp, pinned
from tests.rescaling.problems import kl_by_definition, posterior, prior

FINE = ScaleGrid.geometric(1e-3, 1e2, 4001)
SHARED = pytest.mark.parametrize("per_tensor", [False, True], ids=["one scale", "one per tensor"])
BOTH = pytest.mark.parametrize("centered", [True, False], ids=["zero means", "other means"])


def means_of(groups: HandGroups, *, centered: bool) -> dict[str, torch.Tensor] | None:
    return None if centered else dict(prior(groups, seed=1, centered=False).means)


def best_by_brute_force(
    Q: DiagonalGaussian, groups: HandGroups, means: dict[str, torch.Tensor], *, per_tensor: bool
) -> float:
    """L-BFGS over channel scales and any positive prior scales, by automatic differentiation."""
    names = list(groups.shapes)
    free = len(names) if per_tensor else 1

    def value_and_gradient(vector: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(vector.copy()).requires_grad_()
        log_prior = point[groups.size :].expand(len(names)) if free == 1 else point[groups.size :]

        class P:
            pass

        P.means = means
        P.scales = {
            name: log_prior[place].exp() * torch.ones(groups.shapes[name], dtype=torch.float64)
            for place, name in enumerate(names)
        }
        value = kl_by_definition(Q, P, groups, point[: groups.size])
        value.backward()
        return value.item(), point.grad.numpy()

    start = np.zeros(groups.size + free)
    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    return float(found.fun)


@SHARED
@BOTH
@pytest.mark.parametrize(
    "name",
    [
        "partly pinned",
        "recurrent",
        pytest.param("three hidden layers", marks=pytest.mark.slow),
        pytest.param("residual", marks=pytest.mark.slow),
    ],
)
def test_a_fine_grid_reaches_the_joint_optimum(name: str, centered: bool, per_tensor: bool) -> None:
    groups = ARCHITECTURES[name]()
    Q = posterior(groups, seed=1)
    means = means_of(groups, centered=centered)
    found = rescale_with_prior_scales(Q, means, groups, grid=FINE, per_tensor=per_tensor)
    zeros = {n: torch.zeros(s, dtype=torch.float64) for n, s in groups.shapes.items()}
    best = best_by_brute_force(Q, groups, means or zeros, per_tensor=per_tensor)
    assert found.converged
    # Neighbors of the grid are 0.3 % apart, which costs less than 1e-5 of a nat per weight.
    assert found.kl_after <= best * (1 + 1e-9) + 1e-5 * Q.weights
    assert found.kl_after <= found.kl_before


@SHARED
@BOTH
def test_the_kl_is_recomputed_at_the_chosen_scales(centered: bool, per_tensor: bool) -> None:
    groups = ARCHITECTURES["convolutions"]()
    Q = posterior(groups, seed=2, dtype=torch.float32)
    means = means_of(groups, centered=centered)
    if means is not None:
        means = {name: mean.float() for name, mean in means.items()}
    grid = ScaleGrid.geometric(0.05, 2.0, 9)
    found = rescale_with_prior_scales(Q, means, groups, grid=grid, per_tensor=per_tensor)
    assert set(found.scales.values()) <= set(grid.scales)
    for name, scale in found.scales.items():
        torch.testing.assert_close(
            found.prior.scales[name], torch.full_like(Q.means[name], scale), rtol=0, atol=0
        )
    assert dict(found.kl_terms) == kl_along_orbit(Q, found.prior, groups, found.log_scales)
    assert found.kl_after == total_nats(dict(found.kl_terms))
    choices = len(groups.shapes) if per_tensor else 1
    assert found.charge_nats == grid.charge_nats(choices=choices)
    assert found.complexity_nats >= found.kl_after + choices * math.log(9)


def test_one_scale_is_plain_rescaling() -> None:
    groups = ARCHITECTURES["dense block"]()
    Q = posterior(groups, seed=3)
    found = rescale_with_prior_scales(Q, None, groups, grid=ScaleGrid((0.7,)))
    plain = rescale(Q, found.prior, groups)
    assert found.charge_nats == 0
    assert found.kl_after == pytest.approx(plain.kl_after, rel=1e-9)
    assert found.kl_before == pytest.approx(plain.kl_before, rel=1e-11)


def test_no_pair_of_scales_on_a_small_grid_is_much_better() -> None:
    groups = mlp(4, 3, 2, bias=False)
    Q = posterior(groups, seed=4)
    grid = ScaleGrid.geometric(0.1, 3.0, 7)
    found = rescale_with_prior_scales(Q, None, groups, grid=grid, per_tensor=True)
    best = math.inf
    for pair in itertools.product(grid.scales, repeat=2):
        scales = dict(zip(groups.shapes, pair, strict=True))
        zeros = {name: torch.zeros_like(mean) for name, mean in Q.means.items()}
        P = DiagonalGaussian.from_means(zeros, scales)
        best = min(best, rescale(Q, P, groups).kl_after)
    assert found.kl_after <= best * 1.02


@SHARED
def test_the_result_does_not_depend_on_how_the_network_was_scaled(per_tensor: bool) -> None:
    groups = ARCHITECTURES["three hidden layers"]()
    Q = posterior(groups, seed=5)
    grid = ScaleGrid.geometric(1e-12, 1e12, 4001)
    moves = np.random.default_rng(5).uniform(-20, 20, groups.size)
    expected, found = (
        rescale_with_prior_scales(start, None, groups, grid=grid, per_tensor=per_tensor)
        for start in (Q, push(Q, groups, moves))
    )
    # One scale per tensor can also undo a move of a whole layer: then several roundings tie.
    slack = 1e-4 * Q.weights if per_tensor else 1e-8 * expected.kl_after
    assert abs(found.kl_after - expected.kl_after) <= slack
    assert per_tensor or found.scales == expected.scales


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_a_rough_look_tells_the_kl_and_where_to_start(centered: bool, per_tensor: bool) -> None:
    groups = mlp(5, 4, 3)
    Q, P = posterior(groups, seed=3), prior(groups, seed=3, centered=centered)
    options = {"grid": ScaleGrid.geometric(0.05, 2.0, 30), "per_tensor": per_tensor}
    cold = rescale_with_prior_scales(Q, P.means, groups, **options)
    nats, near = rough_rescaling(Q, P.means, groups, **options)
    assert nats == pytest.approx(cold.kl_after, rel=1e-2)
    nats, near = rough_rescaling(Q, P.means, groups, **options, start=near)
    assert nats == pytest.approx(cold.kl_after, rel=1e-2)
    warm = rescale_with_prior_scales(Q, P.means, groups, **options, start=near)
    assert warm.scales == cold.scales
    assert warm.kl_after == pytest.approx(cold.kl_after, rel=1e-8)
    assert warm.sweeps < cold.sweeps


@given(
    energy=st.floats(-12, 6).map(math.exp),
    count=st.integers(1, 1000),
    highest=st.floats(0.2, 10),
    size=st.integers(2, 40),
)
def test_the_choice_on_a_grid_is_the_cheapest(
    energy: float, count: int, highest: float, size: int
) -> None:
    grid = ScaleGrid.geometric(0.1, highest, size)
    chosen = grid.cheapest_for([("w",), ("v", "u")], *tensors(energy, count))

    def cost(scale: float) -> float:
        return energy / (2 * scale**2) + count * math.log(scale)

    assert cost(chosen["w"]) == min(cost(scale) for scale in grid.scales)
    assert chosen["v"] == chosen["u"]


def tensors(energy: float, count: int) -> tuple[dict[str, float], dict[str, int]]:
    return dict.fromkeys("wvu", energy), dict.fromkeys("wvu", count)


def test_prior_scales_alone_are_reported_too() -> None:
    groups = ARCHITECTURES["two stages"]()
    Q = posterior(groups, seed=7)
    found = rescale_with_prior_scales(Q, None, groups, grid=ScaleGrid.geometric(0.01, 1.0, 25))
    zeros = {name: torch.zeros_like(mean) for name, mean in Q.means.items()}
    alone = min(
        Q.kl_nats(DiagonalGaussian.from_means(zeros, scale))
        for scale in ScaleGrid.geometric(0.01, 1.0, 25).scales
    )
    assert found.kl_before == pytest.approx(alone, rel=1e-12)
    assert found.charge_nats == pytest.approx(math.log(25))


@BOTH
def test_a_network_without_free_scales_still_chooses_its_prior(centered: bool) -> None:
    sketch = Sketch()
    sketch.linear(pinned(3), pinned(2))
    groups = sketch.finish()
    Q = posterior(groups, seed=8)
    means = means_of(groups, centered=centered)
    grid = ScaleGrid.geometric(0.01, 10.0, 30)
    found = rescale_with_prior_scales(Q, means, groups, grid=grid)
    zeros = {name: torch.zeros_like(mean) for name, mean in Q.means.items()}
    priors = (DiagonalGaussian.from_means(means or zeros, scale) for scale in grid.scales)
    assert found.kl_after == pytest.approx(min(Q.kl_nats(P) for P in priors), rel=1e-12)
    assert found.converged and found.sweeps == 0
