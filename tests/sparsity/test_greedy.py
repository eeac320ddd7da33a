"""Greedy sparsity, activity ratios and unit stability against loops over their definitions."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nonvacuous.errors import BadInput
from nonvacuous.sparsity.norms import row_norm
from nonvacuous.sparsity.radii import (
    LayerStability,
    NormTables,
    forward,
    greedy_sparsity,
    growth,
    local_radii,
    local_scales,
    stability_thresholds,
)


def network(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = [(12, 7), (9, 12), (4, 9)]
    return [torch.randn(*size, generator=generator, dtype=torch.float64) for size in sizes]


def points(seed: int, count: int = 15) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 7, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("epsilon", [1e-4, 1e-2, 5e-2])
def test_one_comparison_finds_what_a_search_finds(epsilon):
    weights, inputs = network(1), points(2)
    hidden, _ = forward(weights, inputs)
    tables = NormTables.of(weights)
    norms = inputs.norm(dim=1)
    found = greedy_sparsity(tables, hidden, norms, epsilon=epsilon)
    gammas = growth([epsilon] * 2)
    for index in range(len(inputs)):
        reach, active = float(norms[index]), 7
        kept = [7]
        for k in range(2):
            values = hidden[k][index]
            columns = active
            unit = row_norm(weights[k], columns=columns) * reach
            # The search: the largest sparsity whose radius is still three times the growth.
            best = 0
            for sparsity in range(1, len(values) + 1):
                radius = max(0.0, -float(values.kthvalue(sparsity).values)) / unit
                if radius >= 3 * gammas[k]:
                    best = sparsity
            assert int(found.sparsity[k][index]) == best
            assert float(found.thresholds[k][index]) == pytest.approx(3 * gammas[k] * unit)
            active = len(values) - best
            reach *= float(tables.joints[k][active, columns])
            kept.append(active)
        kept.append(4)
        used = sum(a * b for a, b in pairwise(kept))
        assert float(found.ratio[index]) == pytest.approx(used / (7 * 12 + 12 * 9 + 9 * 4))


@given(st.integers(0, 1000))
def test_more_movement_leaves_less(seed):
    weights, inputs = network(seed), points(seed + 1)
    hidden, _ = forward(weights, inputs)
    tables, norms = NormTables.of(weights), inputs.norm(dim=1)
    before = None
    for epsilon in (1e-4, 1e-3, 1e-2, 1e-1):
        found = greedy_sparsity(tables, hidden, norms, epsilon=epsilon)
        for values, sparsity in zip(hidden, found.sparsity, strict=True):
            # Exactly 0 where all units of the layer before are off.
            assert bool((sparsity <= (values <= 0).sum(1)).all())
        if before is not None:
            assert bool((found.ratio >= before.ratio).all())
        before = found


def test_the_greedy_choice_has_the_radius_it_claims():
    weights, inputs = network(3), points(4)
    hidden, _ = forward(weights, inputs)
    norms = inputs.norm(dim=1)
    found = greedy_sparsity(NormTables.of(weights), hidden, norms, epsilon=1e-3)
    gammas = growth([1e-3] * 2)
    for index in range(len(inputs)):
        active = [12 - int(found.sparsity[0][index]), 9 - int(found.sparsity[1][index])]
        scales = local_scales(weights, active=active, input_norm=float(norms[index]))
        own = [values[index : index + 1] for values in hidden]
        for radius, gamma in zip(local_radii(own, scales), gammas, strict=True):
            assert float(radius) >= 3 * gamma * (1 - 1e-12)


def test_stability_counts_signs():
    values = torch.tensor([[2.0, -2.0, 0.5, 2.0], [2.0, -2.0, -0.5, -2.0], [2.0, -3.0, 0.0, 0.1]])
    found = LayerStability.of(values, torch.ones(3))
    assert found.active.tolist() == [[3, 0, 0, 1]]
    assert found.inactive.tolist() == [[0, 3, 0, 1]]
    assert found.unstable.tolist() == [[0, 0, 3, 1]]
    assert list(found.shares().values()) == pytest.approx([4 / 12] * 3)
    assert sum(found.kinds().values()) == 4
    assert list(found.kinds().values()) == [1, 1, 0, 1, 1]
    each = torch.tensor([1.0, 3.0, 0.05])
    by_example = LayerStability.of(values, each)
    assert by_example.active.tolist() == [[2, 0, 0, 2]]
    every = LayerStability.of(values, each[:, None].expand(3, 4))
    assert torch.equal(every.active, by_example.active)
    assert torch.equal(every.unstable, by_example.unstable)


def test_a_unit_that_reads_only_zeros_is_off():
    """Nothing moves it from zero, which is at least and at most zero."""
    values, thresholds = torch.tensor([[0.0, 0.0], [1.0, -1.0]]), torch.tensor([0.0, 0.5])
    found = LayerStability.of(values, thresholds)
    assert [counts.tolist() for counts in found] == [[[1, 0]], [[1, 2]], [[0, 0]]]
    assert sum(found.kinds().values()) == 2


def test_thresholds_are_growth_times_units():
    scales = local_scales(network(5), input_norm=2.0)
    found = stability_thresholds(scales, [0.1] * 3, level=2.0)
    assert found == pytest.approx((2 * 0.1 * scales.units[0], 2 * 0.21 * scales.units[1]))
    with pytest.raises(BadInput, match="level"):
        stability_thresholds(scales, [0.1] * 3, level=0.0)


def test_signs_beyond_the_threshold_are_kept():
    weights, inputs = network(6), points(7, 40)
    epsilon = 0.01
    scales = local_scales(weights, input_norm=float(inputs.norm(dim=1).max()))
    thresholds = stability_thresholds(scales, [epsilon] * 3)
    hidden, _ = forward(weights, inputs)
    generator = torch.Generator().manual_seed(8)
    for _ in range(50):
        moved = []
        for k, weight in enumerate(weights):
            move = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            room = scales.row[k] / float(move.norm(dim=1).max())
            if k < 2:
                room = min(room, scales.joint[k] / float(torch.linalg.matrix_norm(move, 2)))
            moved.append(weight + epsilon * room * move)
        after, _ = forward(moved, inputs)
        for old, new, threshold in zip(hidden, after, thresholds, strict=True):
            sure = old.abs() >= threshold
            assert bool((old.sign() == new.sign())[sure].all())
            assert math.isfinite(threshold) and bool(sure.any())
