"""Training chains: the objective against its definition, determinism, and what each part does."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nonvacuous.data import Examples, digits
from nonvacuous.errors import BadInput
from nonvacuous.sparsity.training import (
    ChainTraining,
    _losses,
    chain_errors,
    initial_chain,
    limit_spectral_norms,
    spectral_norms,
    squared_distances,
    train_chain,
    unit_norm,
)
from nonvacuous.training.loop import Diverged
from tests.examples import some
from tests.sparsity.weight_noise import chain_module

NAMES = ("0", "1", "2")


@pytest.fixture(scope="module")
def some_digits():
    return unit_norm(digits().train)


@pytest.fixture
def few():
    generator = torch.Generator().manual_seed(3)
    inputs = torch.rand(12, 5, generator=generator, dtype=torch.float64)
    labels = torch.arange(12) % 3
    chain = tuple(matrix.double() for matrix in initial_chain((5, 4, 4, 3), seed=1))
    return inputs, labels, chain


def by_definition(chain, anchors, inputs, labels, wanted):
    """The objective written out example by example, without noise."""
    total = fit = 0.0
    for x, label in zip(inputs, labels, strict=True):
        hidden = x
        for matrix in chain[:-1]:
            sums = matrix @ hidden
            length = math.sqrt(float(sum(value * value for value in hidden)))
            for value in sums:
                short = max(0.0, 1.0 - abs(float(value)) / (wanted.stability_level * length))
                total += wanted.stability * short**2 / len(sums) / len(inputs)
            hidden = sums.clamp(min=0)
            total += wanted.activity * float(hidden.sum()) / len(inputs)
        scores = chain[-1] @ hidden
        fit += float(scores.exp().sum().log() - scores[label]) / len(inputs)
    distance = sum(
        float((a - b) ** 2)
        for mine, theirs in zip(chain, anchors, strict=True)
        for a, b in zip(mine.flatten(), theirs.flatten(), strict=True)
    )
    return fit + total + wanted.pull / len(chain) * distance, fit


def test_objective_is_what_it_says(few):
    inputs, labels, chain = few
    anchors = tuple(matrix + 0.1 for matrix in chain)
    wanted = ChainTraining(pull=0.7, stability=0.4, stability_level=0.6, activity=0.3)
    total, fit = _losses(wanted, chain, anchors, inputs, labels, torch.Generator())
    expected_total, expected_fit = by_definition(chain, anchors, inputs, labels, wanted)
    assert float(total) == pytest.approx(expected_total, rel=1e-9)
    assert float(fit) == pytest.approx(expected_fit, rel=1e-12)


@pytest.mark.slow
def test_noise_is_weight_noise(few):
    """The mean loss under noise on pre-activations equals that under noise on the weights."""
    inputs, labels, chain = few
    noise = (0.3, 0.2, 0.5)
    settings, draws = ChainTraining(noise=noise), torch.Generator().manual_seed(5)
    drawn = (_losses(settings, chain, chain, inputs, labels, draws) for _ in range(4000))
    ours = torch.stack([fit for _, fit in drawn])
    generator = torch.Generator().manual_seed(9)
    truth = []
    for _ in range(4000):
        hidden = inputs
        for index, (matrix, scale) in enumerate(zip(chain, noise, strict=True)):
            drawn = torch.randn(
                len(inputs), *matrix.shape, generator=generator, dtype=torch.float64
            )
            sums = torch.einsum("noi,ni->no", matrix + scale * drawn, hidden)
            hidden = sums if index == 2 else sums.clamp(min=0)
        truth.append(torch.nn.functional.cross_entropy(hidden, labels))
    true = torch.stack(truth)
    error = math.hypot(float(ours.std()), float(true.std())) / math.sqrt(4000)
    assert abs(float(ours.mean() - true.mean())) < 4 * error
    assert float(ours.std()) == pytest.approx(float(true.std()), rel=0.1)


@settings(max_examples=some(80), deadline=None)
@given(
    rows=st.integers(1, 7),
    columns=st.integers(1, 7),
    limit=st.floats(0.1, 3.0),
    seed=st.integers(0, 99),
)
def test_spectral_limit_clips_singular_values(rows, columns, limit, seed):
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    expected = left @ torch.diag(values.clamp(max=limit)) @ right
    outer = torch.full((2, 2), 50.0, dtype=torch.float64)
    weights = [outer.clone(), matrix.clone(), outer.clone()]
    limit_spectral_norms(weights, limit)
    assert torch.allclose(weights[1], expected, atol=1e-7)
    assert torch.equal(weights[0], outer) and torch.equal(weights[2], outer)


def test_same_seed_same_network_and_nothing_is_touched(some_digits):
    start = initial_chain((64, 12, 12, 10), seed=0)
    before = [matrix.clone() for matrix in start]
    wanted = ChainTraining(steps=30, batch_size=32, noise=0.1, spectral_limit=1.5)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = train_chain(start, some_digits, settings=wanted, seed=4)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    two = train_chain(start, some_digits, settings=wanted, seed=4)
    other = train_chain(start, some_digits, settings=wanted, seed=5)
    for mine, same, different, old, given_ in zip(one, two, other, before, start, strict=True):
        assert torch.equal(mine, same) and not torch.equal(mine, different)
        assert torch.equal(old, given_)
    assert max(spectral_norms(one)[1:-1]) <= 1.5 * (1 + 1e-5)


@pytest.mark.slow
def test_a_stronger_pull_moves_less(some_digits):
    start = initial_chain((64, 20, 10), seed=0)
    moved = []
    for pull in (0.01, 0.1, 1.0):
        wanted = ChainTraining(steps=200, batch_size=64, learning_rate=0.1, pull=pull)
        trained = train_chain(start, some_digits, settings=wanted, toward=start, seed=0)
        moved.append(sum(squared_distances(trained, start)))
    assert moved[0] > 2 * moved[1] > 4 * moved[2] > 0


@pytest.mark.slow
def test_penalties_do_what_they_are_for(some_digits):
    start = initial_chain((64, 30, 10), seed=0)
    plain = ChainTraining(steps=400, batch_size=64)

    def preactivations(**changes):
        trained = train_chain(start, some_digits, settings=replace(plain, **changes), seed=0)
        assert chain_errors(trained, some_digits) < 0.3 * len(some_digits)
        return some_digits.inputs @ trained[0].T

    ordinary = preactivations()
    sparse = preactivations(activity=0.05)
    stable = preactivations(stability=3.0, stability_level=0.3)
    assert float((sparse > 0).float().mean()) < 0.7 * float((ordinary > 0).float().mean())
    unstable = [float((sums.abs() < 0.3).float().mean()) for sums in (stable, ordinary)]
    assert unstable[0] < 0.7 * unstable[1]


def test_identity_start_keeps_the_product_near_one():
    deep = initial_chain((20, *[16] * 10, 4), seed=0, start="identity", spread=0.05)
    product = math.prod(spectral_norms(deep)[1:-1])
    ordinary = math.prod(spectral_norms(initial_chain((20, *[16] * 10, 4), seed=0))[1:-1])
    assert 1.0 <= product < 3.0 < 100.0 < ordinary


def test_module_computes_the_same(some_digits):
    chain = initial_chain((64, 9, 7, 10), seed=2)
    scores = chain_module(chain)(some_digits.inputs)
    assert chain_errors(chain, some_digits) == int((scores.argmax(1) != some_digits.labels).sum())


def test_a_tie_is_an_error():
    examples = Examples(torch.ones(2, 1), torch.tensor([0, 1]), ("a", "b"), "ties")
    assert chain_errors((torch.ones(1, 1), torch.ones(2, 1)), examples) == 2


def test_unit_norm_never_exceeds_one():
    inputs = torch.rand(500, 7, generator=torch.Generator().manual_seed(0)) * 100
    inputs[3] = 0
    examples = unit_norm(Examples(inputs, torch.zeros(500, dtype=torch.int64), NAMES, "x"))
    norms = examples.inputs.double().norm(dim=1)
    assert float(norms.max()) <= 1.0
    assert float(norms[norms > 0].min()) > 1 - 1e-5
    assert float(norms[3]) == 0.0
    assert examples.preprocessing == ("norm 1",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": -1}, "steps"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"noise": -0.1}, "noise"),
        ({"noise": (0.1, math.nan)}, "noise"),
        ({"spectral_limit": 0.0}, "spectral_limit"),
        ({"optimizer": "magic"}, "optimizer"),
    ],
)
def test_bad_settings(changes, words):
    with pytest.raises(BadInput, match=words):
        ChainTraining(**changes)


def test_bad_chains(some_digits):
    with pytest.raises(BadInput, match="two layers"):
        train_chain(initial_chain((64, 10), seed=0), some_digits, settings=ChainTraining(), seed=0)
    with pytest.raises(BadInput, match="63 inputs"):
        train_chain(
            initial_chain((63, 5, 10), seed=0), some_digits, settings=ChainTraining(), seed=0
        )
    chain = initial_chain((64, 5, 10), seed=0)
    with pytest.raises(BadInput, match="different shapes"):
        train_chain(
            chain, some_digits, settings=ChainTraining(), seed=0, toward=chain[:1] + chain[:1]
        )
    with pytest.raises(BadInput, match="names 3 layers"):
        train_chain(chain, some_digits, settings=ChainTraining(noise=(0.1, 0.1, 0.1)), seed=0)
    with pytest.raises(BadInput, match="start is 'ones'"):
        initial_chain((4, 3, 2), seed=0, start="ones")


def test_divergence_is_told(some_digits):
    with pytest.raises(Diverged, match="pull or activity, or a smaller learning_rate"):
        train_chain(
            initial_chain((64, 30, 30, 10), seed=0),
            some_digits,
            settings=ChainTraining(steps=200, learning_rate=1e6),
            seed=0,
        )


def test_settings_survive_a_file():
    wanted = ChainTraining(noise=(0.1, 0.2), spectral_limit=1.0)
    assert ChainTraining(**asdict(wanted) | {"noise": [0.1, 0.2]}) == wanted


def test_centered_inputs_have_mean_zero_and_norm_one():
    raw = Examples(torch.rand(5, 3, 2, 2) + 2.0, torch.zeros(5, dtype=torch.int64), ("a",), "x")
    moved = unit_norm(raw, centered=True)
    assert moved.inputs.mean(1).abs().max() < 1e-6
    assert torch.allclose(moved.inputs.norm(dim=1), torch.ones(5), atol=1e-5)
    assert moved.preprocessing[-2:] == ("mean 0", "norm 1")
    # A function of one input alone.
    alone = unit_norm(raw.subset(np.array([3])), centered=True)
    assert torch.equal(alone.inputs[0], moved.inputs[3])


def test_layers_between_hidden_ones_start_as_rotations():
    first, *between, last = initial_chain((6, 5, 5, 5, 3), seed=0, start="orthogonal")
    for matrix in between:
        assert torch.allclose(matrix @ matrix.T, torch.eye(5), atol=1e-5)
    assert not torch.allclose(between[0], between[1])
    assert first.shape == (5, 6) and last.shape == (3, 5)


def test_penalties_on_blocks_and_on_what_is_no_rotation_are_what_they_say(few):
    inputs, labels, chain = few
    plain, _ = _losses(ChainTraining(), chain, chain, inputs, labels, torch.Generator())
    wanted = ChainTraining(activity=0.3, activity_block=2, orthogonal=0.7)
    total, _ = _losses(wanted, chain, chain, inputs, labels, torch.Generator())
    expected = 0.0
    for x in inputs:
        hidden = x
        for matrix in chain[:-1]:
            hidden = (matrix @ hidden).clamp(min=0)
            pairs = hidden.reshape(2, 2)
            expected += 0.3 * math.sqrt(2) * float(pairs.norm(dim=1).sum()) / len(inputs)
    away = chain[1] @ chain[1].T - torch.eye(4, dtype=torch.float64)
    expected += 0.7 * float(away.square().sum())
    assert float(total - plain) == pytest.approx(expected, rel=1e-5)


def test_silent_blocks_do_not_spoil_the_gradient(few):
    inputs, labels, chain = few
    dead = (-chain[0].abs(), *chain[1:])
    weights = [matrix.clone().requires_grad_() for matrix in dead]
    wanted = ChainTraining(activity=0.3, activity_block=4)
    _losses(wanted, weights, dead, inputs, labels, torch.Generator())[0].backward()
    assert all(bool(matrix.grad.isfinite().all()) for matrix in weights)
