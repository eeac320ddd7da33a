"""The study of convolutional networks: signs under real changes, activity, and words."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nonvacuous.bounds import holdout
from nonvacuous.data import Examples
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.sparsity import read_network
from nonvacuous.sparsity.conv_chain import ConvChain
from nonvacuous.sparsity.conv_norms import unrolled, unrolled_layers
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv, without_biases
from nonvacuous.sparsity.measuring import StageNorms, measure_conv, movements
from nonvacuous.sparsity.priors import make_conv_prior
from nonvacuous.sparsity.study import study
from nonvacuous.sparsity.weights import Layers
from tests.sparsity.calls import certify_sparse
from tests.sparsity.conv_worlds import WORLDS, moved, random_chain


def images(count: int = 200, seed: int = 0) -> Examples:
    """A bright corner says which class it is."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    inputs = 0.3 * torch.rand(count, 1, 6, 6, generator=generator)
    for label, (row, column) in enumerate(((0, 0), (0, 3), (3, 0))):
        inputs[labels == label, :, row : row + 3, column : column + 3] += 0.7
    return Examples(inputs, labels, ("a", "b", "c"), "corners")


def module(pool: nn.Module | None = None, *, bias: bool = False, seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=bias),
            nn.ReLU(),
            pool or nn.Identity(),
            nn.Flatten(),
            nn.Linear(4 * (16 if pool is None else 4), 3, bias=bias),
        ).eval()


@pytest.mark.slow
def test_activity_errors_and_tests_are_those_of_the_module() -> None:
    network, examples, test = module(nn.MaxPool2d(2), bias=True), images(), images(150, seed=1)
    found = study(network, examples, held_out=test, epsilons=[1e-3, 1e-2])
    with torch.no_grad():
        lit = network[0](examples.inputs).flatten(1) > 0
        wrong = int((network(examples.inputs).argmax(1) != examples.labels).sum())
        test_wrong = int((network(test.inputs).argmax(1) != test.labels).sum())
    assert found.errors == wrong and found.biases and found.sizes == (36, 64, 3)
    (layer,) = found.activity
    assert layer.mean == pytest.approx(float(lit.sum(1).double().mean()))
    assert layer.never == int((~lit.any(0)).sum()) and layer.always == int(lit.all(0).sum())
    (plain,) = found.held_out
    assert plain.risk == holdout(errors=test_wrong, examples=150, failure=0.05)
    assert found.radii == () and found.norm_bounds == () and found.certificates == ()
    assert "not defined for convolutions" in found.notes[0] and "max pooling" in found.notes[1]
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["notes"] == list(found.notes) and record["epsilons"][0]["mean_ratio"] is None
    assert "signs are in doubt when the weights may move by 0.01" in found.answer
    for entry in found.epsilons:
        for at, activity in zip(entry.layers, found.activity, strict=True):
            assert at.active + at.inactive + at.unstable == pytest.approx(1.0)
            assert at.mean == pytest.approx(at.inactive * activity.units)
            assert 0.0 <= at.unstable <= 1.0


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["average", "two", "two maxima", "linear"])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_no_unit_moves_farther_than_foretold(name: str, bias: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    chain = random_chain(name, generator, bias=bias)
    shape = WORLDS[name][0]
    inputs = torch.randn(5, *shape, generator=generator, dtype=torch.float64)
    hidden = chain.stages[:-1]
    norms = [StageNorms.of(stage) for stage in hidden]
    other = moved(chain, 0.05, generator)
    # How far each layer has moved, as the theorem counts it: the matrix with the bias's column.
    epsilon = 0.0
    for mine, theirs, norm in zip(hidden, other.stages, norms, strict=False):
        difference = unrolled(theirs.layer, mine.before) - unrolled(mine.layer, mine.before)
        rows = theirs.layer.matrix - mine.layer.matrix
        if bias:
            shift = theirs.layer.bias - mine.layer.bias
            column = shift.repeat_interleave(mine.positions)
            difference = torch.cat([difference, column[:, None]], 1)
            rows = torch.cat([rows, shift[:, None]], 1)
        spectral = float(torch.linalg.matrix_norm(difference, 2))
        epsilon = max(
            epsilon, spectral / norm.whole_bias, float(rows.norm(dim=1).max()) / norm.kernel_bias
        )
    befores, afters, seen = [], [], []
    x, y = inputs, inputs
    for mine, theirs in zip(hidden, other.stages, strict=False):
        seen.append(x)
        befores.append(mine.layer(x).flatten(1))
        afters.append(theirs.layer(y).flatten(1))
        x, y = (
            mine.pool(befores[-1].reshape(-1, *mine.middle).clamp(min=0)),
            theirs.pool(afters[-1].reshape(-1, *mine.middle).clamp(min=0)),
        )
    limits = movements(hidden, norms, seen, epsilon=epsilon)
    for before, after, limit in zip(befores, afters, limits, strict=True):
        assert bool(((before - after).abs() <= limit * (1 + 1e-9)).all())


def test_the_limit_of_the_first_layer_is_reached() -> None:
    """One kernel moved along a patch by epsilon: the unit there moves exactly so far."""
    generator = torch.Generator().manual_seed(4)
    chain = random_chain("strided", generator)
    stage = chain.stages[0]
    image = torch.randn(1, *WORLDS["strided"][0], generator=generator, dtype=torch.float64)
    norm = StageNorms.of(stage)
    (limits,) = movements([stage], [norm], [image], epsilon=0.01)
    patch = stage.layer.patches(image)[0, :, 2]
    reached = 0.01 * norm.kernel * float(patch @ patch) / float(patch.norm())
    assert float(limits[0, 2]) == pytest.approx(reached, rel=1e-6)


def test_units_that_read_only_zeros_are_off() -> None:
    network = nn.Sequential(
        nn.Conv2d(1, 2, 2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(50, 3, bias=False)
    ).eval()
    inputs = torch.rand(120, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    inputs[:, :, :2] = 0.0
    chain = read_network(network, inputs[:2])
    assert isinstance(chain, ConvChain)
    found = measure_conv(chain, inputs, torch.arange(120) % 3, epsilons=[1e-3], level=1.0)
    (stability,) = found.choices[0].stability
    on, off, unstable = stability.shares().values()
    assert on + off + unstable == pytest.approx(1.0) and min(on, off, unstable) >= 0.0
    assert bool((stability.inactive.reshape(2, 5, 5)[:, 0] == 120).all())


@pytest.mark.parametrize("pool", [None, nn.AvgPool2d(2)])
def test_written_out_as_matrices_it_computes_the_same(pool: nn.Module | None) -> None:
    network, examples = module(pool, bias=True), images()
    chain = read_network(network, examples.inputs[:2])
    layers = unrolled_layers(chain)
    values = examples.inputs.double().flatten(1)
    first = torch.relu(values @ layers.weights[0].T + layers.biases[0])
    scores = first @ layers.weights[1].T + layers.biases[1]
    torch.testing.assert_close(scores, chain.scores(chain.images(examples.inputs)))
    found = study(network, examples, prior=module(pool, bias=True, seed=1))
    assert len(found.norm_bounds) == 3 and "matrices" in found.notes[1]
    # The same bounds as the perceptron with these matrices has.
    plain = study(layers, examples)
    assert found.norm_bounds[1:] == plain.norm_bounds[1:]


def test_what_cannot_be_written_out_is_said() -> None:
    with pytest.raises(NotYetSupported, match="max pooling"):
        unrolled_layers(read_network(module(nn.MaxPool2d(2)), images().inputs[:2]))
    large = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 1024, 2)
    ).eval()
    with pytest.raises(NotYetSupported, match="layer 0 takes 8,388,608 numbers"):
        unrolled_layers(read_network(large, torch.zeros(2, 1, 32, 32)))


def test_one_call_certifies_both_kinds() -> None:
    examples = images(300)
    chain, prior = (read_network(module(seed=s), examples.inputs[:2]) for s in (0, 1))
    words = {"passes": 1, "subset": 100, "seed": 5, "choices": 3}
    found = certify_sparse(chain, prior, examples, variant="dense", **words)
    assert found == certify_sparse(chain, prior, examples, variant="dense", **words)
    layers = Layers.of([torch.eye(36), torch.ones(3, 36)])
    for theorem in ("A", "D", "F"):
        with pytest.raises(BadInput, match=f"theorem {theorem} covers linear layers only"):
            certify_sparse(chain, prior, examples, theorem=theorem)
    with pytest.raises(BadInput, match="gauge"):
        certify_sparse(chain, prior, examples, gauge="nearest")
    for pair in ((layers, prior), (chain, layers)):
        with pytest.raises(BadInput, match="one has convolutions"):
            certify_sparse(*pair, examples)
    with pytest.raises(BadInput, match="one has convolutions"):
        study(chain, examples, prior=layers)


@pytest.mark.slow
def test_a_prior_brings_certificate_and_plain_test() -> None:
    found = study(module(), images(300), prior=module(seed=1), seed=3, epsilons=[1e-2])
    assert [entry.variant for entry in found.certificates] == ["sparse", "dense"]
    assert [entry.what for entry in found.held_out] == ["the prior itself on the same examples"]
    chain = read_network(module(), images().inputs[:2])
    zero = chain.zero()
    assert all(not bool(stage.layer.weight.any()) for stage in zero.stages)
    assert study(chain, images(), prior=zero, epsilons=[0.1]).held_out == ()


def test_refusals_name_the_place() -> None:
    network = module(bias=True)
    with torch.no_grad():
        network[0].bias.fill_(-1e6)
    with pytest.raises(BadInput, match="no unit of layer 0"):
        study(network, images())
    with pytest.raises(BadInput, match="99 examples"):
        study(module(), images(99))
    flat = Examples(torch.rand(120, 8), torch.arange(120) % 3, ("a", "b", "c"), "short")
    with pytest.raises(BadInput, match="layer 0 takes 36 inputs"):
        study(read_network(module(), images().inputs[:2]), flat)


@pytest.mark.slow
def test_an_l1_penalty_makes_it_sparser_and_priors_keep_to_their_share() -> None:
    examples, start = images(400), without_biases(module(bias=True))
    assert all(part.bias is None for part in (start[0], start[4]))
    plain, sparse = (
        train_conv(start, examples, settings=ConvTraining(steps=150, activity=a), seed=0)
        for a in (0.0, 0.05)
    )
    sizes = [float(torch.relu(net[0](examples.inputs)).sum().detach()) for net in (plain, sparse)]
    assert sizes[1] < sizes[0]
    words = {"settings": ConvTraining(steps=20), "seed": 0}
    learned = make_conv_prior("learned:0.25", examples, start, **words)
    assert len(learned.bound) == 300 and learned.start is learned.center
    zero = make_conv_prior("zero", examples, start, **words)
    assert zero.start is start and not any(bool(p.any()) for p in zero.center.parameters())
    assert len(zero.bound) == 400
    assert make_conv_prior("init", examples, start, **words).center is start


def test_a_penalty_on_channels_silences_them_whole():
    from nonvacuous.sparsity.conv_training import _size

    values = torch.rand(2, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    values[:, 1] = 0.0
    values.requires_grad_()
    size = _size(values, True)
    norms = values.detach().flatten(2).norm(dim=2)
    assert float(size.detach()) == pytest.approx(2.0 * float(norms.sum()), rel=1e-4)
    size.backward()
    assert bool(values.grad.isfinite().all())
    # Of equal entries the norm times the root of their number is their sum.
    even = torch.full((2, 3, 2, 2), 0.7)
    assert float(_size(even, True)) == pytest.approx(float(_size(even, False)), rel=1e-5)
