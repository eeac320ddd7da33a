"""The sensitivity theorem under attack: perturbations inside the radius wake no inactive unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from nonvacuous.errors import BadInput
from nonvacuous.sparsity.norms import row_norms, sparse_norms
from nonvacuous.sparsity.radii import (
    LocalScales,
    NormTables,
    forward,
    greedy_sparsity,
    growth,
    local_radii,
    local_scales,
    output_shift,
)

#: What float64 may be off, relative to the size of a pre-activation.
ROUNDING = 1e-12


def network(widths: tuple[int, ...], *, tilt: float, seed: int) -> list[Tensor]:
    """Random weights; a negative ``tilt`` makes most units inactive on positive inputs."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(out, into, generator=generator, dtype=torch.float64) * math.sqrt(2 / into)
        + (tilt / math.sqrt(into) if number < len(widths) - 2 else 0.0)
        for number, (into, out) in enumerate(pairwise(widths))
    ]


#: Shallow and deep, wide and narrow, half active and almost silent.
NETWORKS = {
    "one hidden layer": network((30, 80, 5), tilt=0.0, seed=1),
    "one hidden layer, sparse": network((30, 120, 5), tilt=-0.15, seed=2),
    "two hidden layers": network((40, 80, 80, 10), tilt=0.0, seed=3),
    "two hidden layers, sparse": network((40, 100, 100, 10), tilt=-0.1, seed=4),
    "three hidden layers": network((20, 60, 50, 60, 4), tilt=0.0, seed=5),
    "three hidden layers, sparse": network((20, 80, 80, 80, 4), tilt=-0.1, seed=6),
    "narrow": network((10, 12, 100, 3), tilt=0.0, seed=7),
    "badly scaled": [
        weight * factor
        for weight, factor in zip(
            network((30, 70, 70, 6), tilt=-0.05, seed=8), (1e-6, 1e4, 50.0), strict=True
        )
    ],
}


@dataclass
class Tally:
    """What an attack has seen.

    events      inactive units times perturbations
    woken       those that became active
    tightest    the largest shift of a pre-activation, relative to its bound
    output      the largest shift of an output, relative to its bound
    """

    events: int = 0
    woken: int = 0
    tightest: float = 0.0
    output: float = 0.0


def gaussians(weights: list[Tensor], count: int, seed: int) -> list[list[tuple[Tensor, ...]]]:
    """For every layer, random directions with the tables of their row and joint norms."""
    generator = torch.Generator().manual_seed(seed)
    return [
        [
            (move, row_norms(move), sparse_norms(move))
            for move in torch.randn(count, *w.shape, generator=generator, dtype=torch.float64)
        ]
        for w in weights
    ]


def moves(
    layer: int,
    activations: Tensor,
    clean: Tensor,
    scales: LocalScales,
    size: float,
    random: list[tuple[Tensor, ...]],
) -> Tensor:
    """Changes of one layer's weights, each as large as the theorem allows, a third of each kind:
    random ones, rank one along the activations, and one row along the activations.
    """
    trials, rows, incoming = len(random), len(clean), scales.active[layer]
    last = layer == len(scales.row) - 1
    outgoing = rows if last else scales.active[layer + 1]
    row_budget = size * scales.row[layer]
    joint_budget = math.inf if last else size * scales.joint[layer]
    found = activations.new_zeros(3 * trials, rows, activations.shape[1])
    directions = torch.nn.functional.normalize(activations, dim=1, eps=1e-300)
    # The inactive unit nearest to zero, then the next one, ...
    endangered = clean.masked_fill(clean > 0, -math.inf).argsort(descending=True)
    for trial, (move, row, joint) in enumerate(random):
        room = min(
            row_budget / float(row[incoming]), joint_budget / float(joint[outgoing, incoming])
        )
        found[trial] = room * move
        sides = torch.ones(rows, dtype=torch.float64)
        sides[1::2] = -1.0 if trial % 2 else 1.0
        share = min(row_budget, joint_budget / math.sqrt(outgoing))
        found[trials + trial] = share * torch.outer(sides, directions[trials + trial])
        chosen = trial % rows if last else int(endangered[trial % rows])
        found[2 * trials + trial, chosen] = (
            min(row_budget, joint_budget) * directions[2 * trials + trial]
        )
    return found


def attack(
    weights: list[Tensor], inputs: Tensor, *, epsilon: float, trials: int, tally: Tally
) -> None:
    """Perturb every layer at once, in three ways, for every input at its own sparsity."""
    norms = inputs.norm(dim=1)
    hidden, outputs = forward(weights, inputs)
    greedy = greedy_sparsity(NormTables.of(weights), hidden, norms, epsilon=epsilon, level=1.0)
    random = gaussians(weights, trials, seed=0)
    sizes = [epsilon] * len(weights)
    gammas = growth(sizes)
    for index in range(len(inputs)):
        active = [
            len(w) - int(s[index]) for w, s in zip(weights[:-1], greedy.sparsity, strict=True)
        ]
        if 0 in active:
            continue
        scales = local_scales(weights, active=active, input_norm=float(norms[index]), babel=False)
        own = [values[index : index + 1] for values in hidden]
        for radius, gamma in zip(local_radii(own, scales), gammas, strict=False):
            assert float(radius) >= gamma * (1 - 1e-12)
        silent = [
            v[0].argsort()[: len(w) - n] for v, w, n in zip(own, weights, active, strict=False)
        ]
        activations = inputs[index].expand(3 * trials, -1)
        for layer, weight in enumerate(weights):
            clean = own[layer][0] if layer < len(own) else outputs[index]
            changed = weight + moves(layer, activations, clean, scales, epsilon, random[layer])
            values = (changed @ activations[:, :, None])[:, :, 0]
            shift = float((values - clean).abs().max())
            unit = scales.units[layer]
            assert shift <= gammas[layer] * unit + ROUNDING * unit
            tally.tightest = max(tally.tightest, shift / (gammas[layer] * unit))
            if layer < len(own):
                quiet = values[:, silent[layer]]
                tally.events += quiet.numel()
                tally.woken += int((quiet > ROUNDING * unit).sum())
                activations = values.relu()
            else:
                tally.output = max(tally.output, shift / output_shift(scales, sizes))


def positive_inputs(weights: list[Tensor], count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, weights[0].shape[1], generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_inactive_unit_wakes_up(name):
    weights, tally = NETWORKS[name], Tally()
    inputs = positive_inputs(weights, 4, seed=1)
    for epsilon in (1e-3, 1e-2):
        attack(weights, inputs, epsilon=epsilon, trials=4, tally=tally)
    assert tally.events > 1000
    assert tally.woken == 0
    assert tally.output <= 1.0
    # One row that moves along the input moves its pre-activation by all that the bound allows.
    assert tally.tightest > 0.999


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "events"), [(8, 200_000), pytest.param(40, 10**6, marks=pytest.mark.nightly)]
)
def test_no_inactive_unit_wakes_up_in_very_many_events(count, events):
    total = 0
    for weights in NETWORKS.values():
        tally = Tally()
        inputs = positive_inputs(weights, count, seed=2)
        for epsilon in (1e-4, 1e-3, 5e-3):
            attack(weights, inputs, epsilon=epsilon, trials=6, tally=tally)
        assert tally.woken == 0 and tally.output <= 1.0 and tally.tightest > 0.999
        total += tally.events
    assert total >= events


@pytest.mark.parametrize("seed", range(5))
def test_just_beyond_the_radius_a_unit_does_wake_up(seed):
    weights = network((20, 30, 3), tilt=-0.2, seed=seed)
    # All rows of one length: the bound is about the longest one.
    weights[0] = torch.nn.functional.normalize(weights[0], dim=1)
    inputs = positive_inputs(weights, 1, seed=seed)
    hidden, _ = forward(weights, inputs)
    inactive = int((hidden[0] < 0).sum())
    scales = local_scales(weights, active=[30 - inactive], input_norm=float(inputs.norm()))
    radius = float(local_radii(hidden, scales)[0])
    unit = int(hidden[0].masked_fill(hidden[0] > 0, -math.inf).argmax())
    for factor, awake in ((1 - 1e-9, False), (1 + 1e-9, True)):
        moved = weights[0].clone()
        moved[unit] += radius * factor * scales.row[0] * inputs[0] / inputs.norm()
        assert (float(moved[unit] @ inputs[0]) > 0) is awake


def test_radii_are_their_definitions():
    weights = NETWORKS["two hidden layers"]
    inputs = positive_inputs(weights, 25, seed=3)
    hidden, outputs = forward(weights, inputs)
    expected = inputs
    for number, weight in enumerate(weights):
        values = torch.stack([weight @ row for row in expected])
        torch.testing.assert_close(values, hidden[number] if number < 2 else outputs)
        expected = values.clamp(min=0)
    active = (50, 20)
    scales = local_scales(weights, active=active, input_norm=float(inputs.norm(dim=1).max()))
    found = local_radii(hidden, scales)
    for layer in range(2):
        for row in range(25):
            values = hidden[layer][row].tolist()
            order = sorted(range(80), key=values.__getitem__)
            silent = order[: 80 - active[layer]]
            closest = min(-values[unit] for unit in silent)
            unit = scales.row[layer] * scales.reach[layer]
            assert float(found[layer][row]) == pytest.approx(max(closest, 0.0) / unit, rel=1e-12)
    nothing_asked = local_scales(weights, input_norm=1.0)
    assert all(bool(r.isinf().all()) for r in local_radii(hidden, nothing_asked))


def test_activations_stay_within_reach():
    for weights in NETWORKS.values():
        inputs = positive_inputs(weights, 30, seed=4)
        hidden, _ = forward(weights, inputs)
        active = [int((values > 0).sum(1).max()) for values in hidden]
        scales = local_scales(weights, active=active, input_norm=float(inputs.norm(dim=1).max()))
        for values, reach in zip(hidden, scales.reach[1:], strict=True):
            assert float(values.relu().norm(dim=1).max()) <= reach
        full = local_scales(weights, input_norm=float(inputs.norm(dim=1).max()))
        assert all(one <= two for one, two in zip(scales.reach, full.reach, strict=True))
        assert all(one <= two for one, two in zip(scales.units, full.units, strict=True))


def test_bad_constants_are_refused():
    weights = NETWORKS["one hidden layer"]
    with pytest.raises(BadInput, match="epsilon must be positive"):
        growth([0.0])
    with pytest.raises(BadInput, match="one per hidden layer"):
        local_scales(weights, active=[1, 2], input_norm=1.0)
    with pytest.raises(BadInput, match="input_norm"):
        local_scales(weights, input_norm=0.0)
    with pytest.raises(BadInput, match="only zero weights"):
        local_scales([torch.zeros(3, 4), torch.ones(2, 3)], input_norm=1.0)
    assert growth([0.5, 0.5]) == pytest.approx((0.5, 1.25))
