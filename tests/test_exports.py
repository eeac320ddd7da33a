"""Remembered exports: networks are taken for the same only where nothing tells them apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.exports import described, remembered


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)).eval()


def without_gradient(net: nn.Sequential) -> None:
    net[3].weight.requires_grad_(False)


def tied(net: nn.Sequential) -> None:
    net[3].bias = net[0].bias


def in_the_same_memory(net: nn.Sequential) -> None:
    net[3].bias = nn.Parameter(net[0].bias.data)


CHANGES: dict[str, Callable[[nn.Sequential], object]] = {
    "ceiling": lambda net: setattr(net[1], "ceil_mode", True),
    "training": lambda net: net[1].train(),
    "dtype": lambda net: net.double(),
    "without gradient": without_gradient,
    "tied": tied,
    "in the same memory": in_the_same_memory,
    "one more layer": lambda net: net.append(nn.ReLU()),
    "no bias": lambda net: setattr(net[3], "bias", None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_differs_is_exported_again(change: str) -> None:
    example, other = (torch.zeros(2, 1, 6, 6),), network()
    assert described(other, example) == described(network(), example) is not None
    CHANGES[change](other)
    assert described(other, example) != described(network(), example)
    assert described(network(), (torch.zeros(3, 1, 6, 6),)) != described(network(), example)


def test_what_may_do_anything_is_never_remembered() -> None:
    class Own(nn.Linear):
        """Nobody knows what it does."""

    example, hooked = (torch.zeros(2, 1, 6, 6),), network()
    hooked[1].register_forward_hook(lambda *_: None)
    assert described(hooked, example) is None
    assert described(Own(2, 2), example) is None
    calls = []
    export = remembered(lambda module, _: calls.append(module))
    for module in (network(), network(), hooked, hooked):
        export(module, example)
    assert len(calls) == 3
