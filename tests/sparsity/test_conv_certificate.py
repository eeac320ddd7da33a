"""Convolutional certificates end to end: reading, refusing, certifying."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from nonvacuous.data.examples import Examples
from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.sparsity.certify import SparsityCertificate
from nonvacuous.sparsity.conv_chain import ConvChain, ConvLayer, Pool
from nonvacuous.sparsity.conv_reading import is_convolutional, read_network
from nonvacuous.sparsity.conv_training import ConvTraining, train_conv
from nonvacuous.sparsity.setting import BLENDS, ESCAPES, ConvSetting
from nonvacuous.sparsity.weights import Layers
from nonvacuous.training.loop import Diverged
from tests.sparsity.calls import certify_sparse, judge


class _Reshaping(nn.Module):
    """Flat inputs, functional pooling, a mean over positions, padding by name."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(1, 3, 3, padding="same")
        self.two = nn.Conv2d(3, 4, (3, 2), stride=(1, 2), dilation=(1, 2))
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 1, 8, 8)
        x = torch.relu(nn.functional.max_pool2d(self.one(x), 2))
        return self.out(torch.relu(self.two(x)).mean((2, 3)))


def _networks() -> list[tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    images = torch.randn(3, 1, 8, 8)
    return [
        (_Reshaping(), images.flatten(1)),
        (
            nn.Sequential(
                nn.Conv2d(1, 2, 3, stride=2, bias=False),
                nn.ReLU(),
                nn.AvgPool2d(2, stride=1, padding=1),
                nn.Flatten(),
                nn.Linear(32, 5),
                nn.ReLU(),
                nn.Dropout(0.5),
                nn.Linear(5, 3, bias=False),
            ),
            images,
        ),
        (
            nn.Sequential(
                nn.Conv2d(1, 2, 3),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(3),
                nn.Flatten(),
                nn.Linear(18, 2),
            ),
            images,
        ),
    ]


@pytest.mark.slow
def test_chains_compute_what_modules_compute() -> None:
    for module, inputs in _networks():
        chain = read_network(module.eval(), inputs)
        with torch.no_grad():
            assert torch.allclose(
                chain.scores(chain.images(inputs)).float(), module(inputs), atol=1e-5
            )
    assert is_convolutional(_Reshaping())
    assert not is_convolutional(nn.Linear(2, 2))
    plain = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    assert isinstance(read_network(plain, torch.zeros(2, 4)), Layers)
    assert isinstance(read_network(_Reshaping().eval(), torch.zeros(2, 64)), ConvChain)


class _Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(1, 1, 3, padding=1)
        self.out = nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out((x + torch.relu(self.one(x))).flatten(1))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()], "1 (aten"),
        ([nn.Conv2d(1, 2, 3), nn.Tanh()], "only linear layers, convolutions"),
        ([nn.Conv2d(1, 2, 3), nn.AvgPool2d(2), nn.ReLU()], "before the ReLU"),
        ([nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2)], "second pooling"),
        ([nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2, padding=1)], "padding"),
        ([nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(4, ceil_mode=True)], "ceil_mode"),
        ([nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4)], "differ in size"),
        ([nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.ReLU()], "no ReLU"),
        ([nn.Conv2d(1, 2, 1), nn.ReLU(), nn.Conv2d(2, 2, 3, groups=2), nn.ReLU()], "groups"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(layers: list[nn.Module], words: str) -> None:
    body = nn.Sequential(*layers)
    with torch.no_grad():
        features = body.eval()(torch.zeros(2, 1, 8, 8)).flatten(1).shape[1]
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 2)).eval()
    with pytest.raises(NotYetSupported) as caught:
        read_network(module, torch.zeros(2, 1, 8, 8))
    assert words in str(caught.value)
    assert "nonvacuous certify" in str(caught.value)


def test_branches_and_chains_without_an_end_are_refused() -> None:
    with pytest.raises(NotYetSupported, match="one line"):
        read_network(_Skip().eval(), torch.zeros(2, 1, 8, 8))
    open_end = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten()).eval()
    with pytest.raises(NotYetSupported, match="end in a linear layer"):
        read_network(open_end, torch.zeros(2, 1, 8, 8))
    with pytest.raises(BadInput, match="one number for each class"):
        read_network(
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3)).eval(),
            torch.zeros(2, 1, 8, 8),
        )


def _world(classes: int = 2, examples: int = 2000, seed: int = 0) -> Examples:
    """Bright spots in one half or the other of a small image."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (examples,), generator=generator)
    images = 0.2 * torch.rand(examples, 1, 6, 6, generator=generator)
    places = torch.randint(3, (examples, 2), generator=generator)
    rows, columns = places[:, 0] + 3 * labels, places[:, 1] + torch.randint(4, (examples,))
    images[torch.arange(examples), 0, rows, columns] += 1.0
    images = images / images.flatten(1).norm(dim=1)[:, None, None, None]
    return Examples(images, labels, ("up", "down"), "spots")


def _trained(pool: nn.Module, side: int) -> nn.Module:
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False),
        nn.ReLU(),
        pool,
        nn.Flatten(),
        nn.Linear(3 * side * side, 2, bias=False),
    )
    settings = ConvTraining(steps=80, batch_size=500, learning_rate=1.0, noise=0.02)
    return train_conv(module, _world(examples=500, seed=9), settings=settings, seed=1)


@pytest.mark.slow
def test_training_pulls_toward_the_prior_and_leaves_its_arguments_alone() -> None:
    prior, world = _trained(nn.MaxPool2d(2), 2), _world(examples=300)
    before = [p.detach().clone() for p in prior.parameters()]
    distances = []
    for pull in (0.0, 1.0):
        settings = ConvTraining(steps=40, learning_rate=0.2, pull=pull, shifts=1)
        found = [
            train_conv(prior, world, settings=settings, toward=prior, seed=2) for _ in range(2)
        ]
        one, other = ([p.detach() for p in m.parameters()] for m in found)
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
        assert not found[0].training
        assert not any(m._forward_hooks for m in found[0].modules())
        distances.append(
            sum(float((a - b).square().sum()) for a, b in zip(one, before, strict=True))
        )
    assert distances[1] < distances[0]
    assert all(torch.equal(a, b) for a, b in zip(before, prior.parameters(), strict=True))
    with pytest.raises(BadInput, match="different shapes"):
        train_conv(prior, world, settings=ConvTraining(steps=1), toward=nn.Linear(2, 2), seed=0)
    with pytest.raises(Diverged, match="learning_rate"):
        train_conv(prior, world, settings=ConvTraining(steps=60, pull=1e6), seed=0)


@pytest.mark.slow
def test_certificates_hold_and_repeat_themselves() -> None:
    prior, world = _trained(nn.MaxPool2d(2), 2), _world()
    module = copy.deepcopy(prior)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.01 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(3)
            )
    fresh = _world(examples=5000, seed=77)
    wrong = float((module(fresh.inputs).argmax(1) != fresh.labels).double().mean())
    for variant in ("sparse", "dense"):
        first = certify_sparse(
            module,
            prior,
            world,
            variant=variant,  # type: ignore[arg-type]
            passes=2,
            subset=200,
            seed=4,
        )
        assert wrong <= first.risk_upper < 0.5
        assert first.trials == 2 * len(world)
        assert first.variant == variant
        assert math.isclose(first.grid_nats, math.fsum(c.nats for c in first.charges), rel_tol=1e-9)
        expected = sum(
            d / (2 * s * s) for d, s in zip(first.squared_distances, first.scales, strict=True)
        )
        assert math.isclose(first.kl_nats, expected, rel_tol=1e-9)
        assert TypeAdapter(SparsityCertificate).validate_python(first.to_dict()) == first
    again = certify_sparse(module, prior, world, variant="dense", passes=2, subset=200, seed=4)
    assert again == first


def test_the_ledger_names_every_constant_and_sums_to_one_grid() -> None:
    module, inputs = _networks()[1]
    chain = read_network(module.eval(), inputs)
    setting = ConvSetting(-20, (0, 0), 3)
    names = {sparse: [c.name for c in _charges(chain, setting, sparse)] for sparse in (True, False)}
    for wanted in ("operator norm of layer 4", "kernel norm of layer 4", "distance of output"):
        assert any(wanted in name for name in names[False])
    extra = set(names[True]) - set(names[False])
    assert extra == {"tail: share of norms", "distance of layer 4 from the prior"}
    assert len(names[True]) == len(set(names[True]))
    assert len(BLENDS) == 8 and len(ESCAPES) == 12


def _charges(chain: object, setting: ConvSetting, sparse: bool) -> tuple[object, ...]:
    return judge(chain, chain, sparse=sparse).charges(setting)  # type: ignore[arg-type]


@pytest.mark.slow
def test_bad_input_is_refused_with_what_to_do() -> None:
    prior, world = _trained(nn.AvgPool2d(2), 2), _world(examples=200)
    with pytest.raises(BadInput, match="variant"):
        certify_sparse(prior, prior, world, variant="both")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="theorem D covers linear layers only"):
        certify_sparse(prior, prior, world, theorem="D")
    with pytest.raises(BadInput, match="too few"):
        certify_sparse(prior, prior, world.subset(range(50)))
    with pytest.raises(BadInput, match="built alike"):
        certify_sparse(prior, _trained(nn.MaxPool2d(2), 2), world)
    dead = copy.deepcopy(prior)
    with torch.no_grad():
        next(dead.parameters()).copy_(-next(prior.parameters()).abs())
    with pytest.raises(BadInput, match="active"):
        certify_sparse(dead, prior, world)
    layer = ConvLayer("one", torch.full((1, 1, 1, 1), math.nan, dtype=torch.float64), None)
    with pytest.raises(BadInput, match="NaN"):
        type(read_network(prior, world.inputs[:2])).of((1, 2, 2), [(layer, Pool())])


@pytest.mark.slow
def test_a_prior_of_zeros_has_a_reference_and_a_vacuous_certificate() -> None:
    module, world = _trained(nn.AvgPool2d(2), 2), _world(examples=200)
    zero = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in zero.parameters():
            parameter.zero_()
    known = read_network(zero, world.inputs[:2]).reference()
    assert all(bool((stage.layer.weight != 0).any()) for stage in known.stages)
    certificate = certify_sparse(module, zero, world, passes=1, subset=50)
    assert 0.0 < certificate.risk_upper <= 1.0
