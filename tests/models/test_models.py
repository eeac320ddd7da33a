from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from nonvacuous.errors import BadInput
from nonvacuous.kinds import ARCHITECTURES
from nonvacuous.models import BUILDERS, Cnn, Mlp, build

SHAPES = [(1, 28, 28), (3, 32, 32), (1, 8, 8), (2, 9, 5), (20,), (4, 6)]


def fits(name: str, shape: tuple[int, ...]) -> bool:
    return name == "mlp" or len(shape) == 3


@pytest.mark.slow_if("scatter-shape27", "scatter-shape26")
@pytest.mark.parametrize(
    ("name", "shape"), [(name, shape) for name in BUILDERS for shape in SHAPES if fits(name, shape)]
)
def test_every_model_is_a_plain_function_of_one_example(name, shape):
    """What a certificate needs: one row of finite scores per example, whatever the batch is."""
    model = build(name, shape, 7, seed=0).eval()
    inputs = torch.rand((5, *shape), generator=torch.Generator().manual_seed(1))
    scores = model(inputs)
    assert scores.shape == (5, 7)
    assert torch.isfinite(scores).all()
    alone = torch.cat([model(row[None]) for row in inputs])
    torch.testing.assert_close(scores, alone)
    assert not list(model.buffers()) or name in ("inception", "resnet", "resnet9", "scatter")
    assert any(name.endswith("bias") for name, _ in model.named_parameters())
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_sizes_of_layers():
    shapes = [tuple(p.shape) for p in build("mlp:600,500", (1, 28, 28), 10).parameters()]
    assert shapes == [(600, 784), (600,), (500, 600), (500,), (10, 500), (10,)]
    shapes = [tuple(p.shape) for p in build("cnn:32,64,128", (3, 32, 32), 10).parameters()]
    assert shapes == [
        (32, 3, 3, 3), (32,), (64, 32, 3, 3), (64,), (128, 64, 3, 3), (128,),
        (10, 128 * 4 * 4), (10,),
    ]  # fmt: skip
    shapes = [tuple(p.shape) for p in build("cnn:8/30,20", (1, 28, 28), 10).parameters()]
    assert shapes == [
        (8, 1, 3, 3),
        (8,),
        (30, 8 * 14 * 14),
        (30,),
        (20, 30),
        (20,),
        (10, 20),
        (10,),
    ]
    assert isinstance(build("mlp", (3,), 2), Mlp)
    assert isinstance(build("cnn", (1, 8, 8), 2), Cnn)


def test_mlp_computes_what_it_says():
    model = build("mlp:5", (2, 3), 4, seed=3)
    first, last = model.layers[0], model.layers[2]
    inputs = torch.randn(6, 2, 3)
    hidden = (inputs.reshape(6, 6) @ first.weight.T + first.bias).clamp(min=0)
    torch.testing.assert_close(model(inputs), hidden @ last.weight.T + last.bias)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pooling_first_changes_no_bit(layout):
    model = build("cnn:4,6", (1, 9, 10), 3, seed=0).to(memory_format=layout)
    in_turn = copy.deepcopy(model)
    in_turn.blocks = nn.Sequential(*in_turn.blocks)
    assert str(in_turn) == str(model)
    inputs = torch.randn(50, 1, 9, 10).round(decimals=1).to(memory_format=layout)
    for network in (model, in_turn):
        network(inputs).square().sum().backward()
    assert torch.equal(model(inputs), in_turn(inputs))
    for one, other in zip(model.parameters(), in_turn.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_only_what_commutes_is_exchanged():
    model = build("cnn:4", (1, 6, 6), 3, seed=0)
    inputs = torch.randn(5, 1, 6, 6)
    for other in (nn.Tanh(), nn.AvgPool2d(2)):
        model.blocks[1 if isinstance(other, nn.Tanh) else 2] = other
        assert torch.equal(model.blocks(inputs), nn.Sequential(*model.blocks)(inputs))


def test_cnn_computes_what_it_says():
    model = build("cnn:4", (1, 5, 6), 3, seed=3)
    convolution, last = model.blocks[0], model.layers[0]
    inputs = torch.randn(2, 1, 5, 6)
    maps = nn.functional.conv2d(inputs, convolution.weight, convolution.bias, padding=1).relu()
    pooled = torch.stack(
        [
            maps[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].amax((2, 3))
            for i in range(2)
            for j in range(3)
        ],
        dim=2,
    )
    torch.testing.assert_close(model(inputs), pooled.flatten(1) @ last.weight.T + last.bias)


def test_seed_fixes_the_weights_and_leaves_torch_alone():
    torch.manual_seed(11)
    state = torch.get_rng_state()
    first = build("mlp:5", (3,), 2, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(9)
    again, other = build("mlp:5", (3,), 2, seed=1), build("mlp:5", (3,), 2, seed=2)
    assert torch.equal(first.layers[0].weight, again.layers[0].weight)
    assert not torch.equal(first.layers[0].weight, other.layers[0].weight)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "message"),
    [
        ("transformer", (3, 8, 8), 10, "known are mlp, cnn"),
        ("inception:bn", (3, 8, 8), 10, "write inception, or inception:no-bn"),
        ("inception", (3, 3, 8), 10, "images of 3 x 8 are too small"),
        ("inception", (64,), 10, "use mlp for other inputs"),
        ("alexnet:2", (3, 8, 8), 10, "write alexnet"),
        ("alexnet", (8, 8), 10, "use mlp for other inputs"),
        ("", (3,), 10, "there is no model ''"),
        ("mlp:a", (3,), 10, "not a list of sizes"),
        ("mlp:5,", (3,), 10, "not a list of sizes"),
        ("mlp:0", (3,), 10, "not a list of sizes"),
        ("mlp:-5", (3,), 10, "not a list of sizes"),
        ("mlp:5/3", (3,), 10, "not a list of sizes"),
        ("mlp:²", (3,), 10, "not a list of sizes"),
        ("cnn:/5", (1, 8, 8), 10, "not a list of sizes"),
        ("cnn:5/", (1, 8, 8), 10, "no width follows"),
        ("mlp:", (1, 8, 8), 10, "nothing follows the colon; write mlp$"),
        ("alexnet:", (1, 8, 8), 10, "nothing follows the colon; write alexnet$"),
        ("cnn:4", (3,), 10, "use mlp"),
        ("cnn:4,4,4,4", (1, 8, 8), 10, "too many for images of 8 x 8"),
        ("mlp:5", (), 10, "not the shape of an input"),
        ("mlp:5", (0,), 10, "not the shape of an input"),
        ("mlp:5", (2.0,), 10, "not the shape of an input"),
        ("mlp:5", (3,), 1, "1 classes"),
        ("mlp:5", (3,), 2.0, "2.0 classes"),
    ],
)
def test_bad_models(name, shape, classes, message):
    with pytest.raises(BadInput, match=message):
        build(name, shape, classes)


def test_what_pages_take_for_built_in_is_built_in() -> None:
    assert tuple(BUILDERS) == ARCHITECTURES
