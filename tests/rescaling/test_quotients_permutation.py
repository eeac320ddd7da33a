"""The order of the units: bounds that are never below the truth, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from nonvacuous.distributions import DiagonalGaussian
from nonvacuous.errors import BadInput, Unsupported
from nonvacuous.rescaling import overlap
from nonvacuous.rescaling.overlap import Blocks, log_one_plus_overlaps, log_volume
from nonvacuous.rescaling.permutation import (
    PermutationSaving,
    check_exchangeable,
    permutation_saving,
)
from nonvacuous.rescaling.quotients import Symmetries, _best_together, quotients
from nonvacuous.rescaling.unit_layers import UnitLayer
from tests.rescaling.hand_groups import mlp
from tests.rescaling.problems import posterior
from tests.rescaling.quotient_oracles import (
    HIDDEN_WEIGHT,
    OUTPUT,
    WEIGHT,
    shift_basis,
    small_world,
    symmetrized_kl,
)

# --------------------------------------------------------------------------------- overlap of units


@pytest.mark.parametrize("power", [0.05, 0.3, 0.5, 0.8, 0.95])
def test_the_overlap_of_two_gaussians_is_the_integral(power: float) -> None:
    first, second = norm(0.7, 0.4), norm(-0.2, 1.3)
    expected, _ = quad(
        lambda x: second.pdf(x) ** power * first.pdf(x) ** (1 - power), -15, 15, epsabs=1e-13
    )
    blocks = Blocks.of(
        [
            (
                torch.tensor([[0.7], [-0.2]], dtype=torch.float64),
                torch.tensor([[0.4**2], [1.3**2]], dtype=torch.float64),
            )
        ],
        None,
    )
    found = log_one_plus_overlaps(
        blocks, torch.tensor([0]), torch.tensor([power], dtype=torch.float64)
    )
    assert float(found) == pytest.approx(math.log1p(expected), rel=1e-9)


@pytest.mark.parametrize("power", [0.2, 0.5, 0.9])
def test_the_overlap_of_columns_is_that_of_their_projections(power: float) -> None:
    """The closed form for forgotten shifts against full covariances in an orthonormal basis."""
    rng = np.random.default_rng(1)
    means, scales = rng.normal(size=(2, 1, 4)), np.exp(rng.normal(size=(2, 1, 4)))
    basis = shift_basis(4)
    covariances = [basis.T @ np.diag(scales[k, 0] ** 2) @ basis for k in (0, 1)]
    difference = basis.T @ (means[1, 0] - means[0, 0])
    mixed = (1 - power) * covariances[1] + power * covariances[0]
    volumes = [np.linalg.slogdet(c)[1] for c in (*covariances, mixed)]
    assert float(log_volume(torch.from_numpy(scales[0, 0] ** 2))) == pytest.approx(volumes[0])
    expected = (power * volumes[0] + (1 - power) * volumes[1] - volumes[2]) / 2
    expected -= power * (1 - power) / 2 * difference @ np.linalg.inv(mixed) @ difference
    blocks = Blocks.of(
        [(torch.zeros(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))],
        (torch.from_numpy(means), torch.from_numpy(scales**2)),
    )
    found = log_one_plus_overlaps(
        blocks, torch.tensor([0]), torch.tensor([power], dtype=torch.float64)
    )
    assert float(found) == pytest.approx(math.log1p(math.exp(expected)), rel=1e-9)


@pytest.mark.parametrize("power", [0.06, 0.5, 0.93])
@pytest.mark.parametrize("rounding", [torch.float32, torch.float64])
def test_sums_for_all_powers_are_those_of_each_coordinate(power: float, rounding) -> None:
    """Variances that are multiples of one another up to rounding, in several tensors."""
    generator = torch.Generator().manual_seed(2)
    tensors = []
    for width in (40, 1, 9):
        means = 5 + 0.1 * torch.randn(12, width, generator=generator, dtype=torch.float64)
        scales = 0.2 * (0.5 + torch.rand(12, 1, generator=generator, dtype=torch.float64))
        scales = scales * (0.5 + torch.rand(1, width, generator=generator, dtype=torch.float64))
        tensors.append((means, scales.to(rounding).double().square()))
    means, variances = tensors.pop()
    blocks = Blocks.of(tensors, (means.reshape(12, 3, 3), variances.reshape(12, 3, 3)))
    assert blocks.alike is not None
    rows, powers = torch.arange(12), torch.full((12,), power, dtype=torch.float64)
    once = log_one_plus_overlaps(blocks, rows, powers)
    each = log_one_plus_overlaps(dataclasses.replace(blocks, alike=None), rows, powers)
    assert bool((once >= each).all())
    assert once.tolist() == pytest.approx(each.tolist(), rel=1e-10, abs=1e-12)
    tensors[0][1][3, 7] *= 1.01
    assert Blocks.of(tensors, None).alike is None


def test_a_tensor_of_which_no_coordinate_is_left_adds_nothing(monkeypatch) -> None:
    generator = torch.Generator().manual_seed(3)
    means = torch.randn(5, 60, generator=generator, dtype=torch.float64)
    dull = torch.zeros(5, 2, dtype=torch.float64)
    tensors = [(means, torch.ones_like(means)), (dull, torch.ones_like(dull))]
    monkeypatch.setattr(overlap, "_BUDGET", 1)  # keeps 32 coordinates
    blocks = Blocks.of(tensors, None)
    assert blocks.alike is not None and len(blocks.alike) == 1
    rows, powers = torch.arange(5), torch.full((5,), 0.5, dtype=torch.float64)
    once = log_one_plus_overlaps(blocks, rows, powers)
    each = log_one_plus_overlaps(dataclasses.replace(blocks, alike=None), rows, powers)
    assert once.tolist() == pytest.approx(each.tolist(), rel=1e-10)


def test_leaving_coordinates_out_only_weakens_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    world = small_world(4, 3, inputs=100, seed=3, spread=0.3, scale=0.7)
    full = permutation_saving(world.Q, world.P, world.layer)
    monkeypatch.setattr(overlap, "_BUDGET", 1)  # keeps 32 coordinates of 104
    fewer = permutation_saving(world.Q, world.P, world.layer)
    assert full.correction < fewer.correction
    assert fewer.saved_nats <= full.saved_nats


@pytest.mark.parametrize("spread", [0.01, 0.3, 3.0])
def test_units_that_are_not_compared_save_no_less(spread: float) -> None:
    """What a choice among posteriors may take for granted before it compares all units."""
    world = small_world(4, 3, inputs=20, seed=3, spread=spread, scale=0.5)
    most = permutation_saving(world.Q, world.P, world.layer, overlaps=False)
    exact = permutation_saving(world.Q, world.P, world.layer)
    assert exact.saved_nats <= most.saved_nats == pytest.approx(math.lgamma(5))


def test_stopping_early_changes_nothing_that_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    world = small_world(5, 3, inputs=200, seed=3, spread=1.0, scale=0.5)
    found = permutation_saving(world.Q, world.P, world.layer)
    monkeypatch.setattr(overlap, "_STEP", 1000)  # one step holds everything: no early stop
    full = permutation_saving(world.Q, world.P, world.layer)
    assert found.correction == pytest.approx(full.correction, abs=1e-8)


# --------------------------------------------------------------------------------------- the saving


@settings(max_examples=12, deadline=None)
@given(
    units=st.integers(2, 4),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.0, 0.3, 1.0, 3.0]),
    scale=st.sampled_from([0.1, 0.4, 1.0]),
)
def test_the_saving_is_never_more_than_the_true_one(
    units: int, seed: int, spread: float, scale: float
) -> None:
    world = small_world(units, 2, seed=seed, spread=spread, scale=scale)
    truth = symmetrized_kl(world, forget_shift=False, draws=4_000, seed=seed)
    claimed = (
        world.Q.kl_nats(world.P) - permutation_saving(world.Q, world.P, world.layer).saved_nats
    )
    assert claimed >= truth.nats - 5 * truth.standard_error - 1e-9


def test_units_far_apart_save_all_of_the_log_factorial() -> None:
    world = small_world(12, 3, seed=0, spread=5.0, scale=0.05)
    found = permutation_saving(world.Q, world.P, world.layer)
    assert math.log(math.factorial(12)) - 1e-6 < found.saved_nats < math.log(math.factorial(12))


def test_equal_units_save_nothing() -> None:
    world = small_world(6, 3, spread=0.0, same_scales=True)
    means = {name: torch.zeros_like(mean) for name, mean in world.Q.means.items()}
    Q = DiagonalGaussian(means=means, scales=world.Q.scales)
    found = permutation_saving(Q, world.P, world.layer)
    assert found.saved_nats == 0.0
    assert found.correction >= math.lgamma(world.layer.units + 1)


def test_a_single_unit_has_no_order() -> None:
    world = small_world(1, 3)
    assert permutation_saving(world.Q, world.P, world.layer).saved_nats == 0.0


def test_two_clusters_save_what_tells_them_apart() -> None:
    """Pairs of equal units, pairs far apart: ln 6! less at most 6 ln 2."""
    world = small_world(6, 2, spread=0.0, same_scales=True, scale=0.1)
    means = dict(world.Q.means)
    means[HIDDEN_WEIGHT] = torch.tensor([[0.0], [5.0], [10.0]]).double().repeat(2, 2)
    Q = DiagonalGaussian(means=means, scales=world.Q.scales)
    found = permutation_saving(Q, world.P, world.layer)
    assert 6 * math.log(2) < found.correction < 6.2 * math.log(2)
    assert found.saved_nats == pytest.approx(math.lgamma(7) - found.correction)


def test_blocks_are_compared_as_the_rescaling_left_them() -> None:
    """A unit's scale moves its block: the saving belongs to the moved posterior."""
    world = small_world(3, 2, seed=4, spread=0.6, scale=0.5)
    log_scales = np.array([0.0, 1.0, -1.0])
    layers = Symmetries(None, (world.layer,), ())
    found = quotients(world.Q, world.P, world.groups, log_scales, layers)
    factors = world.groups.factors(log_scales)
    moved = DiagonalGaussian(
        means={n: m * torch.from_numpy(factors[n]) for n, m in world.Q.means.items()},
        scales={n: s * torch.from_numpy(factors[n]) for n, s in world.Q.scales.items()},
    )
    expected = permutation_saving(moved, world.P, world.layer)
    assert found.permutations[0].saved_nats == pytest.approx(expected.saved_nats, rel=1e-12)


def test_flattened_images_belong_to_their_channel() -> None:
    """Two channels of three pixels: the reader's columns are grouped by channel."""
    rng = np.random.default_rng(0)
    shapes = {"conv": (2, 1, 3), "linear": (4, 6)}
    means = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    means["linear"][:, 3:] = torch.from_numpy(5 + rng.random((4, 3)))  # the second channel's
    Q = DiagonalGaussian.from_means(means, 0.1)
    P = DiagonalGaussian.from_means({n: torch.zeros_like(m) for n, m in means.items()}, 1.0)
    found = permutation_saving(Q, P, UnitLayer("conv", 2, (("conv", 0, 1), ("linear", 1, 3))))
    assert found.saved_nats == pytest.approx(math.log(2), abs=1e-6)
    # A prior scale that depends on the pixel is fine, one that depends on the channel is not.
    scales = {name: torch.ones_like(mean) for name, mean in means.items()}
    scales["linear"] = torch.tensor([1.0, 2.0, 3.0]).double().repeat(2).expand(4, 6).clone()
    layer = UnitLayer("conv", 2, (("conv", 0, 1), ("linear", 1, 3)))
    check_exchangeable(DiagonalGaussian(means=P.means, scales=scales), layer)
    scales["linear"] = torch.tensor([1.0, 1.0, 1.0, 2.0, 2.0, 2.0]).double().expand(4, 6).clone()
    with pytest.raises(Unsupported, match=r"scales of 'linear' differ from unit to unit"):
        check_exchangeable(DiagonalGaussian(means=P.means, scales=scales), layer)


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("field", ["means", "scales"])
@pytest.mark.parametrize("name", [HIDDEN_WEIGHT, WEIGHT])
def test_a_prior_that_tells_units_apart_is_refused_by_name(field: str, name: str) -> None:
    world = small_world(3, 4)
    tensors = {"means": dict(world.P.means), "scales": dict(world.P.scales)}
    changed = tensors[field][name].clone()
    changed[0, 0] += 0.125
    tensors[field][name] = changed
    P = DiagonalGaussian(**tensors)
    with pytest.raises(Unsupported, match=f"{field} of '{name}' differ from unit to unit"):
        permutation_saving(world.Q, P, world.layer)
    layers = Symmetries(None, (world.layer,), ())
    found = quotients(world.Q, P, world.groups, np.zeros(3), layers)
    assert found.permutations == ()
    assert [refusal.layer for refusal in found.refused] == ["hidden"]


def test_a_prior_centered_at_the_initialization_is_refused() -> None:
    world = small_world(3, 4, centered=False)
    with pytest.raises(Unsupported, match="zero means"):
        permutation_saving(world.Q, world.P, world.layer)


def test_frozen_tensors_repeated_tensors_and_wrong_axes_are_refused() -> None:
    world = small_world(3, 4)
    with pytest.raises(Unsupported, match="not random"):
        permutation_saving(world.Q, world.P, UnitLayer("hidden", 3, (("frozen", 0, 1),)))
    twice = UnitLayer("hidden", 3, ((HIDDEN_WEIGHT, 0, 1), (HIDDEN_WEIGHT, 0, 1)))
    with pytest.raises(Unsupported, match="twice"):
        permutation_saving(world.Q, world.P, twice)
    with pytest.raises(BadInput, match="does not hold 3 units"):
        permutation_saving(world.Q, world.P, UnitLayer("hidden", 3, ((WEIGHT, 0, 1),)))


def test_the_classes_themselves_cannot_change_places_once_their_shift_is_forgotten() -> None:
    world = small_world(3, 4)
    with pytest.raises(Unsupported, match="shift was forgotten"):
        permutation_saving(
            world.Q, world.P, UnitLayer("last", 4, ((WEIGHT, 0, 1),)), translation=OUTPUT
        )


def chain(count: int) -> list[PermutationSaving]:
    """Layers in a row: neighbors share a tensor."""
    rng = np.random.default_rng(count)
    return [
        PermutationSaving(
            UnitLayer(str(k), 8, ((f"w{k}", 0, 1), (f"w{k + 1}", 1, 1))),
            correction=float(rng.uniform(0.1, 10)),
        )
        for k in range(count)
    ]


@pytest.mark.parametrize("count", range(1, 9))
def test_the_best_set_of_layers_without_a_common_tensor_is_found(count: int) -> None:
    layers = chain(count)
    best = 0.0
    for chosen in itertools.product([False, True], repeat=count):
        if not any(a and b for a, b in itertools.pairwise(chosen)):
            best = max(best, sum(p.saved_nats for p, c in zip(layers, chosen, strict=True) if c))
    found = _best_together(layers)
    places = sorted(int(saving.layer.name) for saving in found)
    assert all(b - a > 1 for a, b in itertools.pairwise(places))
    assert sum(saving.saved_nats for saving in found) == pytest.approx(best)


def test_neighboring_layers_are_not_symmetrized_together() -> None:
    groups = mlp(3, 4, 5, 2)
    Q = posterior(groups, seed=0)
    P = DiagonalGaussian.from_means({n: torch.zeros_like(m) for n, m in Q.means.items()}, 1.0)
    first = UnitLayer("first", 4, (("tensor0", 0, 1), ("tensor1", 0, 1), ("tensor2", 1, 1)))
    second = UnitLayer("second", 5, (("tensor2", 0, 1), ("tensor3", 0, 1), ("tensor4", 1, 1)))
    layers = Symmetries(None, (first, second), ())
    found = quotients(Q, P, groups, np.zeros(groups.size), layers)
    assert [saving.layer for saving in found.permutations] == [second]
    assert first.names & second.names == {"tensor2"}
    assert dataclasses.replace(second, name="x").names == second.names


def test_a_wide_layer_saves_thousands_of_nats() -> None:
    world = small_world(512, 10, inputs=784, spread=0.05, scale=0.03, same_scales=True)
    found = permutation_saving(world.Q, world.P, world.layer, translation=OUTPUT)
    assert found.saved_nats == pytest.approx(math.lgamma(513), abs=1.0)
