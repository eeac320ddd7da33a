"""Tiny networks with examples that they get right, for every test of measures."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from nonvacuous.measures import Subject
from nonvacuous.models.cnn import Cnn, Mlp


class ResidualNet(nn.Module):
    """A small residual network: stem, one block with a shortcut, average pooling, last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.first, self.norm_1 = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.second, self.norm_2 = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.last = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        inner = torch.relu(self.norm_1(self.first(x)))
        x = torch.relu(x + self.norm_2(self.second(inner)))
        return self.last(x.mean((2, 3)))


def randomized(module: nn.Module, seed: int) -> nn.Module:
    """Random weights and, where there are any, statistics."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            spread = 0.7 / max(1, parameter[0].numel()) ** 0.5 if parameter.ndim > 1 else 0.2
            parameter.copy_(torch.randn(parameter.shape, generator=source) * spread * 2)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=source) * 0.1)
            if name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=source) + 0.5)
    return module.double().eval()


def examples_for(module: nn.Module, shape: tuple[int, ...], count: int) -> tuple[Tensor, Tensor]:
    """Inputs labeled by the network itself, those that it is surest of; one label is wrong.

    The last bias is moved so that every class occurs.
    """
    source = torch.Generator().manual_seed(7)
    inputs = torch.randn((40 * count, *shape), generator=source)
    with torch.no_grad():
        list(module.parameters())[-1].sub_(module(inputs.double()).mean(0))
        scores = module(inputs.double())
    best = scores.topk(2, dim=1).values
    order = (best[:, 0] - best[:, 1]).argsort(descending=True)
    kinds = scores.argmax(1)[order]
    chosen = torch.cat([order[kinds == kind][: count // 3] for kind in range(3)])
    labels = scores.argmax(1)[chosen]
    assert len(labels) == count
    labels[-1] = (labels[-1] + 1) % 3
    return inputs[chosen], labels


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: Mlp((4,), 3, widths=(5, 6)), (4,)),
    "cnn": (lambda: Cnn((1, 6, 6), 3, channels=(2, 3)), (1, 6, 6)),
    "resnet": (ResidualNet, (1, 5, 5)),
}


@cache
def made(name: str) -> tuple[nn.Module, nn.Module, tuple[Tensor, Tensor]]:
    """The trained network (so to say), the initial one, and the examples."""
    build, shape = NETWORKS[name]
    module = randomized(build(), 1)
    examples = examples_for(module, shape, 24)
    initial = copy.deepcopy(module)
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in initial.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=source) * 0.1)
    return module, initial, examples


@cache
def world(name: str) -> Subject:
    module, initial, examples = made(name)
    return Subject.of(module, examples, initial=initial, seed=5)
