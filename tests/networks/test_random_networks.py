"""Random small networks with random scales: the function is kept, whatever the layers."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nonvacuous.networks import capture, preservation_error, rescaled, scale_groups
from tests.examples import some


class Lambda(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Sum(nn.Module):
    """x + layer(x), with ReLU inside."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(torch.relu(x))


class Join(nn.Module):
    """x beside layer(x)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Conv2d(channels, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.inner(x), x], dim=1)


POINTWISE = {
    "relu": nn.ReLU,
    "leaky": nn.LeakyReLU,
    "square": lambda: Lambda(lambda x: torch.relu(x) ** 2),
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "pool": lambda: nn.MaxPool2d(2, ceil_mode=True),
    "average": lambda: nn.AvgPool2d(3, 1, 1),
    "dropout": nn.Dropout,
    "shift": lambda: Lambda(lambda x: x + 0.5),
    "flip": lambda: Lambda(lambda x: x.flip(1)),
    "swap": lambda: Lambda(lambda x: x.transpose(2, 3)),
    "pad": lambda: Lambda(lambda x: F.pad(x, (1, 0, 0, 1, 0, 1))),
    "halve": lambda: Lambda(lambda x: x[:, : max(1, x.shape[1] // 2)]),
    "gate": lambda: Lambda(lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True))),
    "norm": lambda: Lambda(lambda x: x / (1 + x.abs().mean())),
}


def layer(kind: str, channels: int, data: st.DataObject) -> nn.Module:
    if kind == "conv":
        return nn.Conv2d(channels, data.draw(st.integers(1, 4)), 3, padding=1, bias=channels != 2)
    if kind == "depthwise":
        return nn.Conv2d(channels, 2 * channels, 1, groups=channels)
    if kind == "transposed":
        return nn.ConvTranspose2d(channels, 3, 2)
    if kind == "affine":
        return nn.BatchNorm2d(channels)
    if kind == "groupnorm":
        return nn.GroupNorm(1, channels)
    if kind == "sum":
        return Sum(channels)
    if kind == "join":
        return Join(channels)
    return POINTWISE[kind]()


KINDS = [
    "conv",
    "conv",
    "depthwise",
    "transposed",
    "affine",
    "groupnorm",
    "sum",
    "join",
    *POINTWISE,
]


@settings(max_examples=some(80))
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=7), st.data())
def test_random_scales_keep_the_function(kinds: list[str], data: st.DataObject) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 2, 5, 4, dtype=torch.float64)
    layers: list[nn.Module] = []
    value = x
    for kind in ["conv", *kinds]:
        layers.append(layer(kind, value.shape[1], data).double().eval())
        value = layers[-1](value)
    last = nn.Linear(value[0].numel(), 2).double()
    module = nn.Sequential(*layers, nn.Flatten(), last).eval()
    groups = scale_groups(capture(module, x))
    assert preservation_error(module, x, groups=groups, draws=2) < 1e-10
    seed = data.draw(st.integers(0, 100))
    scales = np.random.default_rng(seed).normal(size=groups.size)
    back = rescaled(rescaled(module, groups, scales), groups, -scales)
    for one, other in zip(module.parameters(), back.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)
