"""The scale and the shift of the scores, and all symmetries together."""

from __future__ import annotations

import dataclasses
import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from nonvacuous.bounds.rounding import remaining_nats
from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, InvalidCertificate
from nonvacuous.rescaling.output_layer import (
    OutputLayer,
    best_output_log_scale,
    invariance_of,
    with_output_scale,
)
from nonvacuous.rescaling.overlap import translation_savings
from nonvacuous.rescaling.permutation import permutation_saving
from nonvacuous.rescaling.quotients import Symmetries, forgotten, quotients
from nonvacuous.rescaling.solver import kl_along_orbit, push, rescale, total_nats
from nonvacuous.risk.losses import bounded_cross_entropy
from tests.examples import some
from tests.rescaling.quotient_oracles import (
    BIAS,
    HIDDEN_BIAS,
    HIDDEN_WEIGHT,
    OUTPUT,
    WEIGHT,
    World,
    shift_free_kl,
    small_world,
    symmetrized_kl,
)

CROSS_ENTROPY = bounded_cross_entropy().name


def last_layer_kl(world: World, log_factor: float, *, forget_shift: bool) -> float:
    """KL of the last layer after multiplying it, by the slow formulas."""
    moved = push(
        world.Q,
        with_output_scale(world.groups, OUTPUT),
        np.append(np.zeros(world.groups.size), log_factor),
    )
    if forget_shift:
        return sum(shift_free_kl(moved, world.P, name) for name in OUTPUT.tensors)
    terms = moved.kl_to(world.P)
    return terms[WEIGHT] + terms[BIAS]


# ------------------------------------------------------------------------------ scale of the scores


@pytest.mark.parametrize("forget_shift", [False, True])
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_output_scale_is_the_minimum(seed: int, centered: bool, forget_shift: bool) -> None:
    world = small_world(3, 4, seed=seed, centered=centered)
    found = best_output_log_scale(world.Q, world.P, OUTPUT, translation=forget_shift)
    numeric = minimize_scalar(
        lambda s: last_layer_kl(world, s, forget_shift=forget_shift),
        bracket=(-1.0, 1.0),
        options={"xtol": 1e-12},
    )
    assert found == pytest.approx(numeric.x, abs=2e-6)
    least = last_layer_kl(world, found, forget_shift=forget_shift)
    assert least <= numeric.fun * (1 + 1e-12)


def test_the_output_scale_for_a_zero_mean_prior_is_the_closed_form_of_the_theory() -> None:
    world = small_world(5, 3, seed=1)
    squares = sum(
        float(((world.Q.scales[n] ** 2 + world.Q.means[n] ** 2) / world.P.scales[n] ** 2).sum())
        for n in OUTPUT.tensors
    )
    expected = math.log(3 * (5 + 1) / squares) / 2
    found = best_output_log_scale(world.Q, world.P, OUTPUT, translation=False)
    assert found == pytest.approx(expected, rel=1e-12)


def test_the_output_scale_survives_a_prior_that_points_the_other_way() -> None:
    """C < 0 and large: the textbook root would cancel to nothing."""
    world = small_world(3, 4, seed=0, scale=1e-6)
    opposite = DiagonalGaussian(
        means={name: -1e9 * mean for name, mean in world.Q.means.items()}, scales=world.P.scales
    )
    found = best_output_log_scale(world.Q, opposite, OUTPUT, translation=False)
    with mpmath.workdps(60):
        moment = product = mpmath.mpf(0)
        for name in OUTPUT.tensors:
            tensors = (world.Q.means, world.Q.scales, opposite.means, opposite.scales)
            for numbers in zip(*(t[name].flatten().tolist() for t in tensors), strict=True):
                m, s, prior_m, prior_s = (mpmath.mpf(number) for number in numbers)
                moment += (s**2 + m**2) / prior_s**2
                product += m * prior_m / prior_s**2
        root = mpmath.sqrt(product**2 + 4 * moment * 16)
        expected = float(mpmath.log((product + root) / (2 * moment)))
    assert found == pytest.approx(expected, rel=1e-12)


def test_the_output_scale_is_one_more_group_that_the_solver_can_search() -> None:
    world = small_world(4, 3, seed=2)
    extended = with_output_scale(world.groups, OUTPUT)
    assert extended.size == world.groups.size + 1
    plain = rescale(world.Q, world.P, world.groups)
    both = rescale(world.Q, world.P, extended)
    assert both.kl_after < plain.kl_after
    # At the joint optimum the closed form has nothing left to do.
    moved = push(world.Q, extended, both.log_scales)
    left = best_output_log_scale(moved, world.P, OUTPUT, translation=False)
    assert left == pytest.approx(0.0, abs=1e-4)


def test_scaling_the_scores_keeps_every_prediction() -> None:
    world = small_world(4, 3, seed=3)
    moved = push(
        world.Q, with_output_scale(world.groups, OUTPUT), np.array([0.0, 0.0, 0.0, 0.0, 1.7])
    )
    inputs = torch.randn(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def scores(weights: DiagonalGaussian) -> torch.Tensor:
        hidden = torch.relu(inputs @ weights.means[HIDDEN_WEIGHT].T + weights.means[HIDDEN_BIAS])
        return hidden @ weights.means[WEIGHT].T + weights.means[BIAS]

    torch.testing.assert_close(scores(moved), math.exp(1.7) * scores(world.Q))


# ------------------------------------------------------------------------------ shift of the scores


@settings(max_examples=some(120), deadline=None)
@given(
    classes=st.integers(2, 7),
    units=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    centered=st.booleans(),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 50.0]),
)
def test_the_shift_quotient_is_the_kl_of_the_projections(
    classes: int, units: int, seed: int, centered: bool, spread: float
) -> None:
    world = small_world(units, classes, seed=seed, centered=centered, spread=spread)
    # Scales that differ from class to class, as nothing forbids.
    generator = torch.Generator().manual_seed(seed)
    uneven = {
        name: scale * torch.rand(scale.shape, generator=generator, dtype=scale.dtype).add(0.5)
        for name, scale in world.P.scales.items()
    }
    prior = DiagonalGaussian(means=world.P.means, scales=uneven)
    terms = world.Q.kl_to(prior)
    for name, saved in translation_savings(world.Q, prior, OUTPUT).items():
        exact = shift_free_kl(world.Q, prior, name)
        assert terms[name] - saved == pytest.approx(exact, rel=1e-9, abs=1e-9)
        assert terms[name] - saved >= exact - 1e-9 * abs(exact) - 1e-10


def test_the_shift_quotient_is_the_formula_of_the_theory() -> None:
    world = small_world(3, 5, seed=7, centered=False)
    mean, scale = world.Q.means[WEIGHT].numpy(), world.Q.scales[WEIGHT].numpy()
    prior_mean, prior_scale = world.P.means[WEIGHT].numpy(), world.P.scales[WEIGHT].numpy()
    total = 0.0
    for k in range(3):
        D, T, d = scale[:, k] ** 2, prior_scale[:, k] ** 2, mean[:, k] - prior_mean[:, k]
        total += 0.5 * (
            (D / T).sum() - (D / T**2).sum() / (1 / T).sum()
            + (d**2 / T).sum() - (d / T).sum() ** 2 / (1 / T).sum()
            - 4 + np.log(T).sum() + np.log((1 / T).mean())
            - np.log(D).sum() - np.log((1 / D).mean())
        )  # fmt: skip
    saved = translation_savings(world.Q, world.P, OUTPUT)[WEIGHT]
    assert world.Q.kl_to(world.P)[WEIGHT] - saved == pytest.approx(total, rel=1e-12)


def test_a_posterior_shifted_along_the_classes_costs_nothing_more() -> None:
    world = small_world(3, 4, seed=5)
    means = dict(world.Q.means)
    means[WEIGHT] = means[WEIGHT] + torch.tensor([10.0, -20.0, 3.0], dtype=torch.float64)
    means[BIAS] = means[BIAS] + 40.0
    shifted = dataclasses.replace(world, Q=DiagonalGaussian(means=means, scales=world.Q.scales))
    for name in OUTPUT.tensors:
        results = [
            w.Q.kl_to(w.P)[name] - translation_savings(w.Q, w.P, OUTPUT)[name]
            for w in (world, shifted)
        ]
        assert results[1] == pytest.approx(results[0], rel=1e-9)


def test_equal_posterior_and_prior_save_nothing_and_stay_at_zero() -> None:
    world = small_world(3, 4, seed=5)
    assert translation_savings(world.P, world.P, OUTPUT) == {WEIGHT: 0.0, BIAS: 0.0}
    both = Symmetries(OUTPUT, (world.layer,), ())
    found = quotients(world.P, world.P, world.groups, np.zeros(3), both)
    assert found.kl_nats == pytest.approx(0.0, abs=1e-12)


# --------------------------------------------------------------------------------------- everything


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("units", [2, 3])
@pytest.mark.parametrize(("spread", "scale"), [(1.0, 0.1), (1.0, 0.6), (0.3, 0.5), (0.0, 0.4)])
def test_shift_and_order_together_never_claim_less_than_the_truth(
    units: int, classes: int, spread: float, scale: float
) -> None:
    world = small_world(units, classes, seed=units, spread=spread, scale=scale)
    left = without_shift_and_order(world)
    truth = symmetrized_kl(world, forget_shift=True, draws=20_000)
    assert left >= truth.nats - 4 * truth.standard_error
    if scale < 0.2:  # units that are far apart: nothing is lost
        assert left == pytest.approx(truth.nats, abs=1e-3)


def without_shift_and_order(world: World) -> float:
    """What is left of the KL for a loss that sees the scale of the scores."""
    found = forgotten(world.Q, world.P, loss=CROSS_ENTROPY, output=OUTPUT, layers=[world.layer])
    saved = [*found.translation.values(), *(each.saved_nats for each in found.permutations)]
    return remaining_nats(world.Q.kl_nats(world.P), *saved)


def shifted_units(units: int) -> World:
    """Units that differ only in a shift of all their outgoing weights."""
    world = small_world(units, 3, same_scales=True, spread=0.0, scale=0.3)
    means = {name: torch.zeros_like(mean) for name, mean in world.Q.means.items()}
    means[WEIGHT] = torch.arange(units, dtype=torch.float64).mul(5.0).expand(3, units).clone()
    Q = DiagonalGaussian(means=means, scales=world.Q.scales)
    P = DiagonalGaussian(
        means={name: torch.zeros_like(mean) for name, mean in means.items()}, scales=world.Q.scales
    )
    return dataclasses.replace(world, Q=Q, P=P)


def test_adding_up_the_savings_of_shift_and_order_naively_claims_a_negative_kl() -> None:
    world = shifted_units(4)
    terms = world.Q.kl_to(world.P)
    shift = translation_savings(world.Q, world.P, OUTPUT)
    order = permutation_saving(world.Q, world.P, world.layer)
    # Each is right on its own: the units are far apart, and the shift is all of the KL.
    assert order.saved_nats == pytest.approx(math.log(24), abs=1e-6)
    assert sum(terms.values()) - sum(shift.values()) == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(InvalidCertificate, match="negative KL"):
        remaining_nats(total_nats(terms), *shift.values(), order.saved_nats)
    assert without_shift_and_order(world) == pytest.approx(0.0, abs=1e-9)


def test_the_naive_sum_is_below_the_true_kl_where_nothing_turns_negative() -> None:
    world = shifted_units(3)
    means = dict(world.Q.means)
    means[HIDDEN_WEIGHT] = torch.full_like(means[HIDDEN_WEIGHT], 2.0)  # alike for all units
    world = dataclasses.replace(world, Q=DiagonalGaussian(means=means, scales=world.Q.scales))
    truth = symmetrized_kl(world, forget_shift=True, draws=2_000)
    shift = translation_savings(world.Q, world.P, OUTPUT)
    order = permutation_saving(world.Q, world.P, world.layer)
    naive = remaining_nats(world.Q.kl_nats(world.P), *shift.values(), order.saved_nats)
    assert 0 < naive < truth.nats - 4 * truth.standard_error - 1.0
    right = permutation_saving(world.Q, world.P, world.layer, translation=OUTPUT)
    assert right.saved_nats == 0.0


def test_columns_lead_downward_and_may_be_compared_freely() -> None:
    world = small_world(6, 4, seed=3, scale=0.05)
    best = rescale(world.Q, world.P, world.groups)
    both = Symmetries(OUTPUT, (world.layer,), ())
    found = quotients(world.Q, world.P, world.groups, best.log_scales, both)
    values = list(found.columns.values())
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(best.kl_after, rel=1e-11)
    assert found.kl_nats == values[-1] == min(values)
    assert found.permutations[0].saved_nats == pytest.approx(math.log(720), abs=1e-3)
    assert found.refused == ()


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("order", [True, False])
def test_every_symmetry_works_on_its_own(scores: bool, order: bool) -> None:
    world = small_world(4, 3, seed=9, scale=0.1)
    given = Symmetries(OUTPUT if scores else None, (world.layer,) if order else (), ())
    found = quotients(world.Q, world.P, world.groups, np.zeros(4), given)
    assert (sum(found.translation.values()) > 0) is scores
    assert bool(found.permutations) is order
    assert len(found.columns) == 1 + 2 * scores + order
    plain = total_nats(kl_along_orbit(world.Q, world.P, world.groups, np.zeros(4)))
    assert (found.kl_nats < plain) is (scores or order)


def test_the_result_does_not_depend_on_how_the_network_was_scaled() -> None:
    world = small_world(5, 3, seed=11, scale=0.1)
    moves = np.random.default_rng(0).normal(size=5)
    results = []
    for Q in (world.Q, push(world.Q, world.groups, moves)):
        log_scales = rescale(Q, world.P, world.groups).log_scales
        both = Symmetries(OUTPUT, (world.layer,), ())
        results.append(quotients(Q, world.P, world.groups, log_scales, both).kl_nats)
    assert results[0] == pytest.approx(results[1], rel=1e-7)


@pytest.mark.parametrize(
    ("loss", "scale", "shift"),
    [
        ("zero-one", True, True),
        ("top-5", False, False),
        ("cross-entropy with probabilities of at least 1e-05", False, True),
        ("margin 0.5", False, True),
        ("something new", False, False),
    ],
)
def test_a_quotient_is_used_only_where_the_loss_cannot_see_it(
    loss: str, scale: bool, shift: bool
) -> None:
    sees = invariance_of(loss)
    assert (sees.scale, sees.shift) == (scale, shift)
    world = small_world(3, 4, seed=1)
    found = forgotten(world.Q, world.P, loss=loss, output=OUTPUT, layers=[])
    assert (sum(found.translation.values()) > 0) is shift
    assert len(found.refused) == (not shift)
    assert all(repr(loss) in refusal.reason for refusal in found.refused)


def test_a_jointly_searched_output_scale_is_taken_further_not_added_twice() -> None:
    world = small_world(4, 3, seed=2)
    extended = with_output_scale(world.groups, OUTPUT)
    assert with_output_scale(extended, OUTPUT) is extended
    both = rescale(world.Q, world.P, extended)
    output = Symmetries(OUTPUT, (), ())
    found = quotients(world.Q, world.P, extended, both.log_scales, output)
    assert found.columns["rescaled"] == pytest.approx(both.kl_after, rel=1e-11)
    assert found.columns["+ scale of the scores"] == pytest.approx(both.kl_after, rel=1e-7)
    assert found.kl_nats < both.kl_after
    apart = rescale(world.Q, world.P, world.groups)
    one_by_one = quotients(world.Q, world.P, world.groups, apart.log_scales, output)
    assert found.columns["+ scale of the scores"] < one_by_one.columns["+ scale of the scores"]


@pytest.mark.parametrize(
    "wrong", [OutputLayer("nowhere", None), OutputLayer(BIAS, None), OutputLayer(WEIGHT, WEIGHT)]
)
def test_an_output_layer_that_does_not_fit_is_refused(wrong: OutputLayer) -> None:
    world = small_world(3, 4)
    with pytest.raises(BadInput, match="output layer"):
        translation_savings(world.Q, world.P, wrong)
    with pytest.raises(BadInput, match="output layer"):
        best_output_log_scale(world.Q, world.P, wrong, translation=True)


def test_what_is_left_of_a_kl_is_rounded_up_and_never_negative() -> None:
    assert remaining_nats(10.0, 3.0, 4.0) >= 3.0
    assert remaining_nats(10.0, 3.0, 4.0) == pytest.approx(3.0, rel=1e-12)
    assert 0 <= remaining_nats(0.1 + 0.2, 0.3) < 1e-14
    assert remaining_nats(0.0) == 0.0
    assert remaining_nats(0.3, 0.1, 0.2) >= 0
    with pytest.raises(InvalidCertificate, match="negative KL"):
        remaining_nats(10.0, 10.001)
