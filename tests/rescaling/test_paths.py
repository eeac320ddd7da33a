"""Path norms and path-liftings against paths that are enumerated by hand."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nonvacuous.errors import BadInput, NotYetSupported
from nonvacuous.models.cnn import Cnn, Mlp
from nonvacuous.networks import capture, fold_batch_norm, rescaled, scale_groups
from nonvacuous.rescaling.paths import path_count, path_lifting, path_norm

ORDERS = (0.5, 1.0, 2.0, 4.0)


def shaken(module: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module.double().eval()


def norm(values: list[float], order: float) -> float:
    return sum(abs(value) ** order for value in values) ** (1 / order)


# ---------------------------------------------------------------------- paths enumerated one by one


def mlp_paths(layers: list[nn.Linear]) -> list[float]:
    """Every choice of one unit per layer, from every input and from every bias."""
    weights = [layer.weight.detach().numpy() for layer in layers]
    found = []
    for first in range(len(layers)):
        # A path starts at an input (before the first layer) or at the bias of some layer.
        rest = [range(w.shape[0]) for w in weights[first:]]
        if first == 0:
            for units in itertools.product(range(weights[0].shape[1]), *rest):
                steps = itertools.pairwise(units)
                found.append(math.prod(w[b, a] for w, (a, b) in zip(weights, steps, strict=True)))
        bias = layers[first].bias.detach().numpy()
        for units in itertools.product(*rest):
            steps = itertools.pairwise(units)
            tail = zip(weights[first + 1 :], steps, strict=True)
            found.append(bias[units[0]] * math.prod(w[b, a] for w, (a, b) in tail))
    return found


def test_an_mlp_by_enumeration() -> None:
    module = shaken(Mlp((3,), 2, widths=(4, 3)))
    graph = capture(module, torch.zeros(2, 3, dtype=torch.float64))
    expected = mlp_paths([layer for layer in module.layers if isinstance(layer, nn.Linear)])
    found = path_lifting(graph, module)
    np.testing.assert_allclose(np.sort(found.values), np.sort(expected), rtol=1e-12)
    assert path_count(graph) == len(expected) == 3 * 4 * 3 * 2 + 4 * 3 * 2 + 3 * 2 + 2
    for order in ORDERS:
        assert path_norm(graph, module, order=order) == pytest.approx(norm(expected, order))
        assert found.norm(order) == pytest.approx(norm(expected, order))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.back = nn.Linear(3, 2), nn.Linear(2, 3)
        self.last = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last((x + self.back(self.inner(x).relu())).relu())


def test_a_residual_network_by_enumeration() -> None:
    module = shaken(Residual())
    graph = capture(module, torch.zeros(2, 3, dtype=torch.float64))
    inner, back, last = (
        (layer.weight.detach().numpy(), layer.bias.detach().numpy())
        for layer in (module.inner, module.back, module.last)
    )
    expected = list(last[1])
    for out in range(2):
        for middle in range(3):
            step = last[0][out, middle]
            expected.append(step)  # along the shortcut: the input with the same number
            expected.append(back[1][middle] * step)
            for unit in range(2):
                tail = back[0][middle, unit] * step
                expected.append(inner[1][unit] * tail)
                expected += [inner[0][unit, start] * tail for start in range(3)]
    found = path_lifting(graph, module)
    np.testing.assert_allclose(np.sort(found.values), np.sort(expected), rtol=1e-12)
    for order in ORDERS:
        assert path_norm(graph, module, order=order) == pytest.approx(norm(expected, order))


class Pooled(nn.Module):
    """Convolution with padding and stride, pooling, flattening, a linear layer."""

    def __init__(self, pool: nn.Module, features: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1, stride=2)
        self.pool = pool
        self.last = nn.Linear(features, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.pool(self.conv(x).relu()).flatten(1))


def convolution_paths(conv: nn.Conv2d, size: int) -> dict[tuple[int, int, int], list[float]]:
    """For each neuron of the result, the values of the paths that end in it."""
    weight, bias = conv.weight.detach().numpy(), conv.bias.detach().numpy()
    stride, padding = conv.stride[0], conv.padding[0]
    width = (size + 2 * padding - 3) // stride + 1
    found = {}
    for channel, row, column in itertools.product(range(len(bias)), range(width), range(width)):
        values = [bias[channel]]
        for source, down, right in itertools.product(range(weight.shape[1]), range(3), range(3)):
            place = (row * stride - padding + down, column * stride - padding + right)
            if all(0 <= p < size for p in place):
                values.append(weight[channel, source, down, right])
        found[channel, row, column] = values
    return found


def windows(kind: str, width: int) -> list[tuple[list[int], float]]:
    """Along one axis: the positions of each window, and the weight of its edges."""
    if kind == "max, overlapping, padded":  # kernel 3, stride 1, padding 1
        spans = [[p for p in range(k - 1, k + 2) if 0 <= p < width] for k in range(width)]
        return [(span, 1.0) for span in spans]
    if kind == "max, ceiling":  # kernel 2, stride 2, a last incomplete window
        spans = [[p for p in (2 * k, 2 * k + 1) if p < width] for k in range((width + 1) // 2)]
        return [(span, 1.0) for span in spans]
    if kind == "mean":  # kernel 2, stride 1
        return [([k, k + 1], 0.5) for k in range(width - 1)]
    return [(list(range(width)), 1 / width)]  # mean over everything


@pytest.mark.parametrize(
    ("kind", "pool", "features"),
    [
        ("max, overlapping, padded", nn.MaxPool2d(3, stride=1, padding=1), 18),
        ("max, ceiling", nn.MaxPool2d(2, ceil_mode=True), 8),
        ("mean", nn.AvgPool2d(2, stride=1), 8),
        ("mean of everything", nn.AdaptiveAvgPool2d(1), 2),
    ],
)
def test_convolution_and_pooling_by_enumeration(kind: str, pool: nn.Module, features: int) -> None:
    size = 5
    module = shaken(Pooled(pool, features))
    graph = capture(module, torch.zeros(2, 2, size, size, dtype=torch.float64))
    neurons = convolution_paths(module.conv, size)
    along = windows(kind, 3)
    last = module.last.weight.detach().numpy().reshape(2, 2, len(along), len(along))
    expected = []
    for out, channel in itertools.product(range(2), range(2)):
        for (r, (rows, a)), (c, (columns, b)) in itertools.product(
            enumerate(along), enumerate(along)
        ):
            for place in itertools.product(rows, columns):
                tail = a * b * last[out, channel, r, c]
                expected += [value * tail for value in neurons[(channel, *place)]]
    found = path_lifting(graph, module)
    np.testing.assert_allclose(np.sort(found.values), np.sort(expected), rtol=1e-12)
    assert path_count(graph) == len(expected)
    for order in ORDERS:
        assert path_norm(graph, module, order=order) == pytest.approx(norm(expected, order))


@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool2d(3, stride=2, padding=1),
        nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
        nn.AvgPool2d(2, stride=2, ceil_mode=True),
        nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        nn.AvgPool2d(2, divisor_override=3),
        nn.AdaptiveAvgPool2d((2, 3)),
        nn.AvgPool2d((1, 3), stride=(2, 1), padding=(0, 1)),
    ],
)
def test_means_have_the_edge_weights_that_pytorch_uses(pool: nn.Module) -> None:
    """With positive weights and inputs all paths are on, and their sum is the output."""
    module = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), pool, nn.Flatten()).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.abs_()
    graph = capture(module, torch.zeros(2, 1, 6, 6, dtype=torch.float64))
    output = module(torch.ones(1, 1, 6, 6, dtype=torch.float64)).detach()
    assert path_norm(graph, module) == pytest.approx(float(output.sum()), rel=1e-12)


# ---------------------------------------------------------------------- what the lifting determines


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(3, 2)
        self.middle, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.left(x).relu(), self.right(x).relu()], 1)
        return self.last((0.5 * self.middle(x) - x).relu() / 3)


ARCHITECTURES = {
    "mlp": (lambda: Mlp((3,), 2, widths=(3, 3)), (3,)),
    "cnn": (lambda: Cnn((1, 4, 4), 2, channels=(2,), hidden=(2,)), (1, 4, 4)),
    "residual": (Residual, (3,)),
    "joined": (Joined, (3,)),
}


@pytest.mark.parametrize("name", ["mlp", "cnn", "residual"])
def test_positive_networks_are_the_sum_of_their_paths(name: str) -> None:
    """Every path is on where everything is positive: f(x) = sum of value * input at the start."""
    build, shape = ARCHITECTURES[name]
    module = shaken(build())
    if name == "cnn":
        module.blocks[2] = nn.AvgPool2d(2).eval()  # a largest value is no sum
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.abs_()
    graph = capture(module, torch.zeros(2, *shape, dtype=torch.float64))
    found = path_lifting(graph, module)
    inputs = torch.rand(1, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (input_name,) = graph.inputs
    flat = inputs.reshape(-1).numpy()
    scores = np.zeros(2)
    for value, (start, place), end in zip(found.values, found.starts, found.ends, strict=True):
        scores[end] += value * (flat[place] if start == input_name else 1.0)
    np.testing.assert_allclose(scores, module(inputs).detach().numpy()[0], rtol=1e-12)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_norms_are_those_of_the_lifting(name: str) -> None:
    build, shape = ARCHITECTURES[name]
    module = shaken(build())
    graph = capture(module, torch.zeros(2, *shape, dtype=torch.float64))
    found = path_lifting(graph, module)
    assert len(found.values) == len(found.starts) == len(found.ends) == path_count(graph)
    for order in ORDERS:
        assert path_norm(graph, module, order=order) == pytest.approx(found.norm(order), rel=1e-12)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_rescaling_changes_neither_values_nor_signs(name: str) -> None:
    build, shape = ARCHITECTURES[name]
    module = shaken(build())
    graph = capture(module, torch.zeros(2, *shape, dtype=torch.float64))
    groups = scale_groups(graph)
    assert groups.size > 0
    before = path_lifting(graph, module)
    for seed in range(3):
        moves = np.random.default_rng(seed).normal(scale=2.0, size=groups.size)
        moved = rescaled(module, groups, moves)
        after = path_lifting(graph, moved)
        assert after.starts == before.starts
        np.testing.assert_allclose(after.values, before.values, rtol=1e-12)
        for parameter in before.signs:
            np.testing.assert_array_equal(after.signs[parameter], before.signs[parameter])
        for order in ORDERS:
            expected = path_norm(graph, module, order=order)
            assert path_norm(graph, moved, order=order) == pytest.approx(expected, rel=1e-12)
    # It is not invariant under everything: scaling one layer alone changes it.
    other = copy.deepcopy(module)
    with torch.no_grad():
        next(iter(other.parameters())).mul_(2)
    assert path_norm(graph, other) > path_norm(graph, module)


def test_zero_weights_keep_their_paths() -> None:
    module = shaken(Mlp((3,), 2, widths=(3,)))
    with torch.no_grad():
        module.layers[0].weight[0] = 0
    graph = capture(module, torch.zeros(2, 3, dtype=torch.float64))
    found = path_lifting(graph, module)
    assert len(found.values) == path_count(graph)
    assert (found.values == 0).sum() == 3 * 2
    assert (found.signs["layers.0.weight"][0] == 0).all()


def test_folded_batch_norm_has_paths() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2)
    ).double()
    module(torch.randn(20, 1, 4, 4, dtype=torch.float64))
    module.eval()
    example = torch.zeros(2, 1, 4, 4, dtype=torch.float64)
    with pytest.raises(NotYetSupported, match=r"batch_norm.*fold_batch_norm"):
        path_norm(capture(module, example), module)
    folded = fold_batch_norm(module, example)
    graph = capture(folded, example)
    assert path_norm(graph, folded) == pytest.approx(path_lifting(graph, folded).norm())


def test_a_large_network_is_one_forward_pass() -> None:
    module = Mlp((784,), 10, widths=(300, 100)).eval()
    graph = capture(module, torch.zeros(2, 784))
    weights = [p.detach().double().abs().numpy() for p in module.parameters()]
    vector = np.ones(784)
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        vector = weight @ vector + bias
    assert path_norm(graph, module) == pytest.approx(vector.sum(), rel=1e-12)
    assert path_count(graph) == 784 * 300 * 100 * 10 + 300 * 100 * 10 + 100 * 10 + 10
    with pytest.raises(BadInput, match=r"2\.355e\+08 paths"):
        path_lifting(graph, module)


def test_weights_may_be_a_mapping_or_left_out() -> None:
    module = shaken(Mlp((3,), 2, widths=(3,)))
    graph = capture(module, torch.zeros(2, 3, dtype=torch.float64))
    arrays = {name: p.detach().numpy() for name, p in module.named_parameters()}
    assert path_norm(graph, arrays) == path_norm(graph, module) == path_norm(graph)
    np.testing.assert_array_equal(path_lifting(graph).values, path_lifting(graph, arrays).values)
    with pytest.raises(BadInput, match=r"lacks 4 .* 'layers\.0\.bias'"):
        path_norm(graph, {})
    arrays["layers.0.weight"] = np.zeros((2, 2))
    with pytest.raises(BadInput, match="shape"):
        path_norm(graph, arrays)


@pytest.mark.parametrize("order", [0.0, -1.0, math.inf, math.nan])
def test_impossible_orders_are_refused(order: float) -> None:
    module = shaken(Mlp((3,), 2, widths=(3,)))
    graph = capture(module, torch.zeros(2, 3, dtype=torch.float64))
    with pytest.raises(BadInput, match="order"):
        path_norm(graph, module, order=order)


def test_values_beyond_float64_are_refused() -> None:
    module = shaken(Mlp((3,), 2, widths=(3,)))
    graph = capture(module, torch.zeros(2, 3, dtype=torch.float64))
    with torch.no_grad():
        module.layers[0].weight.fill_(1e10)
    with pytest.raises(BadInput, match="range of float64"):
        path_norm(graph, module, order=100.0)


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) * self.b(x)


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + self.shift


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.GELU()), "gelu"),
        (nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), "layer_norm"),
        (nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1)), "softmax"),
        (Product(), "products of two results"),
        (Constant(), "not computed from the input"),
    ],
)
def test_other_operators_are_refused_by_name(module: nn.Module, reason: str) -> None:
    graph = capture(module.eval(), torch.zeros(2, 3))
    with pytest.raises(NotYetSupported, match=reason):
        path_norm(graph, module)
